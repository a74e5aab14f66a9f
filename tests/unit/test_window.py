"""Windows: when the steady part begins and ends, and what a level is expected to take."""

import pytest

from loadgen.config import Level, Load
from loadgen.window import (
    Crowd,
    Durations,
    End,
    Expected,
    Measured,
    drain_ns_max,
    expect,
    expect_at,
    find,
    find_open,
    hopeless,
    level_s,
    stagger_s,
)

S = 1_000_000_000
LOAD = Load(kind="closed", concurrency=4)
OPEN = Load(kind="open", rate=6)


def ends(count: int, every_s: float, duration_s: float = 1.0, first_s: float = 1.0) -> list[End]:
    return [
        End(int((first_s + i * every_s - duration_s) * S), int((first_s + i * every_s) * S), True) for i in range(count)
    ]


def test_no_window_before_the_first_round() -> None:
    """Every stream has to have finished one request, and enough have to have finished since."""
    assert find(LOAD, S, None, ends(100, 0.1)) is None
    assert find(LOAD, S, 2 * S, ends(20, 0.1)) is None


def test_the_longest_of_three() -> None:
    """The window is the longest of one duration, 24 finished requests and 5 seconds, and says which."""
    fast = find(LOAD, S, 2 * S, ends(70, 0.1))
    assert fast is not None
    assert (fast.start_ns, fast.end_ns) == (2 * S, 7 * S)
    assert "load.window_min_s=5" in fast.how
    few = find(LOAD, S, 2 * S, ends(30, 1.0))
    assert few is not None
    assert few.end_ns == 26 * S + 1
    assert "24 finished requests" in few.how
    long = find(LOAD, S, 20 * S, ends(300, 0.2, duration_s=20.0, first_s=20.0))
    assert long is not None
    assert long.end_ns - long.start_ns == 20 * S
    assert "1 request duration(s) of 20.00 s" in long.how


def test_the_duration_is_that_of_the_window() -> None:
    """Requests of the ramp ran beside fewer others: the window waits until it has seen requests of its own length."""
    ramp, own = ends(40, 0.1, duration_s=2.0, first_s=6.0), ends(100, 0.1, duration_s=8.0, first_s=10.1)
    assert find(LOAD, S, 10 * S, [*ramp, *own[:30]]) is None
    found = find(LOAD, S, 10 * S, [*ramp, *own])
    assert found is not None
    assert found.end_ns - found.start_ns == 8 * S


def test_stagger_holds_the_start_back() -> None:
    """The window does not begin while first requests are still being spread."""
    found = find(LOAD, 9 * S, 2 * S, ends(200, 0.1))
    assert found is not None
    assert found.start_ns == 9 * S


def test_window_s_is_known_at_once() -> None:
    """A fixed length needs nothing but the first round."""
    found = find(Load(kind="closed", concurrency=4, window_s=3.0), 0, S, ends(4, 0.1))
    assert found is not None
    assert found.end_ns - found.start_ns == 3 * S


def test_open_loop_begins_after_one_duration() -> None:
    """After the longer of what was expected and what was seen; half a minute long, unless asked otherwise."""
    seen = Durations().after(ends(4, 0.5, duration_s=1.0))
    assert find_open(OPEN, 2 * S, Durations(), 9 * S) is None
    assert find_open(OPEN, 2 * S, seen, 2 * S - 1) is None
    found = find_open(OPEN, 2 * S, seen, 3 * S)
    assert found is not None
    assert (found.start_ns, found.end_ns) == (2 * S, 32 * S)
    slow = find_open(Load(kind="open", rate=6, window_s=5.0), 2 * S, Durations().after(ends(4, 0.5, 4.0, 4.0)), 4 * S)
    assert slow is not None
    assert (slow.start_ns, slow.end_ns) == (4 * S, 9 * S)
    assert "one request duration of 4.00 s" in slow.how


def test_a_backlog_is_not_waited_for() -> None:
    """The last requests of an open window get twice the longest duration so far, and some seconds."""
    assert drain_ns_max(Durations().after(ends(3, 1.0, 1.0)).after(ends(1, 1.0, 4.0))) == 13 * S
    assert hopeless(Crowd(50, 40), Crowd(650, 260))
    assert not hopeless(Crowd(50, 40), Crowd(650, 190))  # a share that chance may reach
    assert not hopeless(Crowd(5, 4), Crowd(23, 14))  # a number that chance may reach


def test_mean_duration_prefers_the_good() -> None:
    """Failed requests do not shorten the expected duration, unless there are no others."""
    known = Durations().after([End(0, 4 * S, True), End(0, 1, False)]).after([End(0, 2 * S, True)])
    assert (known.count, known.mean_ns) == (3, 3 * S)
    assert Durations().after([End(0, 4, False)]).mean_ns == 4


def test_expected_duration() -> None:
    """The warm-up's first; then in proportion to the concurrency where throughput was flat, not where it grew."""
    assert expect(8, 2.0, []) == Expected(2.0, "the warm-up's duration times 1.00")
    assert expect(32, 2.0, []).duration_s == pytest.approx(4.0)
    assert expect(2, 9.0, [Measured(1, 0.5)]).duration_s == pytest.approx(1.0)
    flat = [Measured(10, 1.0), Measured(20, 2.0)]
    assert expect(50, 9.0, flat).duration_s == pytest.approx(5.0)
    assert expect(1, 9.0, flat).duration_s == pytest.approx(0.1)
    growing = [Measured(10, 1.0), Measured(20, 1.0)]
    assert expect(40, 9.0, growing).duration_s == pytest.approx(1.0)
    between = [Measured(1, 1.0), Measured(4, 2.0)]
    assert expect(16, 9.0, between).duration_s == pytest.approx(4.0)
    same = [Measured(4, 1.0), Measured(4, 2.0)]
    assert expect(4, 9.0, same).duration_s == pytest.approx(2.0)
    assert (expect_at(None, 3.0, []).duration_s, expect_at(None, 3.0, same).duration_s) == (3.0, 2.0)
    assert expect(50, 9.0, [*flat, Measured(20, 2.0)]).duration_s == pytest.approx(5.0)
    assert expect(20, 9.0, [Measured(20, 2.0)] * 3).duration_s == pytest.approx(2.0)
    falling = [Measured(20, 2.0), Measured(10, 1.0)]
    assert expect(50, 9.0, falling).duration_s == pytest.approx(5.0)


def test_expected_length_of_a_level() -> None:
    """Stagger, one request a stream, window, drain; a counted level has no window."""
    assert level_s(LOAD, Level(1, None), 0.5) == pytest.approx(0.5 + 12.0 + 0.5)
    assert level_s(LOAD, Level(100, None), 8.0) == pytest.approx(8 * 4)
    assert level_s(LOAD, Level(1, 10), 0.5) == pytest.approx(5.0)
    assert level_s(OPEN, Level(None, None, 6.0), 2.0) == pytest.approx(2 + 30 + 2)
    assert level_s(OPEN, Level(None, 60, 6.0), 2.0) == pytest.approx(10 + 2)
    assert stagger_s(LOAD, 1, Expected(3.0, "")) == 0
    assert stagger_s(LOAD, 2, Expected(3.0, "")) == 3.0
    assert stagger_s(Load(kind="closed", stagger_s=0.0), 2, Expected(3.0, "")) == 0
