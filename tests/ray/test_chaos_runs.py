"""Faults as a list, each held against what was expected of it, and a machine that an earlier run has left unclean."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from neighbour import of_the_server
from running import TINY, Ended

from loadgen import evidence
from loadgen.dataset import read_ledger
from loadgen.errors import ConfigError
from server.process import STATE_PREFIX, TAG


def shown(ended: Ended) -> dict[str, str]:
    """PASS or FAIL by the line's second column."""
    lines = [line.split(maxsplit=2) for line in ended.out.splitlines() if line.startswith(("PASS", "FAIL"))]
    return {words[1]: words[0] for words in lines}


def test_a_wrong_expectation_fails(cli: Callable[..., Ended]) -> None:
    """One line a fault; what ends otherwise than expected is a FAIL and exit 6, by status and by rule."""
    faults = (
        "{fault: 'die_at_start:3', rule: server},{fault: 'die_at_start:4', expect: VALID},"
        "{fault: 'die_at_start:5', rule: steady}"
    )
    ended = cli("+study=chaos", f"chaos=[{faults}]")
    assert ended.code == 6, ended.err
    assert shown(ended) == {
        "die_at_start:3": "PASS",
        "die_at_start:4": "FAIL",
        "die_at_start:5": "FAIL",
        "nothing": "PASS",
    }
    assert "chaos: 1 of 3 faults ended as expected" in ended.out
    lines = read_ledger(ended.results / "ledger.jsonl")
    assert [(line["fault"], line["status"], line["rules"]) for line in lines] == [
        (f"die_at_start:{status}", "FAILED", ["server"]) for status in (3, 4, 5)
    ]


def test_r01_a_worker_that_is_killed_in_its_window(cli: Callable[..., Ended]) -> None:
    """The Point is FAILED by worker_lost, and the study, whose only fault it is, ends with 0."""
    ended = cli("+study=chaos", "chaos=[{fault: kill_worker, rule: worker_lost}]")
    assert ended.code == 0, ended.out
    (point,) = ended.points()
    assert (point["verdict"]["status"], point["summary"]) == ("FAILED", None)


@pytest.mark.slow
def test_r03_r04_every_fault_ends_as_expected(cli: Callable[..., Ended]) -> None:
    """The whole study, five minutes; only the control may be spoilt by a busy neighbour, and says so."""
    ended = cli("+study=chaos")
    print(ended.out)
    failed = {fault for fault, word in shown(ended).items() if word == "FAIL"}
    assert failed <= {"none"}
    assert ended.code == (6 if failed else 0)
    (control,) = [point for point in ended.points() if point["fault"] == "none"]
    assert of_the_server(control["verdict"]["reasons"]) == []


@pytest.fixture
def stray(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sleeping process with the mark of a launch whose guard, and its folder, are gone."""
    marked = {**os.environ, TAG: str(tmp_path / f"{STATE_PREFIX}gone-x")}
    with subprocess.Popen(["sleep", "600"], env=marked) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_r10_what_an_earlier_run_left(
    cli: Callable[..., Ended], stray: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Refused and named, and nothing of it touched; with cluster.clean=true it is ended, and told."""
    ended = cli("+variant=baseline", *TINY)
    assert ended.code == 3
    assert f"process {stray.pid} (sleep 600) is of a server of an earlier run" in ended.err
    assert "cluster.clean=true" in ended.err
    assert stray.poll() is None
    assert not list(tmp_path.rglob("point.json"))
    cleaned = cli("+variant=baseline", *TINY, "cluster.clean=true", folder=tmp_path / "again")
    assert cleaned.code in (0, 6), cleaned.err
    assert f"ended: process {stray.pid} (sleep 600)" in cleaned.err
    assert stray.wait(timeout=10) == -signal.SIGKILL


def test_what_suffered_on_purpose_is_no_evidence(cli: Callable[..., Ended]) -> None:
    """A comparison and the journal do not see it: there is nothing of a variant in it."""
    ended = cli("+study=chaos", "chaos=[{fault: 'die_at_start:3', rule: server},{fault: kill_worker}]")
    assert ended.code == 0, ended.out
    with pytest.raises(ConfigError, match="nothing was measured"):
        evidence.read([ended.results])
