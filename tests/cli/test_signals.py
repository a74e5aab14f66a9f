"""Ends before the end: SIGINT, SIGTERM, a second one, kill -9; in every phase nothing is lost that was measured."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from running import ENDLESS, TINY, Run, below_us, eventually, faulty_python

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
    """Wait until a finished request is on the disk."""
    stream = run.await_found("**/_requests_*.arrows")
    eventually(lambda: "ok" in read_rows(stream)["outcome"].to_pylist(), START_S_MAX, "a row")


def servers() -> list[str]:
    """Guards and simulators of ours that live."""
    return [title for title in below_us().values() if "guard.py" in title or "sim" in title or "sglang" in title]


def test_l01_r6_sigint_while_ray_starts(start: Callable[..., Run]) -> None:
    """Ctrl-C before there is a server: exit 130, Ray and its files are gone."""
    run = start(BASELINE, *TINY)
    eventually(run.ray_folders, STOP_S_MAX, "Ray's folder")
    send(run, signal.SIGINT, group=True)
    ended = run.end(2 * STOP_S_MAX)  # Ray's start itself cannot be interrupted
    assert ended.code == 130
    assert "Traceback" not in ended.err


def test_r7_sigterm_while_ray_starts(start: Callable[..., Run]) -> None:
    """SIGTERM before there is a server: exit 143, although Ray puts a handler of its own in place meanwhile."""
    run = start(BASELINE, *TINY)
    eventually(run.ray_folders, STOP_S_MAX, "Ray's folder")
    time.sleep(0.5)  # no condition shows when Ray has changed the handler; both sides of it must hold
    send(run, signal.SIGTERM)
    ended = run.end(2 * STOP_S_MAX)
    assert ended.code == 143
    assert "Traceback" not in ended.err


def test_r6_sigint_while_the_server_starts(start: Callable[..., Run], tmp_path: Path) -> None:
    """A server that would still load for a minute is ended; the next run of the sweep is not begun."""
    faults = (f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS=slow_start:60")
    run = start("-m", BASELINE, "load.concurrency=2,3", *TINY[:3], "load.requests=6", *faults)
    run.await_line("baseline: starting")
    begun_s = send(run, signal.SIGINT)
    ended = run.end(STOP_S_MAX)
    assert ended.code == 130, time.monotonic() - begun_s
    assert "Traceback" not in ended.err
    assert ended.points() == []


def test_r7_sigterm_in_the_warm_up(start: Callable[..., Run]) -> None:
    """A signal while the unrecorded requests are answered, which here would take minutes."""
    run = start(BASELINE, *TINY, "engine.sim_speed=0.1", "workload.max_tokens=512")
    run.await_line("16 warm-up requests")
    send(run, signal.SIGTERM)
    ended = run.end(STOP_S_MAX)
    assert ended.code == 143
    assert "Traceback" not in ended.err
    assert ended.points() == []


def test_l01_r6_sigint_in_the_window(start: Callable[..., Run]) -> None:
    """Ctrl-C at a terminal: exit 130, all rows on disk and marked, one ledger line, no headline, no next run."""
    run = start("-m", "+variant=baseline,eagle_topk1_v2", *ENDLESS)
    run.await_line("· window ·")
    await_rows(run)
    send(run, signal.SIGINT, group=True)
    ended = run.end(STOP_S_MAX)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert [(line["status"], line["exit_code"], line["variant"]) for line in ended.ledger()] == [
        ("INTERRUPTED", 130, "baseline")
    ]
    (point,) = ended.points()
    assert (point["verdict"]["status"], point["summary"]) == ("INTERRUPTED", None)
    assert "INTERRUPTED" in ended.out
    rows = duckdb.sql(
        f"select outcome, verdict, count(*) n from read_parquet('{ended.results}/**/requests.parquet') group by all"
    ).fetchall()
    counts = {outcome: n for outcome, _, n in rows}
    assert {verdict for _, verdict, _ in rows} == {"INTERRUPTED"}
    assert counts["ok"] >= 1
    assert set(counts) <= {"ok", "cut"}
    assert counts.get("cut", 0) <= 4, "more than the streams in flight"
    assert not list(ended.results.rglob("_*"))


def test_r7_sigterm_between_levels(start: Callable[..., Run]) -> None:
    """The level that was whole stays whole; the exit is 143."""
    levels = ("load.concurrency=[1,2,3]", "load.requests=4", "workload.max_tokens=64")
    run = start(BASELINE, *TINY[:2], *levels)
    ledger = run.await_found("outputs/*/*/ledger.jsonl")
    eventually(ledger.read_text, START_S_MAX, "the first level's line")
    send(run, signal.SIGTERM)
    ended = run.end(STOP_S_MAX)
    assert ended.code == 143
    assert "Traceback" not in ended.err
    statuses = [line["status"] for line in ended.ledger()]
    assert statuses[0] in ("VALID", "INVALID")
    assert statuses[1:] in ([], ["INTERRUPTED"])
    assert len(ended.points()) == len(statuses)


def test_l01_r6_a_second_sigint_ends_at_once(start: Callable[..., Run]) -> None:
    """Twice Ctrl-C: exit 130 without waiting, and the server goes all the same."""
    run = start(BASELINE, *ENDLESS)
    run.await_line("· window ·")
    send(run, signal.SIGINT)
    run.await_line("SIGINT: stopping")
    send(run, signal.SIGINT)
    ended = run.end(AT_ONCE_S_MAX)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    eventually(lambda: not servers(), GONE_S_MAX, "the server's end")


def test_r8_kill_9_of_the_driver(start: Callable[..., Run], tmp_path: Path) -> None:
    """Server, children and even an orphan that ignores SIGTERM go; rows of finished requests can be read."""
    faults = (f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS='orphan ignore_sigterm'")
    run = start(BASELINE, *ENDLESS, *faults)
    run.await_line("· window ·")
    await_rows(run)
    assert servers()
    send(run, signal.SIGKILL)
    run.end(AT_ONCE_S_MAX)
    eventually(lambda: not servers(), GONE_S_MAX, "the server's end")
    (stream,) = run.folder.rglob("_requests_*.arrows")
    assert "ok" in read_rows(stream)["outcome"].to_pylist()
    assert not list(run.folder.rglob("*.parquet")) + list(run.folder.rglob("point.json"))
    remove_stale(run)


def remove_stale(run: Run) -> None:
    """What a killed driver leaves of Ray's files is removed by the next start."""
    Path(footprint.temporary()).rmdir()
    assert run.ray_folders() == []


@pytest.mark.parametrize("signum", [signal.SIGINT])
def test_sigint_before_anything_runs(start: Callable[..., Run], signum: int) -> None:
    """While modules load nothing has to be cleaned up; the shell sees an interruption."""
    run = start(BASELINE, *TINY)
    time.sleep(0.3)
    send(run, signum)
    assert run.end(STOP_S_MAX).code in (130, -2)
