"""Going on: the same question is the same configuration and the same content of its files."""

from pathlib import Path
from typing import Any

import pytest
from test_config import made

from loadgen import resume, store
from loadgen.asked import Run
from loadgen.config import Level
from loadgen.errors import ConfigError, StorageError
from loadgen.ledger import Ledger

LINE = {"folder": ".", "variant": "baseline", "block": 0, "concurrency": 1, "rate": None}


def test_a_file_of_another_content_is_another_question(tmp_path: Path) -> None:
    """A trace that was changed under its name must not let old Points stand for it."""
    trace, root = tmp_path / "t.jsonl", tmp_path / "day" / "time"
    trace.write_text("first")
    asked = [made("+variant=baseline", "load=open", f"load.trace={trace}")], [Path()], ["hash"]
    root.mkdir(parents=True)
    resume.remember(root, resume.question(*asked), "python -m loadgen")
    assert resume.find(root, True, resume.question(*asked)) == root
    trace.write_text("other")
    with pytest.raises(ConfigError, match="prompts and files; run it once without resume=true"):
        resume.find(root, True, resume.question(*asked))


def test_a_repetition_is_a_point_of_its_own(tmp_path: Path) -> None:
    """Also in a run that calls its folder as that of the repetition is called, and in ledgers older than these."""
    line = {**LINE, "folder": "drift", "status": "VALID", "point_id": "a"}
    again = {**line, "repeat": True}
    assert resume.key_of(again) != resume.key_of(line) == resume.key_of({**line, "repeat": False})
    for told in (line, {**again, "status": "INTERRUPTED"}):
        store.append_line(tmp_path / store.LEDGER, told)
    store.write_json(tmp_path / "drift/c1" / store.POINT, {"point_id": "a"})
    assert resume.done(tmp_path) == {resume.key_of(line)}
    assert len(resume.newest(tmp_path)) == 2


def test_drift_is_part_of_the_question(tmp_path: Path) -> None:
    """A command that asks for another repetition is not gone on with."""
    asked = [
        resume.question([made("+variant=baseline", f"drift={levels}")], [Path()], ["hash"]) for levels in ("[]", "[1]")
    ]
    resume.remember(tmp_path, asked[0], "python -m loadgen")
    assert resume.find(tmp_path, True, asked[0]) == tmp_path
    with pytest.raises(ConfigError, match="same configuration"):
        resume.find(tmp_path, True, asked[1])


@pytest.mark.parametrize(
    "load",
    [
        {"kind": "closed", "concurrency": 4},
        {"kind": "open", "rate": 2.5, "arrival": "poisson"},
        {"kind": "open", "rate": 0.71, "trace": "t.jsonl"},
    ],
)
def test_r05_a_point_that_was_committed_is_not_measured_again(tmp_path: Path, load: dict[str, Any]) -> None:
    """A kill after point.json and before the ledger's line: the line is made up for it, once, as it would have been."""
    run = Run(made("+variant=baseline"), tmp_path / "0")
    level = Level(load.get("concurrency"), None, None if "trace" in load else load.get("rate"))
    content = {"point_id": "x", "variant": "baseline", "workload": "diverse", "block": 0, "repeat": False, "load": load}
    whole = {**content, "verdict": {"status": "VALID", "reasons": []}, "summary": {"output_tokens_per_s": 7.0}}
    store.write_json(run.folder / "any" / store.POINT, whole)
    store.write_json(run.folder / "bad" / store.POINT, {**whole, "point_id": "y", "verdict": {"status": "INVALID"}})
    store.append_line(tmp_path / store.LEDGER, {**LINE, "status": "FAILED", "point_id": None})
    assert Ledger(tmp_path, resume.done(tmp_path)).unmeasured(run, [level]) == [level]
    resume.settle(tmp_path)
    resume.settle(tmp_path)
    assert Ledger(tmp_path, resume.done(tmp_path)).unmeasured(run, [level]) == []
    told = resume.newest(tmp_path)
    assert [line["status"] for line in told] == ["FAILED", "VALID"]
    assert (told[1]["point_id"], told[1]["output_tokens_per_s"]) == ("x", 7.0)
    assert {"rules", "reason"} <= told[1].keys()  # what the chaos study reads of every line


def test_r05_a_point_that_was_taken_away_is_measured_again(tmp_path: Path) -> None:
    """A broken Point's advice is to remove its folder: its line alone does not stand for it."""
    store.append_line(tmp_path / store.LEDGER, {**LINE, "status": "VALID", "point_id": "x"})
    assert resume.done(tmp_path) == set()
    store.write_json(tmp_path / "c1" / store.POINT, {"point_id": "x"})
    assert resume.done(tmp_path) == {resume.key_of(LINE)}


def test_r05_a_line_that_cannot_be_gone_on_with_is_named(tmp_path: Path) -> None:
    """One without a status, which a record of all results can do without."""
    store.append_line(tmp_path / store.LEDGER, {**LINE, "point_id": "x"})
    assert len(resume.newest(tmp_path)) == 1
    with pytest.raises(StorageError, match="line 1 is not as loadgen writes it: it has no status"):
        resume.done(tmp_path)


def test_r05_what_is_of_others_is_left_alone(tmp_path: Path) -> None:
    """A folder may hold those of other commands, and files of anybody: neither cleared away nor taken for its own."""
    resume.remember(tmp_path, [], "python -m loadgen")
    other = tmp_path / "other"
    other.mkdir()
    for folder in (tmp_path, other):
        (folder / store.LEDGER).touch()
    whole = {"point_id": "x", "verdict": {"status": "VALID"}, "load": {"concurrency": 1}, "summary": {}}
    store.write_json(other / "c1" / store.POINT, whole)
    for name in ("_requests_0.arrows", "requests.parquet", ".point.json.tmp"):
        store.write_bytes(other / "c2" / name, b"")
    store.write_bytes(tmp_path / ".mine.json.tmp", b"")
    before = sorted(tmp_path.rglob("*"))
    resume.begin(tmp_path, [], "python -m loadgen")
    assert sorted(tmp_path.rglob("*")) == before
    assert (resume.newest(tmp_path), resume.done(tmp_path)) == ([], set())
