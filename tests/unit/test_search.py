"""Which levels a search measures next, and how it ends, on made-up results with known answers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from points import point

from loadgen import comparison, pairing, search
from loadgen.config import Level
from loadgen.objectives import Standing
from loadgen.paired import Crossover
from loadgen.search import Ended, Go, Seen, answer, around, edge, next_level

LADDER = (1, 4, 16, 64)
Ratio = Callable[[float], float]


def rises(at: float, steep: float = 0.05) -> Ratio:
    """A variant that passes the baseline at `at`, by so much an octave."""
    return lambda level: math.exp(steep * math.log2(level / at))


def searched(
    ratio: Ratio, noise: float = 0.0, ladder: tuple[int, ...] = LADDER, blocks_max: int = 8, seed: int = 0
) -> tuple[Ended | None, list[tuple[int, ...]]]:
    """A whole crossover search: how it ended (None: the budget did) and each block's levels."""
    rng, points, at, asked = np.random.default_rng(seed), list[dict[str, Any]](), ladder, list[tuple[int, ...]]()
    contest: comparison.Contest | None = None
    for block in range(blocks_max):
        asked.append(at)
        for level in at:
            points.append(point("baseline", level, 100.0, block=block))
            points.append(point("chain", level, 100 * ratio(level) * math.exp(rng.normal(0, noise)), block=block))
        before = contest
        (contest,) = comparison.contests(points, lambda _: {}, pairing.labels(points, ()), "baseline")
        step = search.crossover(contest, "chain", 1.5, before)
        if isinstance(step, Ended):
            return step, asked
        at = step.levels
    return None, asked


@pytest.mark.parametrize("at", [1.5, 3.0, 11.0, 40.0])
def test_a_clean_crossover_takes_four_blocks_of_it(at: int) -> None:
    """The ladder, then blocks of at most three levels around the estimate, which holds the truth."""
    ended, blocks = searched(rises(at), noise=0.003)
    assert ended
    assert "narrower than a factor of 1.5" in ended.why
    assert blocks[0] == LADDER
    assert 4 <= len(blocks) <= 8
    assert all(len(levels) <= 3 for levels in blocks[1:])
    low, high = map(float, ended.why.split("[")[1].split("]")[0].split(", "))
    assert low <= high <= 1.5 * low * 1.01
    assert 0.85 * low < at < 1.15 * high


def test_a_falling_crossover_is_found_too() -> None:
    """A variant that is better at few streams only."""
    ended, _ = searched(rises(12, steep=-0.1), noise=0.002)
    assert ended
    assert "chain is better than baseline below 1" in ended.why


def test_noise_ends_by_the_budget_or_by_words() -> None:
    """Blocks that scatter by more than the curve rises never give a narrow answer by luck alone."""
    ends = [searched(rises(12, steep=0.01), noise=0.05, seed=seed)[0] for seed in range(40)]
    narrow = [one for one in ends if one and "narrower" in one.why]
    assert len(narrow) <= 4
    assert all(one is None or one.why for one in ends)


@pytest.mark.parametrize(
    ("ratio", "blocks", "said"),
    [
        (0.6, 1, "worse from 1 to 64 (closest 0.600 x at 1, 1 block): a crossover, if there is one, lies above 64"),
        (1.4, 1, "better from 1 to 64 (closest 1.400 x at 1, 1 block): there is no crossover in between"),
        (0.95, 3, "worse from 1 to 64 (closest 0.950 x at 1, 3 blocks): a crossover, if there is one, lies above 64"),
    ],
)
def test_always_better_and_always_worse(ratio: float, blocks: int, said: str) -> None:
    """Told after one block where it is far from a crossover, after three around its closest level where it is near."""
    ended, levels = searched(lambda _: ratio)
    assert ended
    assert ended.why == f"chain is {said}"
    assert levels == [LADDER, (1, 4), (1, 4)][:blocks]


def test_the_same_is_no_crossover() -> None:
    """Worse, and then not better but the same."""
    ended, levels = searched(lambda level: 0.8 if level < 10 else 1.001)
    assert ended
    told = "worse at 1, 4, same at 16, 64 (closest 1.001 x at 16, 3 blocks)"
    assert ended.why == f"chain has no crossover from 1 to 64: {told}"
    assert levels == [LADDER, (4, 16, 64), (4, 16, 64)]


def test_noise_in_the_first_block_does_not_end_a_search() -> None:
    """What was worse everywhere by chance is measured again; the block that never crossed leaves only a bound."""
    points: list[dict[str, Any]] = []
    at, steps = (1, 16), list[Go | Ended]()
    for block, lost in enumerate((0.06, *[0.0] * 7)):  # of the chain's throughput in this block
        for level in at:
            points.append(point("baseline", level, 100.0, block=block))
            points.append(point("chain", level, 100 * rises(6, 0.03)(level) * (1 - lost), block=block))
        (contest,) = comparison.contests(points, lambda _: {}, pairing.labels(points, ()), "baseline")
        steps.append(search.crossover(contest, "chain", 1.5))
        if isinstance(steps[-1], Ended):
            break
        at = steps[-1].levels
    assert isinstance(steps[0], Go)
    assert steps[0].levels == (1, 16)
    assert "between 1 and 16; only 5 of 6 blocks cross there, so no single number" in steps[-1].why


def test_a_double_crossing_is_told_when_three_blocks_saw_it() -> None:
    """The levels concerned are measured again before it is said that no single number tells."""
    ended, blocks = searched(lambda level: 1.2 if 4 <= level < 60 else 0.8, noise=0.002)
    assert ended
    assert "crosses baseline 2 times, between 1 and 4 and between 16 and 64: no single number" in ended.why
    assert blocks == [LADDER, LADDER, LADDER]


def test_blocks_that_do_not_cross_leave_a_bound() -> None:
    """Two blocks of which one does not cross get another one; of five that stays so, and only the levels bound it."""
    assert crossing_of([0.8, 1.001]) == Go((1, 4, 16), "chain is better than baseline above a level between 1 and 16")
    ended = crossing_of([0.8, 0.8, 0.8, 0.8, 1.001])
    assert isinstance(ended, Ended)
    assert ended.why == ("chain passes baseline between 1 and 16; only 4 of 5 blocks cross there, so no single number")


def crossing_of(at_one: list[float]) -> Go | Ended:
    """The step after blocks with these ratios at one stream, and 1.2 at 16."""
    points = []
    for block, ratio in enumerate(at_one):
        points += [point("baseline", level, 100.0, block=block) for level in (1, 16)]
        points += [point("chain", level, 100 * value, block=block) for level, value in ((1, ratio), (16, 1.2))]
    (contest,) = comparison.contests(points, lambda _: {}, pairing.labels(points, ()), "baseline")
    return search.crossover(contest, "chain", 1.5)


def test_nothing_measured() -> None:
    """A variant without a VALID Point beside the baseline's."""
    points = [point("baseline", 1, 100.0), point("baseline", 4, 100.0), point("chain", 16, 100.0)]
    (contest,) = comparison.contests(points, lambda _: {}, pairing.labels(points, ()), "baseline")
    assert search.crossover(contest, "chain", 1.5) == Ended("nothing VALID of both chain and baseline")
    assert search.crossover(contest, "tree", 1.5) == Ended("nothing VALID of both tree and baseline")


@pytest.mark.parametrize(
    ("between", "at", "measured", "levels"),
    [
        ((1, 30), 9.2, (1, 30), (1, 9, 30)),
        ((1, 30), 9.2, (1, 9, 30), (1, 10, 30)),  # one that was not measured
        ((1, 40), None, (1, 40), (1, 6, 40)),  # the middle, where the blocks gave no estimate
        ((1, 2), 1.4, (1, 2), (1, 2)),  # nothing in between
        ((2, 4), 3.9, (2, 3, 4), (2, 3, 4)),  # all measured: the nearest again
        ((1, 3), 1.1, (1, 3), (1, 2, 3)),  # beyond the factor, but the only one
    ],
)
def test_levels_around_an_estimate(
    between: tuple[int, int], at: float | None, measured: tuple[int, ...], levels: tuple[int, ...]
) -> None:
    """Both ends and a whole number at the estimate."""
    assert around(Crossover(True, between, at, None, 1, 1), measured, 1.5) == levels


# --- slo ---


def climbed(keeps: Callable[[float], bool], ladder: list[Level], factor: float = 1.1) -> list[Seen]:
    """A whole search for the largest level that `keeps`."""
    seen: list[Seen] = []
    while (level := next_level(ladder, seen, factor)) is not None:
        place = pairing.place_of(level)
        assert place not in [pairing.place_of(one.level) for one in seen], "measured twice"
        assert len(seen) < 40
        seen.append(Seen(level, "VALID", Standing(keeps(place), True, f"0 of {place:g}"), goodput=place / 10))
    return seen


def closed(*levels: int) -> list[Level]:
    return [Level(level, None) for level in levels]


@pytest.mark.parametrize("most", range(1, 64))
def test_the_largest_level_is_found(most: int) -> None:
    """Up the ladder, then the geometric middle: within the factor, or the next whole number is missed."""
    seen = climbed(lambda level: level <= most, closed(64, 1, 4, 16))
    kept, missed = edge(seen)
    assert kept
    assert missed
    low, high = kept.level.concurrency or 0, missed.level.concurrency or 0
    assert low <= most < high
    assert high <= 1.1 * low or high == low + 1
    assert [one.level.concurrency for one in seen][:2] == ([1, 4] if most < 64 else [])
    assert len(seen) <= 4 + 6


def test_rates_have_three_digits_and_no_whole_numbers() -> None:
    """The same by requests a second."""
    seen = climbed(lambda rate: rate <= 3.3, [Level(None, None, rate) for rate in (1.0, 2.0, 4.0)])
    kept, missed = edge(seen)
    assert kept
    assert missed
    assert kept.level.rate
    assert missed.level.rate
    assert kept.level.rate <= 3.3 < missed.level.rate <= 1.1 * kept.level.rate
    assert all(one.level.rate == float(f"{one.level.rate:.3g}") for one in seen)


def test_never_kept_and_always_kept() -> None:
    """The lowest level decides the one, the highest the other; nothing is made up beyond the ladder."""
    never, always = climbed(lambda _: False, closed(4, 16)), climbed(lambda _: True, closed(4, 16))
    assert [one.level.concurrency for one in never] == [4]
    assert answer("baseline", "X", never, "") == (
        "baseline does not keep X at concurrency 4, the lowest level (missed at 4: 0 of 4)"
    )
    assert [one.level.concurrency for one in always] == [4, 16]
    told = answer("baseline", "X", always, "")
    assert told.startswith("baseline keeps X up to concurrency 16, the highest level: give higher ones")
    assert told.endswith("goodput 1.60 requests/s")


def test_noise_counts_by_the_lowest_miss() -> None:
    """A higher level that was kept by luck lifts nothing above a lower one that was missed."""
    seen = [
        Seen(Level(level, None), "VALID", Standing(kept, False, "1 of 50 requests over"))
        for level, kept in ((1, True), (4, True), (16, False), (64, True))
    ]
    kept, missed = edge(seen)
    assert kept
    assert missed
    assert (kept.level.concurrency, missed.level.concurrency) == (4, 16)
    assert next_level(closed(1, 4, 16, 64), seen, 1.1) == Level(8, None)
    told = answer("baseline", "X", seen, "16 levels were measured (load.search_points_max)")
    assert told == (
        "baseline keeps X up to concurrency 4 (missed at 16: 1 of 50 requests over, not proven), not narrowed further: "
        "16 levels were measured (load.search_points_max); not proven: 1 of 50 requests over"
    )


def test_a_gap_is_measured_first() -> None:
    """What is missing of the ladder, as after an interruption, comes before what lies above it."""
    seen = [Seen(Level(level, 64), "VALID", Standing(True, True, "")) for level in (1, 16)]
    assert next_level([Level(level, 64) for level in (1, 4, 16)], seen, 1.1) == Level(4, 64)


def test_what_is_not_valid_counts_as_missed_and_says_so() -> None:
    """Nobody has shown that it is kept."""
    bad = Seen(Level(16, None), "INVALID, loop lag p99 9 ms (limit 5 ms)", None)
    seen = [Seen(Level(4, None), "VALID", Standing(True, True, ""), 2.0), bad]
    assert next_level(closed(4, 16), seen, 1.1) == Level(8, None)
    told = answer("baseline", "X", [*seen, Seen(Level(15, None), "VALID", Standing(True, True, ""), 2.5)], "")
    assert told == (
        "baseline keeps X up to concurrency 15 (16 counts as missed: INVALID, loop lag p99 9 ms (limit 5 ms)), "
        "goodput 2.50 requests/s"
    )
    assert answer("baseline", "X", [bad], "").startswith("baseline has no answer: concurrency 16 is INVALID, loop")
    assert answer("baseline", "X", [], "10 s are over") == "baseline was not measured: 10 s are over"


def test_steps_are_words_for_the_one_who_waits() -> None:
    """What is known so far, with its blocks."""
    points = [point(name, level, 100 * share) for name, share in (("baseline", 1), ("chain", 0)) for level in (1, 16)]
    points[2]["summary"]["output_tokens_per_s"], points[3]["summary"]["output_tokens_per_s"] = 80.0, 125.0
    (contest,) = comparison.contests(points, lambda _: {}, pairing.labels(points, ()), "baseline")
    assert search.crossover(contest, "chain", 1.5) == Go(
        (1, 4, 16), "chain is better than baseline above 4.00 (1 block)"
    )
