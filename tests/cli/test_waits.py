"""R6, R7: a signal while the driver waits for a process that is frozen: the wait ends, and so does the command."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import psutil
import pytest
from running import ENDLESS, TINY, Ended, Run, eventually, faulty_python
from test_signals import BASELINE, STOP_S_MAX, await_rows, send

from loadgen.cluster import ACTOR_TITLE
from loadgen.crew import WALL_TITLE
from loadgen.footprint import titled

pytestmark = pytest.mark.slow

START_S_MAX = 60.0
# A server's actor is given ten seconds before somebody else ends its server; a Point of its rows comes before that.
LOST_S_MAX = 40.0
ASKED_S = 1.0  # the driver asks each of them twice a second: by then it waits for an answer, which nothing shows


def freeze(run: Run, title: str) -> None:
    """Stop the one process of the run with this title as soon as it is there."""
    (found,) = eventually(lambda: titled(title, psutil.Process(run.process.pid)), START_S_MAX, title)
    os.kill(found.pid, signal.SIGSTOP)


def test_r06_r07_before_the_first_point(start: Callable[..., Run], tmp_path: Path) -> None:
    """The board is silent when the warm-up wants it, the server's actor while its server starts: 130 and 143 soon."""
    slow = (f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS=slow_start:8")
    board = start(BASELINE, *TINY, *slow, folder=tmp_path / "board")
    freeze(board, WALL_TITLE)
    board.await_line("16 warm-up requests")
    send(board, signal.SIGINT)
    stopped = board.end(STOP_S_MAX)
    actor = start(BASELINE, *TINY, *slow, folder=tmp_path / "actor")
    actor.await_line("baseline: starting")
    freeze(actor, ACTOR_TITLE)
    send(actor, signal.SIGTERM)
    ended = [stopped, actor.end(LOST_S_MAX)]
    assert [one.code for one in ended] == [130, 143]
    for one in ended:
        assert "Traceback" not in one.err
        assert "left behind" not in one.err
        assert one.points() == []


@pytest.mark.parametrize(("title", "limit_s"), [(WALL_TITLE, STOP_S_MAX), (ACTOR_TITLE, LOST_S_MAX)])
def test_r06_in_a_point(start: Callable[..., Run], title: str, limit_s: float) -> None:
    """INTERRUPTED and not FAILED, with the rows until then; nothing stays of the server."""
    run = start(BASELINE, *ENDLESS)
    await_rows(run)
    freeze(run, title)
    time.sleep(ASKED_S)
    send(run, signal.SIGINT)
    ended = run.end(limit_s)
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    assert "left behind" not in ended.err
    check_rows(ended)


def check_rows(ended: Ended) -> None:
    """One line and one Point, INTERRUPTED; so is each row."""
    assert [(line["status"], line["exit_code"]) for line in ended.ledger()] == [("INTERRUPTED", 130)]
    (point,) = ended.points()
    assert (point["verdict"]["status"], point["summary"]) == ("INTERRUPTED", None)
    query = f"select outcome, verdict, count(*) from '{ended.results}/**/requests.parquet' group by all"
    rows = duckdb.sql(query).fetchall()
    assert {verdict for _, verdict, _ in rows} == {"INTERRUPTED"}
    assert "ok" in {outcome for outcome, _, _ in rows}
