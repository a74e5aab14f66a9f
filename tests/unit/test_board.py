"""The board: start when all are there, window when all have finished a round, stop when all are drained."""

from typing import Any

from loadgen.board import Board, Wall
from loadgen.config import Load

S = 1_000_000_000
LOAD = Load(kind="closed", concurrency=4, window_requests=2, window_min_s=1.0)


def beat(worker: int, t_s: float, **more: Any) -> dict[str, Any]:
    base = {
        "worker": worker,
        "phase": "running",
        "t_ns": int(t_s * S),
        "sent": 4,
        "finished": 2,
        "failed": 0,
        "in_flight": 2,
    }
    return {
        **base,
        "reads": int(100 * t_s),
        "done_tokens": 40,
        "done_reads": 20,
        "first_round_ns": None,
        "ends": [],
        "health": [],
        "drained": False,
        "exhausted": False,
        **more,
    }


def test_common_start() -> None:
    """Nobody is given a start before everybody is ready; all get the same."""
    board = Board(LOAD, 2, 0.0, False)
    assert board.beat({"worker": 0, "phase": "ready"})["start_utc_ns"] is None
    assert board.look()["phase"] == "workers starting"
    start = board.beat({"worker": 1, "phase": "ready"})["start_utc_ns"]
    assert start is not None
    assert board.beat({"worker": 0, "phase": "ready"})["start_utc_ns"] == start


def test_window_and_drain() -> None:
    """The window waits for the slowest worker's first round; the stop waits for the last one's drain."""
    board = Board(LOAD, 2, 0.5, False)
    for worker in (0, 1):
        board.beat({"worker": worker, "phase": "ready"})
    done = [(0, 2 * S, "ok"), *((int(t * S), int((t + 2.5) * S), "ok") for t in (0.1, 0.2, 2.5))]
    assert board.beat(beat(0, 3, first_round_ns=S, ends=done))["window"] is None
    assert board.beat(beat(1, 3, first_round_ns=2 * S))["window"] == [2 * S, 2 * S + int(2.5 * S)]
    assert board.look()["phase"] == "window"
    assert board.beat(beat(0, 6, first_round_ns=S, drained=True))["go"] is True
    assert board.look()["phase"] == "drain"
    assert board.beat(beat(1, 6, first_round_ns=2 * S, drained=True))["go"] is False
    assert board.look()["reason"] == "every request sent in the window has ended"


def test_a_long_window_costs_nothing() -> None:
    """Once the window is known the board keeps sums of what ends, no ends: a run of hours has millions."""
    board = Board(Load(kind="closed", concurrency=4, window_s=7200.0), 1, 0.0, False)
    board.beat({"worker": 0, "phase": "ready"})
    sizes = []
    for second in range(1, 200):
        ends = [(second * S + place, second * S + S + place, "ok") for place in range(10)]
        board.beat(beat(0, second, first_round_ns=S, ends=ends if second % 2 else []))
        sizes.append(len(repr(vars(board))))
    assert sizes[-1] < sizes[10] + 100
    assert board.look()["duration_s"] == 1


def test_counted_ends_when_all_are_exhausted() -> None:
    """A counted Point has no window and ends with its last request."""
    board = Board(LOAD, 1, 0.0, True)
    board.beat({"worker": 0, "phase": "ready"})
    assert board.beat(beat(0, 1, first_round_ns=S))["go"] is True
    assert board.beat(beat(0, 2, first_round_ns=S, exhausted=True))["go"] is False
    assert board.look()["window"] is None


def test_stop_keeps_its_first_reason_and_counts_add_up() -> None:
    """The first reason stands; counts are sums over workers, tokens a second from reads and tokens a read."""
    board = Board(LOAD, 2, 0.0, False)
    for worker in (0, 1):
        board.beat({"worker": worker, "phase": "ready"})
        board.beat(beat(worker, 1, health=[{"row": worker}]))
        board.beat(beat(worker, 2))
    board.stop("interrupted")
    board.stop("later")
    look = board.look()
    assert (look["reason"], look["sent"], look["in_flight"], look["tokens_per_s"]) == ("interrupted", 8, 4, 400.0)
    assert [row["row"] for row in look["health"]] == [0, 1]
    assert board.look()["health"] == []
    assert board.beat(beat(0, 3))["go"] is False


def test_done_workers_are_not_silent() -> None:
    """A worker that said goodbye is not missed."""
    board = Board(LOAD, 2, 0.0, False)
    board.beat(beat(0, 1, phase="done"))
    assert set(board.look()["silent_s"]) == {1}


OPEN = Load(kind="open", rate=10, window_s=10.0)
ENDS = [(0, S, "ok"), (S // 2, 3 * S // 2, "ok")]


def opened() -> Board:
    """A board of an open loop whose window, from 1 s to 11 s, is known and begins with 10 requests in flight."""
    board = Board(OPEN, 1, 0.5, False)
    board.beat({"worker": 0, "phase": "ready"})
    assert board.beat(beat(0, 1.5, sent=15, in_flight=10, ends=ENDS))["window"] == [S, 11 * S]
    return board


def test_an_open_window_is_waited_for_within_bounds() -> None:
    """Its last requests get twice the longest duration and 5 s; what ended is ended at once."""
    board = opened()
    assert board.beat(beat(0, 12, sent=120, in_flight=12))["go"] is True
    assert board.beat(beat(0, 17.9, sent=180, in_flight=12))["go"] is True
    assert board.beat(beat(0, 18.1, sent=181, in_flight=12))["go"] is False
    assert board.look()["reason"] == "requests sent in the window had not ended 7 s after it"
    board = opened()
    assert board.beat(beat(0, 12, sent=120, in_flight=12, drained=True))["go"] is False


def test_a_pile_is_not_waited_for() -> None:
    """Most of what was sent in the window is still in flight at its end: the Point is over."""
    board = opened()
    assert board.beat(beat(0, 10.9, sent=110, in_flight=70))["go"] is True
    assert board.beat(beat(0, 11.1, sent=115, in_flight=75))["go"] is False
    assert "piled up" in board.look()["reason"]


def test_boards_follow_each_other_on_the_wall() -> None:
    """Who reports to an earlier board, or to none, is stopped and changes nothing."""
    wall, ready = Wall(), {"worker": 0, "phase": "ready"}
    assert wall.beat("a", ready)["go"] is False
    wall.hang("a", LOAD, 1, 0.0, True)
    assert wall.beat("a", ready)["start_utc_ns"] is not None
    assert wall.beat("a", beat(0, 1))["go"] is True
    assert wall.look("a")["finished"] == 2
    wall.hang("b", LOAD, 1, 0.0, True)
    assert wall.beat("a", beat(0, 2))["go"] is False
    assert (wall.look("b")["finished"], wall.look("b")["phase"]) == (0, "workers starting")
    wall.beat("b", ready)
    wall.stop("b", "enough")
    assert wall.beat("b", beat(0, 1))["go"] is False
    assert wall.look("b")["reason"] == "enough"
