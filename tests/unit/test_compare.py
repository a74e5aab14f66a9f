"""python -m loadgen.compare on folders as a run leaves them: formats, refusals, gates, exit codes."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from points import STUDY, point, study
from rows import health, row

from loadgen import compare, store
from loadgen.errors import ConfigError
from loadgen.record import SCHEMA_VERSION

ROWS = 40


def write(root: Path, points: Iterable[Mapping[str, Any]]) -> Path:
    """The Points as a command leaves them below `root`, with forty requests each, and its ledger."""
    for one in points:
        folder = root / f"{one['variant']}-{one['block']}" / f"c{one['load']['concurrency']}"
        gap_ms = 1000 * one["load"]["concurrency"] / one["summary"]["output_tokens_per_s"]
        made = [
            row(seq, seq, variant=one["variant"], chunk_ns=[int((seq + 50 + gap_ms * n) * 1e6) for n in range(5)])
            for seq in range(ROWS)
        ]
        writer = store.RowWriter(store.stream_path(folder, 0))
        writer.append(made)
        writer.close()
        told = {**one, "schema_version": SCHEMA_VERSION}
        for name in ("folder", "root"):
            told.pop(name)
        store.commit_point(folder, store.requests_table(folder, None), [health(1000)], told)
        line = {"variant": one["variant"], "block": one["block"], "point_id": one["point_id"], "status": "VALID"}
        store.append_line(root / store.LEDGER, {"folder": folder.parent.name, **line, **one["load"]})
    return root


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study's later table in three blocks."""
    return write(tmp_path_factory.mktemp("runs") / "a", study())


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = compare.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_answer_stands_first(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then tables with intervals and words, the crossover, how same is meant."""
    code, out, _ = told(capsys, tree)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("diverse · kimi_k25 · sim 0.5.9 · 3 blocks")
    assert "SIMULATED x10" in lines[1]
    assert lines[2].startswith("for throughput: run baseline up to concurrency 1")
    assert "crossover: eagle_topk1_v2 is better above" in out
    assert all(word in out for word in ("better", "worse", "same"))
    assert "one server could have both" not in out, "nothing says that it was a chain: no launch.json is there"


def test_as_a_program_of_its_own(tree: Path) -> None:
    """The module's command, and JSON that is JSON."""
    words = [sys.executable, "-m", "loadgen.compare", tree, "--format", "json"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    (contest,) = json.loads(ended.stdout)["contests"]
    assert len(contest["rows"]) == 9
    assert contest["rows"][0]["ttft_ms"]["p50"]["n"] == 3 * ROWS


@pytest.mark.parametrize("name", ["csv", "markdown", "vllm"])
def test_other_formats(tree: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = told(capsys, tree, "--format", name)
    assert code == 0
    assert "eagle_topk1_v2" in out


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("eagle_topk1_v2 >= 0.98 * baseline at concurrency>=30", 0),
        ("eagle_topk4_v1 >= 0.98 * baseline at concurrency>=30", 6),
    ],
)
def test_a_gate_decides_the_exit_code(tree: Path, capsys: pytest.CaptureFixture[str], text: str, code: int) -> None:
    found, out, _ = told(capsys, tree, "--gate", text)
    assert found == code
    assert f"gate {'FAILS' if code else 'holds'}: {text}" in out


def test_a_gate_beside_a_format_for_programs(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """stdout stays JSON; the gate is told on stderr."""
    gate = ("--gate", "eagle_topk4_v1 >= 0.98 * baseline at concurrency>=30")
    code, out, err = told(capsys, tree, "--format", "json", *gate)
    assert code == 6
    assert json.loads(out)
    assert "gate FAILS" in err


def test_unlike_things_are_refused_with_what_differs(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, both values and folders; --allow makes two names of them."""
    other = write(
        tmp_path / "b",
        study(
            root="outputs/b",
            engine_version="0.5.23",
            of={"engine.version": "0.5.23", "hardware.gpus": ["8 x B200"]},
        ),
    )
    code, out, err = told(capsys, tree, other)
    assert (code, out) == (2, "")
    assert 'engine.version: "0.5.9" in ' in err
    assert '"0.5.23"' in err
    assert "--allow engine.version hardware.gpus" in err
    code, out, _ = told(capsys, tree, other, "--allow", "engine.version", "hardware")
    assert code == 0
    assert "eagle_topk1_v2 engine.version=0.5.23" in out
    assert out.splitlines()[0] == "diverse · kimi_k25 · sim 0.5.9, sim 0.5.23 · 3 blocks"


def test_invalid_points_are_listed_and_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With their reasons; so is what never became a Point. The exit code is 0: the comparison is whole."""
    points = study()
    reasons = [{"rule": "loop_lag_p99", "measured": 9.0, "limit": 5.0, "unit": "ms", "advice": "use a quieter machine"}]
    points[4] = {**points[4], "verdict": {"status": "INVALID", "reasons": reasons}}
    root = write(tmp_path / "a", points)
    line = {"variant": "ngram", "block": 0, "concurrency": 1, "rate": None, "point_id": None, "status": "FAILED"}
    store.append_line(root / store.LEDGER, {"folder": "9", **line, "reason": "the server did not start"})
    code, out, _ = told(capsys, root)
    assert code == 0
    assert "2 of 28 Points not VALID" in out
    assert "INVALID: loop lag p99 9 ms (limit 5 ms)" in out
    assert "what to do: use a quieter machine" in out
    assert "ngram · block 0 · concurrency 1: FAILED, never measured: the server did not start" in out


def test_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No folder, an empty one, no VALID Point, words that are no gate, a margin that is none."""
    assert told(capsys, tmp_path / "none")[0] == 2
    (tmp_path / "empty").mkdir()
    code, _, err = told(capsys, tmp_path / "empty")
    assert (code, "nothing was measured there" in err) == (2, True)
    bad = write(tmp_path / "bad", [point("baseline", 1, 90.0, status="INVALID")])
    code, _, err = told(capsys, bad)
    assert (code, "no Point is VALID" in err) == (2, True)
    assert told(capsys, bad, "--gate", "better!")[0] == 2
    for wrong in (["--margin", "2"], ["--format", "xml"], []):
        with pytest.raises(SystemExit) as ended:
            compare.main([str(bad), *wrong] if wrong else [])
        assert ended.value.code == 2


def test_a_broken_file_is_named(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """point.json that is no JSON: one sentence with its path, exit 5."""
    root = write(tmp_path / "a", study(blocks=1))
    path = next(root.rglob("point.json"))
    path.write_text("{")
    code, _, err = told(capsys, root)
    assert code == 5
    assert str(path) in err


def test_one_server_for_both_ranges(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--adaptive writes the file where a chain and the baseline take turns, and is refused elsewhere."""
    root = write(tmp_path / "a", study())
    launch = {
        "engine": "external",
        "spec_mode": "chain_overlap",
        "config": {"variant": {"args": {"speculative_eagle_topk": 1, "speculative_num_steps": 3}}},
    }
    for block in range(3):
        (root / f"eagle_topk1_v2-{block}" / "launch.json").write_bytes(orjson.dumps(launch))
    code, out, err = told(capsys, root, "--adaptive", tmp_path / "both.json")
    assert code == 0
    assert "one server could have both" in out
    assert str(tmp_path / "both.json") in err
    content = json.loads((tmp_path / "both.json").read_text())
    assert content["1"] == {"candidate_steps": [0]}
    code, _, err = told(capsys, tree, "--adaptive", tmp_path / "none.json")
    assert (code, "no chain" in err) == (2, True)
    assert not (tmp_path / "none.json").exists()


def test_memory_does_not_hold_a_whole_point(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are read part by part, and come out the same."""
    whole = compare.compare([tree])
    monkeypatch.setattr("loadgen.dataset.ROWS_AT_ONCE", 7)
    parts = compare.compare([tree])
    for one, other in zip(whole.contests, parts.contests, strict=True):
        assert {cell: row.times for cell, row in one.rows.items()} == {
            cell: row.times for cell, row in other.rows.items()
        }


def test_a_tree_of_points_of_one_variant(tmp_path: Path) -> None:
    """Figures without ratios; a baseline that nobody measured is said to be missing."""
    found = compare.compare([write(tmp_path / "a", study(("eagle_topk1_v2",)))])
    assert "nothing can be recommended: baseline was not measured" in compare.text(found)
    with pytest.raises(ConfigError):
        compare.compare([tmp_path / "a" / "none"])
    assert set(STUDY) == {"baseline", "eagle_topk4_v1", "eagle_topk1_v2"}


def test_a_copy_counts_once(tree: Path, tmp_path: Path) -> None:
    """The same Points in two folders are three blocks, not six."""
    shutil.copytree(tree, tmp_path / "copy")
    (contest,) = compare.compare([tree, tmp_path / "copy"]).contests
    assert len(contest.blocks) == 3


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"point_id": "x", "variant": "v", "block": 0, "load": 3, "verdict": {}}']
)
def test_what_is_no_point_is_named(
    tree: Path, tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A point.json of something else: exit 2 with its path."""
    (tmp_path / "point.json").write_text(content)
    code, _, err = told(capsys, tree, tmp_path)
    assert (code, str(tmp_path) in err) == (2, True)


def test_what_never_came_to_be_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the folders given lie in each other; of several workloads each line says which."""
    root = write(tmp_path / "a", [*study(blocks=1), point("baseline", 250, 1.0, workload="fixed", status="INVALID")])
    line = {"variant": "ngram", "block": 0, "concurrency": 1, "rate": None, "point_id": None, "status": "FAILED"}
    store.append_line(root / store.LEDGER, {"folder": "9", **line, "workload": "fixed", "reason": "no start"})
    code, out, _ = told(capsys, root, root, tmp_path)
    assert code == 0
    assert "2 of 11 Points not VALID" in out
    assert out.count("fixed · ngram · block 0 · concurrency 1: FAILED, never measured: no start") == 1
    assert "fixed · baseline · block 0 · concurrency 250: INVALID" in out


def test_a_summary_of_another_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Throughput and counts are enough; what is missing is null."""
    points = study(blocks=1)
    for one in points:
        one["summary"] = {name: one["summary"][name] for name in ("output_tokens_per_s", "requests", "failed")}
    root = write(tmp_path / "a", points)
    assert told(capsys, root)[0] == 0
    code, out, _ = told(capsys, root, "--format", "vllm")
    assert (code, json.loads(out.splitlines()[0])["duration"]) == (0, None)


def test_a_launch_that_is_gone_is_not_another_variant(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two starts one lost its launch.json: they stay one variant. One that is something else is named."""
    root = tmp_path / "a"
    shutil.copytree(tree, root)
    launch = {"engine": "external", "config": {"variant": {"args": {"speculative_num_steps": 3}}}}
    (root / "eagle_topk1_v2-0" / "launch.json").write_bytes(orjson.dumps(launch))
    code, out, _ = told(capsys, root)
    assert (code, "3 blocks" in out) == (0, True)
    other = shutil.copytree(tree, tmp_path / "b")
    (other / "eagle_topk1_v2-1" / "launch.json").write_text("3")
    code, _, err = told(capsys, other)
    assert (code, "eagle_topk1_v2-1" in err, "is no launch of loadgen" in err) == (2, True, True)


def test_points_of_another_version(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the names of its files they are looked for where they lie; without its time it is named."""
    root = tmp_path / "a"
    shutil.copytree(tree, root)
    path = next(root.rglob("point.json"))
    content = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps({name: value for name, value in content.items() if name != "files"}))
    assert told(capsys, root)[0] == 0
    path.write_bytes(orjson.dumps({name: value for name, value in content.items() if name != "started_at"}))
    code, _, err = told(capsys, root)
    assert (code, "it has no started_at" in err) == (2, True)


def test_a_baseline_that_nobody_measured_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip of the pen is told with the names there are."""
    code, _, err = told(capsys, tree, "--baseline", "eagle_topk1")
    assert (code, "there are baseline, eagle_topk1_v2, eagle_topk4_v1" in err) == (2, True)
