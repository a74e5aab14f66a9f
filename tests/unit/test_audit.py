"""Answers held beside the baseline's: which questions are the same, and what is told of those answered otherwise."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import rows as made

from loadgen import audit, store
from loadgen.audit import compare, told
from loadgen.config import Config, Variant
from loadgen.errors import ConfigError
from loadgen.record import REQUESTS
from loadgen.report import rendered


def row(variant: str, seq: int, answer: str | None, **more: Any) -> dict[str, Any]:
    prompt = f"code-{seq:03}"
    return made.row(seq, **{"variant": variant, "prompt_id": prompt, "answer_sha256": answer, "concurrency": 4, **more})


BASELINE = [row("baseline", 0, "a"), row("baseline", 1, "b"), row("baseline", 2, "c")]


def test_equal_different_and_missing_are_told_apart() -> None:
    """Each question of the baseline is in exactly one of three columns, and named where it is not equal."""
    theirs = [row("chain", 0, "a"), row("chain", 1, "X"), row("chain", 2, None, outcome="timeout_total")]
    (one,) = compare([*BASELINE, *theirs])
    assert (one.variant, one.equal) == ("chain", 1)
    assert [question["prompt_id"] for question in one.different] == ["code-001"]
    assert [question["prompt_id"] for question in one.missing] == ["code-002"]
    text = rendered(told([one]), sys.stdout)
    assert "chain answered otherwise: code-001 (block 0, concurrency 4)" in text
    assert "chain not answered: code-002" in text
    assert "different by kind: code 1" in text


@pytest.mark.parametrize("name", ["workload_hash", "model", "engine"])
def test_another_question_is_not_compared(name: str) -> None:
    """Another workload, model or engine is another question, whatever its answer."""
    (one,) = compare([*BASELINE, row("chain", 0, "Z", **{name: "other"})])
    assert (one.equal, one.different, one.missing) == (0, [], [])


def test_the_baseline_once_more_at_the_end_is_no_question() -> None:
    """Its answers neither stand for the first ones nor count as another variant's."""
    again = [row("baseline", seq, "other", repeat=True) for seq in range(3)]
    (one,) = compare([*BASELINE, row("chain", 0, "a"), row("chain", 1, "b"), row("chain", 2, "c"), *again])
    assert (one.variant, one.equal, one.different) == ("chain", 3, [])


def test_a_level_that_a_variant_did_not_run_is_not_missing() -> None:
    """A variant measured at one level of two lacks nothing at the other."""
    more = [row("baseline", 0, "a", concurrency=8), row("chain", 0, "a", concurrency=8)]
    (one,) = compare([*BASELINE, *more])
    assert (one.equal, one.missing) == (1, [])


def test_a_question_without_a_baselines_answer_says_nothing() -> None:
    """What the baseline failed cannot be held against anybody."""
    baseline = [row("baseline", 0, None, outcome="cut"), row("baseline", 1, "b")]
    (one,) = compare([*baseline, row("chain", 0, "x"), row("chain", 1, "b")])
    assert (one.equal, one.different) == (1, [])


@pytest.mark.parametrize(
    ("rows", "said"), [([row("chain", 0, "a")], "no answer of variant baseline"), (BASELINE, "no other variant")]
)
def test_nothing_to_compare_is_refused(rows: list[dict[str, Any]], said: str) -> None:
    """An audit that compared nothing must not look like one that found nothing."""
    with pytest.raises(ConfigError, match=said):
        compare(rows)


def test_finished_folders_are_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command on a folder: a table and exit 0 or 6; 2 and a sentence where there is nothing."""
    assert audit.main([str(tmp_path)]) == 2
    assert "no answer of variant baseline" in capsys.readouterr().err
    for variant, answer, code in (("baseline", "a", 2), ("chain", "a", 0), ("tree", "b", 6)):
        (folder := tmp_path / variant).mkdir()
        store.write_parquet(folder / "requests.parquet", [row(variant, 0, answer)], REQUESTS)
        store.write_json(folder / "point.json", {})
        assert audit.main([str(tmp_path)]) == code
    assert "tree answered otherwise: code-000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "refused"), [(["baseline", "ngram"], False), (["baseline"], True), (["ngram", "eagle1_chain"], True)]
)
def test_an_audit_needs_a_baseline_and_another(names: list[str], refused: bool) -> None:
    """Told before the first server starts, not after the last."""
    configs = [Config(variant=Variant(name), audit="outputs") for name in names]
    with pytest.raises(ConfigError, match="compares variants with baseline") if refused else nullcontext():
        audit.require_baseline(configs)
