"""A study as a user runs it: interrupted in the middle, gone on with, and then as whole as one that never was."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import LOADGEN, RUN_S_MAX, Ended, Run, eventually

from loadgen import compare
from loadgen.__main__ import main
from loadgen.dataset import read_dataset

STUDY = (
    *("-m", "block=1", "+variant=baseline,eagle_topk1_v2", "load.concurrency=[1,2]", "load.requests=6"),
    *("drift=[2]", "engine=sim", "engine.sim_speed=20", "workload.max_tokens=32"),
)
# Block, variant, concurrency, whether it is the repetition. In block 1 the baseline comes last: its server is running
# already when the repetition wants one of its own.
TABLE = [
    *((1, name, level, False) for name in ("eagle_topk1_v2", "baseline") for level in (1, 2)),
    (1, "baseline", 2, True),
]

STOP_S_MAX = 30.0


def cell(line: dict[str, Any]) -> tuple[Any, ...]:
    return (line["block"], line["variant"], line["concurrency"], line["repeat"])


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Ended]:
    """The study in a process of its own, which Ctrl-C ended when two Points were measured."""
    run = Run(STUDY, tmp_path / "work", {}, LOADGEN)
    try:
        ledger = run.await_found("outputs/*/*/ledger.jsonl")
        eventually(lambda: len(ledger.read_text().splitlines()) >= 2, RUN_S_MAX, "two Points")
        os.kill(run.process.pid, signal.SIGINT)
        yield run.end(STOP_S_MAX)
    finally:
        run.kill()


@pytest.mark.slow
def test_interrupted_and_gone_on_with(first: Ended, cli: Callable[..., Ended]) -> None:
    """Every Point of the study once, in its order, those that were VALID before as they were; then the comparison."""
    assert first.code == 130
    assert f"python -m loadgen.compare {first.results}" in first.out
    before = first.ledger()
    assert len(before) < len(TABLE)
    valid = {cell(line): line["point_id"] for line in before if line["status"] == "VALID"}
    ended = cli(*STUDY, "resume=true", folder=first.folder)
    assert ended.code in (0, 6), ended.err
    newest = {cell(line): line for line in ended.ledger()}
    assert list(newest) == TABLE
    assert {line["status"] for line in newest.values()} <= {"VALID", "INVALID"}
    # Only what was missing was measured: the others have one line, and their Points are those of the first time.
    counts = Counter(map(cell, ended.ledger()))
    assert {where: (counts[where], newest[where]["point_id"]) for where in valid} == {
        where: (1, point_id) for where, point_id in valid.items()
    }
    assert not valid or f"({len(valid)} VALID already)" in ended.err
    check_drift(ended)
    check_comparison(ended)


def check_drift(ended: Ended) -> None:
    """The repetition has a folder and a server of its own, and each row, Point and launch says whether it is one."""
    again = [point for point in ended.points() if point["repeat"]]
    (one,) = [point for point in again if point["verdict"]["status"] in ("VALID", "INVALID")]
    launches = {path.parent.name: json.loads(path.read_text()) for path in ended.results.rglob("launch*.json")}
    assert launches["drift"]["launch_id"] == one["launch_id"]
    assert [name for name, launch in launches.items() if launch["repeat"]] == ["drift"]
    others = {point["launch_id"] for point in ended.points() if not point["repeat"]}
    assert one["launch_id"] not in others
    for name in ("requests.parquet", "health.parquet"):
        rows = read_dataset(ended.results, name).select(["launch_id", "repeat"]).to_pylist()
        assert {row["launch_id"] for row in rows if row["repeat"]} == {one["launch_id"]}
        assert {row["launch_id"] for row in rows if row["repeat"] is False} == others
    assert "baseline, again at the end" in ended.out


def check_comparison(ended: Ended) -> None:
    """It ends with the comparison; the repetition is in no pair, and is told beside the first time."""
    (contest,) = compare.compare([ended.results]).contests
    counted = {point["point_id"] for row in contest.rows.values() for point in row.points}
    assert not counted & {point["point_id"] for point in ended.points() if point["repeat"]}
    if {line["status"] for line in {cell(line): line for line in ended.ledger()}.values()} == {"VALID"}:
        assert {(row.variant, row.level.concurrency) for row in contest.rows.values()} == {one[1:3] for one in TABLE}
        assert [drift.level.concurrency for drift in contest.drift] == [2]
    assert "for throughput: " in ended.out
    assert "left: " in ended.err
    assert "whole command" in ended.err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["+variant=eagle_topk1_v2", "drift=[1]"], "no run of this command is of it"),
        (["-m", "+study=eagle", "+variant=eagle_topk1_v2"], "drift=[1, 30, 100] measures baseline once more"),
        (["+variant=baseline", "drift=[1]", "load=open", "load.rate=6"], "this load is open"),
        (["+variant=baseline", "drift=[0]"], "drift=[0]: name concurrencies"),
    ],
)
def test_drift_that_cannot_be_is_exit_2(
    asked: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything starts, in one line, and no folder is left."""
    monkeypatch.chdir(tmp_path)
    assert main([*asked, "engine=sim"]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert list(tmp_path.rglob("*.json*")) == []


def test_a_dry_run_shows_the_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine runs of the study with their commands, and what comes after them without another."""
    monkeypatch.chdir(tmp_path)
    assert main(["-m", "+study=eagle", "engine=sim", "launch.dry_run=true"]) == 0
    told = capsys.readouterr().out
    assert told.count(" -m server.sim ") == 9
    last = "baseline, again at the end · sim · kimi_k25 · diverse · block 0: concurrency 1, 30, 100"
    assert told.splitlines()[-1] == last
