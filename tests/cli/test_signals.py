"""Ends before the end: SIGINT, SIGTERM, a second one, kill -9; in every phase nothing is lost that was measured."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from running import ENDLESS, TINY, Ended, Run, eventually, faulty_python, servers

from loadgen import footprint
from loadgen.dataset import read_rows

STOP_S_MAX = 15.0  # from the signal to the exit
START_S_MAX = 60.0  # until there are results
AT_ONCE_S_MAX = 5.0  # the same for a second signal; it takes a fraction of a second
GONE_S_MAX = 5.0  # from kill -9 of the driver to the end of its server

BASELINE = "+variant=baseline"


def send(run: Run, signum: int, group: bool = False) -> float:
    """Signal the driver, or as a terminal does its whole group; when that was."""
    (os.killpg if group else os.kill)(run.process.pid, signum)
    return time.monotonic()


def await_rows(run: Run) -> None:
    """Wait until the window is there and a finished request is on the disk."""
    run.await_line("· window ·")
    stream = run.await_found("**/_requests_*.arrows")
    eventually(lambda: "ok" in read_rows(stream)["outcome"].to_pylist(), START_S_MAX, "a row")


@pytest.mark.slow
def test_r06_r07_l01_while_ray_starts(start: Callable[..., Run], tmp_path: Path) -> None:
    """Ctrl-C at once, SIGTERM when Ray may have put its own handler in place: 130 and 143, Ray and its files gone."""
    runs = [start(BASELINE, *TINY, folder=tmp_path / name) for name in "ab"]
    eventually(lambda: all(run.ray_folders() for run in runs), START_S_MAX, "Ray's folders")
    send(runs[0], signal.SIGINT, group=True)
    time.sleep(0.5)  # no condition shows when Ray has changed the handler; both sides of it must hold
    send(runs[1], signal.SIGTERM)
    ended = [run.end(2 * STOP_S_MAX) for run in runs]  # Ray's start itself cannot be interrupted
    assert [one.code for one in ended] == [130, 143]
    assert "Traceback" not in ended[0].err + ended[1].err


@pytest.mark.slow
def test_r06_r07_while_the_server_starts_and_in_the_warm_up(start: Callable[..., Run], tmp_path: Path) -> None:
    """A server that would load for a minute, and warm-up requests that would take minutes: ended, no next run begun."""
    faults = (f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS=slow_start:60")
    loading = start("-m", BASELINE, *TINY, "load.requests=6,7", *faults, folder=tmp_path / "loading")
    slow = ("engine.sim_speed=0.1", "workload.max_tokens=512")
    warming = start(BASELINE, *TINY, *slow, folder=tmp_path / "warming")
    loading.await_line("baseline: starting")
    send(loading, signal.SIGINT)
    warming.await_line("16 warm-up requests")
    send(warming, signal.SIGTERM)
    ended = [loading.end(STOP_S_MAX), warming.end(STOP_S_MAX)]
    assert [one.code for one in ended] == [130, 143]
    assert "Traceback" not in ended[0].err + ended[1].err
    assert ended[0].points() + ended[1].points() == []


@pytest.mark.slow
def test_r06_r07_l01_in_the_window_and_between_levels(start: Callable[..., Run], tmp_path: Path) -> None:
    """Ctrl-C at a terminal in a window, SIGTERM just after a level: 130 and 143, what was measured stands."""
    window = start("-m", "+variant=baseline,eagle_topk1_v2", *ENDLESS, folder=tmp_path / "window")
    counts = ("load.concurrency=[1,2,3]", "load.requests=200")
    between = start(BASELINE, *TINY, *counts, folder=tmp_path / "between")
    await_rows(window)
    send(window, signal.SIGINT, group=True)
    eventually(between.await_found("outputs/*/*/ledger.jsonl").read_text, START_S_MAX, "the first level's line")
    send(between, signal.SIGTERM)
    ended = [window.end(STOP_S_MAX), between.end(STOP_S_MAX)]
    assert [one.code for one in ended] == [130, 143]
    assert "Traceback" not in ended[0].err + ended[1].err
    check_window(ended[0])
    check_levels(ended[1])


@pytest.mark.slow
def test_r06_r07_in_the_drain_and_while_it_is_written(start: Callable[..., Run], tmp_path: Path) -> None:
    """SIGTERM while the window's last requests are waited for; Ctrl-C when they have ended: all of a Point or none."""
    long = ("engine=sim", "engine.sim_speed=2", "workload.max_tokens=256", "load.concurrency=[2,3]", "load.window_s=1")
    drain = start(BASELINE, *long, folder=tmp_path / "drain")
    written = start(BASELINE, *TINY, "load.concurrency=[1,2,3]", folder=tmp_path / "written")
    written.await_line("· ending ·")
    send(written, signal.SIGINT)
    drain.await_line("· drain ·")
    send(drain, signal.SIGTERM)
    ended = [drain.end(STOP_S_MAX), written.end(STOP_S_MAX)]
    assert [one.code for one in ended] == [143, 130]
    assert "Traceback" not in ended[0].err + ended[1].err
    (line,) = ended[0].ledger()
    assert (line["status"], line["exit_code"]) == ("INTERRUPTED", 143)
    for one in ended:
        assert [point["point_id"] for point in one.points()] == [line["point_id"] for line in one.ledger()]
        assert not list(one.results.rglob("_*"))
        for point in one.points():
            assert (point["summary"] is None) == (point["verdict"]["status"] == "INTERRUPTED")


def check_window(ended: Ended) -> None:
    """All rows on disk and marked, one ledger line, no headline, the sweep's next run not begun."""
    assert [(line["status"], line["exit_code"], line["variant"]) for line in ended.ledger()] == [
        ("INTERRUPTED", 130, "baseline")
    ]
    (point,) = ended.points()
    assert (point["verdict"]["status"], point["summary"]) == ("INTERRUPTED", None)
    assert "INTERRUPTED" in ended.out
    glob = f"{ended.results}/**/requests.parquet"
    rows = duckdb.sql(f"select outcome, verdict, count(*) from '{glob}' group by all").fetchall()
    counts = {outcome: count for outcome, _, count in rows}
    assert {verdict for _, verdict, _ in rows} == {"INTERRUPTED"}
    assert counts["ok"] >= 1
    assert set(counts) <= {"ok", "cut"}
    assert counts.get("cut", 0) <= 4, "more than the streams in flight"
    assert not list(ended.results.rglob("_*"))


def check_levels(ended: Ended) -> None:
    """The level that was whole stays whole; the next one is marked or was not begun."""
    statuses = [line["status"] for line in ended.ledger()]
    assert statuses[0] in ("VALID", "INVALID")
    assert statuses[1:] in ([], ["INTERRUPTED"])
    assert len(ended.points()) == len(statuses)


@pytest.mark.slow
def test_r06_r08_l01_at_once(start: Callable[..., Run], tmp_path: Path) -> None:
    """Twice Ctrl-C, and kill -9: the driver ends without waiting, and the servers go all the same.

    The killed one's server ignores SIGTERM and has an orphan; the rows of its finished requests can be read.
    """
    faults = (f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS='orphan ignore_sigterm'")
    twice = start(BASELINE, *ENDLESS, folder=tmp_path / "twice")
    killed = start(BASELINE, *ENDLESS, *faults, folder=tmp_path / "killed")
    await_rows(twice)
    await_rows(killed)
    assert servers()
    send(killed, signal.SIGKILL)
    send(twice, signal.SIGINT)
    twice.await_line("SIGINT: stopping")
    send(twice, signal.SIGINT)
    ended = twice.end(AT_ONCE_S_MAX)
    killed.end(AT_ONCE_S_MAX)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert twice.ray_folders() == []
    eventually(lambda: not servers(), GONE_S_MAX, "the servers' end")
    (stream,) = killed.folder.rglob("_requests_*.arrows")
    assert "ok" in read_rows(stream)["outcome"].to_pylist()
    assert not list(killed.folder.rglob("*.parquet")) + list(killed.folder.rglob("point.json"))
    remove_stale(killed)


def remove_stale(run: Run) -> None:
    """What a killed driver leaves of Ray's files is removed by the next start."""
    Path(footprint.temporary()).rmdir()
    assert run.ray_folders() == []


def test_sigint_before_anything_runs(start: Callable[..., Run]) -> None:
    """While modules load nothing has to be cleaned up; the shell sees an interruption."""
    run = start(BASELINE, *TINY)
    # Not before: while the interpreter itself begins, an interruption is an error of its own, status 1.
    loading = Path(f"/proc/{run.process.pid}/maps")
    eventually(lambda: "site-packages" in loading.read_text(), START_S_MAX, "the first module of others")
    send(run, signal.SIGINT)
    assert run.end(STOP_S_MAX).code in (130, -signal.SIGINT)
