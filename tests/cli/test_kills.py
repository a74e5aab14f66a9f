"""R5: kill -9 of the whole program, wherever it is; going on with resume=true measures what is missing and no more."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Run, eventually, servers

from loadgen import dataset, evidence, resume
from loadgen.dataset import POINT, read_dataset, read_rows
from loadgen.store import LEDGER

GONE_S_MAX = 10.0  # from kill -9 of the driver to the end of its server
START_S_MAX = 60.0
DYING = (sys.executable, str(Path(__file__).parent / "dying.py"))
REQUESTS = 20
# A request takes a tenth of a second: every phase is there to be seen, also by who looks a second late.
ASKED = ("+variant=baseline", "engine=sim", "engine.sim_speed=20", "workload.max_tokens=256")
ASKED += ("load.concurrency=[1,2,3]", f"load.requests={REQUESTS}")


def contents(results: Path) -> dict[Path, bytes]:
    """Every file of the whole Points."""
    whole = {path.parent for path in dataset.point_files(results)}
    return {path: path.read_bytes() for folder in whole for path in folder.iterdir()}


@pytest.mark.slow  # seven starts of Ray, a minute
def test_r05_killed_at_every_stage_and_gone_on_with(start: Callable[..., Run], tmp_path: Path) -> None:
    """At the server's start, in the warm-up, while requests run, in a Point's commit, before its line, between Points.

    One folder lives through all of it; what was VALID stays as it was, byte by byte.
    """
    results = tmp_path / "results"

    def began(place: str = "nowhere", resumed: bool = True) -> Run:
        asked = (*ASKED, f"hydra.run.dir={results}", *(["resume=true"] if resumed else []))
        return start(place, *asked, program=DYING)

    def killed(run: Run) -> dict[Path, bytes]:
        """Its whole Points, when all of it is gone; readers see them, and what it had cut off from no side."""
        if run.process.poll() is None:
            eventually(lambda: run.process.poll() is not None, START_S_MAX, "its end")
        assert run.process.returncode == -signal.SIGKILL, run.err
        eventually(lambda: not servers(), GONE_S_MAX, "the servers' end")
        whole = contents(results)
        assert len(read_dataset(results)) == REQUESTS * sum(path.name == POINT for path in whole)
        return whole

    run = began(resumed=False)
    run.await_line("baseline: starting")
    os.kill(run.process.pid, signal.SIGKILL)
    assert killed(run) == {}

    run = began()
    run.await_line("16 warm-up requests")
    os.kill(run.process.pid, signal.SIGKILL)
    assert killed(run) == {}

    run = began()
    stream = run.await_found("c1/_requests_*.arrows", results)
    eventually(lambda: "ok" in read_rows(stream)["outcome"].to_pylist(), START_S_MAX, "a row")
    os.kill(run.process.pid, signal.SIGKILL)
    assert killed(run) == {}

    assert killed(began("commit")) == {}
    assert (results / "c1-2/requests.parquet").is_file()

    first = killed(began("before the line"))
    assert {path.parent.name for path in first} == {"c1-3"}
    assert not (results / LEDGER).read_bytes()

    second = killed(began("after the line"))
    assert {path.parent.name for path in second} == {"c1-3", "c2"}
    assert {path: second[path] for path in first} == first

    ended = began().end()
    assert ended.code == 0, ended.err
    assert "2 VALID already" in ended.err
    last = contents(results)
    assert {path: last[path] for path in second} == second
    assert [line["concurrency"] for line in dataset.read_ledger(results / LEDGER)] == [1, 2, 3]
    assert len(resume.done(results)) == len(evidence.read([results]).points) == 3
    # Of what was cut off only rows are left; a glob over all Parquet meets whole Points alone.
    assert {path.parent.name for path in results.rglob("requests.parquet")} == {"c1-3", "c2", "c3"}
    assert list(results.rglob(".*")) == []
    assert len(read_rows(stream)) >= 1
