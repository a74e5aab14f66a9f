"""How long a command still takes: its later runs by a profile, by a run of the same kind, or by the last of any."""

import pytest

from loadgen.config import Level, Load
from loadgen.forecast import Ahead, Ladder, Part, remembered, together_s
from loadgen.window import Measured

LEVELS = (Level(1, 10), Level(4, 40))
LOAD = Load(kind="closed", stagger_s=0.0)


def part(alike: str, starts: bool = True, known: float | None = None, levels: tuple[Level, ...] = LEVELS) -> Part:
    """A run whose requests take `known` seconds each, if that is known; ten of them after each other at each level."""
    return Part(alike, Ladder(LOAD, levels, None if known is None else lambda _: known), starts)


def test_later_runs_by_their_profile_and_starts_by_those_that_were() -> None:
    """Two ladders of 2 x 10 requests of 1 and 2 s, and the mean of the starts so far for each server."""
    ahead = Ahead([part("a", known=9.0), part("b", known=1.0), part("c", False, known=2.0)], [7.0, 9.0])
    assert ahead.after_s(0) == pytest.approx(20 + 40 + 8)
    assert ahead.after_s(1) == pytest.approx(40)
    assert ahead.after_s(2) == 0
    assert Ahead([part("a", known=1.0)]).after_s(0) is None, "a single run has its ladder only"


def test_without_a_profile_what_was_measured_tells() -> None:
    """Nothing at first; then a run of the same kind, and for one that was never measured the last of any kind."""
    ahead = Ahead([part("a"), part("b"), part("a", False)])
    assert ahead.after_s(0) is None
    ahead.remember(0, [Measured(1, 1.0), Measured(4, 3.0)])
    assert ahead.after_s(0) == pytest.approx(2 * (10 + 30))
    ahead.remember(1, [Measured(1, 2.0), Measured(4, 2.0)])
    assert ahead.after_s(1) == pytest.approx(10 + 30)
    assert ahead.ladder(2).left_s(0) == pytest.approx(10 + 30)
    assert ahead.ladder(2).left_s(1) == pytest.approx(30)


def test_what_is_there_already_takes_no_time_and_no_start() -> None:
    """A run without levels left, as after resume=true."""
    ahead = Ahead([part("a", known=1.0), part("b", levels=()), part("c", known=1.0, levels=LEVELS[:1])], [5.0])
    assert ahead.after_s(0) == pytest.approx(10 + 5)


def test_durations_between_and_above_the_levels() -> None:
    """A power law between them, as many times longer above as there are more streams, the lowest one's below."""
    known = remembered([Measured(4, 1.0), Measured(64, 4.0)])
    assert known is not None
    assert [known(c) for c in (1, 4, 16, 64, 128)] == pytest.approx([1, 1, 2, 4, 8])
    assert remembered([]) is None
    assert together_s([part("a", known=1.0).ladder, part("b").ladder]) is None
