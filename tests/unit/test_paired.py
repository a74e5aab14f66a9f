"""Statistics over blocks, on made-up studies whose truth is known."""

import numpy as np
import pytest

from loadgen import paired
from loadgen.paired import BETTER, SAME, TOO_FEW, UNDECIDED, WORSE, crossovers, ratio_of, word

STUDIES, BLOCKS = 4000, 5
BETWEEN, WITHIN = 0.03, 0.02  # spread of starts and of runs, as shares
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)
TRUE_CROSSING = 30.7


def studies(truth: np.ndarray, seed: int, blocks: int = BLOCKS) -> np.ndarray:
    """Logarithms of ratios of many studies: (studies, blocks, levels), around the true logarithms of `truth`."""
    rng = np.random.default_rng(seed)
    starts = rng.normal(0, BETWEEN, (STUDIES, blocks, 1))
    return truth + starts + rng.normal(0, WITHIN, (STUDIES, blocks, len(truth)))


def test_intervals_of_ratios_cover_the_truth() -> None:
    """Of 4,000 studies of five blocks 94 to 96 % hold the true ratio in their 95 % interval."""
    truth = np.log(1.1)
    held = [
        interval[0] <= 1.1 <= interval[1]
        for logs in studies(np.array([truth]), 1)[:, :, 0]
        if (interval := ratio_of(logs).interval)
    ]
    assert len(held) == STUDIES
    assert 0.94 <= np.mean(held) <= 0.96


@pytest.mark.parametrize("blocks", [3, 5])
def test_the_same_twice_is_seldom_different(blocks: int) -> None:
    """A/A: at most 6 % of pairs are called better or worse."""
    words = [word(ratio_of(logs)) for logs in studies(np.zeros(1), 2, blocks)[:, :, 0]]
    assert np.mean([one in (BETTER, WORSE) for one in words]) <= 0.06
    assert {BETTER, WORSE, UNDECIDED} <= set(words)


def test_crossovers_cover_the_truth() -> None:
    """From 0.8 x at one stream to 1.1 x at 128: 92 % or more of the intervals hold the true crossing."""
    octaves = np.log2(LEVELS)
    truth = np.log(0.8) * (1 - octaves / np.log2(TRUE_CROSSING))
    held, told = [], 0
    for logs in studies(truth, 3):
        words = [word(ratio_of(column)) for column in logs.T]
        found = crossovers(LEVELS, words, logs)
        told += bool(found)
        assert len(found) <= 1
        held += [one.interval[0] <= TRUE_CROSSING <= one.interval[1] for one in found if one.interval]
    assert told > 0.6 * STUDIES
    assert len(held) > 0.5 * STUDIES
    assert np.mean(held) >= 0.92


def test_one_block_has_no_word_and_no_interval_across_starts() -> None:
    """What the two runs tell of themselves is labelled so; without it there is nothing."""
    alone = ratio_of([np.log(1.3)], within=(1.28, 1.32))
    assert (alone.interval, alone.scope, alone.blocks, alone.p) == ((1.28, 1.32), "within run", 1, None)
    assert word(alone) == TOO_FEW
    assert ratio_of([0.1]).interval is None


def test_same_is_proven_and_never_assumed() -> None:
    """A wide interval around 1 is undecided; a tight one is the same although it does not hold 1."""
    assert word(ratio_of([0.05, -0.05, 0.04])) == UNDECIDED
    assert word(ratio_of([0.0051, 0.0049, 0.0050])) == SAME
    assert word(ratio_of([0.0051, 0.0049, 0.0050], margin=0.003)) == BETTER


def test_smaller_may_be_better() -> None:
    """Of latencies."""
    assert word(ratio_of([0.1, 0.11, 0.09]), larger_is_better=False) == WORSE
    assert word(ratio_of([-0.1, -0.11, -0.09]), larger_is_better=False) == BETTER


def test_blocks_that_agree_to_the_last_digit() -> None:
    """No spread is no error: the interval is a point, and a difference is certain."""
    assert ratio_of([0.5, 0.5, 0.5]).p == 0
    assert ratio_of([0.0, 0.0, 0.0]).p == 1
    assert word(ratio_of([0.0, 0.0, 0.0])) == SAME


def rows(*values: tuple[float, ...]) -> np.ndarray:
    return np.array(values, float)


def test_a_crossing_lies_between_levels_that_differ() -> None:
    """A level that is the same or undecided is no sign change, and the crossing is looked for beyond it."""
    logs = rows((-0.2, -0.01, 0.2), (-0.2, 0.0, 0.2), (-0.2, 0.01, 0.2))
    (one,) = crossovers((1, 10, 100), (WORSE, UNDECIDED, BETTER), logs)
    assert (one.rises, one.between, one.crossing, one.blocks) == (True, (1, 100), 3, 3)
    assert one.at == pytest.approx(10, rel=0.02)
    assert one.interval is not None
    assert one.interval[0] < one.at < one.interval[1]
    assert crossovers((1, 10, 100), (WORSE, SAME, UNDECIDED), logs) == []


def test_levels_in_any_order() -> None:
    """A grid's levels come as they were typed."""
    (one,) = crossovers((100, 1), (BETTER, WORSE), rows((0.1, -0.1)))
    assert (one.rises, one.between) == (True, (1, 100))
    assert one.at == pytest.approx(10)
    assert one.interval is None


def test_two_sign_changes_are_told_as_two() -> None:
    """Better in the middle only."""
    found = crossovers((1, 10, 100), (WORSE, BETTER, WORSE), rows((-0.1, 0.1, -0.1), (-0.1, 0.1, -0.1)))
    assert [(one.rises, one.between) for one in found] == [(True, (1, 10)), (False, (10, 100))]


def test_a_block_that_does_not_cross_leaves_only_bounds() -> None:
    """Two of three blocks cross between the levels: no number."""
    logs = rows((-0.2, 0.2), (-0.2, 0.2), (0.01, 0.3))
    (one,) = crossovers((1, 10), (WORSE, BETTER), logs)
    assert (one.at, one.interval, one.crossing, one.blocks) == (None, None, 2, 3)


def test_a_missing_level_of_a_block_is_passed_over() -> None:
    """A Point that was INVALID leaves its block out, or only its own place within it."""
    logs = rows((-0.2, np.nan, 0.2), (-0.2, 0.0, np.nan))
    (one,) = crossovers((1, 10, 100), (WORSE, UNDECIDED, BETTER), logs)
    assert (one.crossing, one.blocks) == (1, 1)


def test_holm_lets_fewer_stand_than_each_for_itself() -> None:
    """0.03 stands alone, and not beside three others."""
    assert paired.holm({"a": 0.03}) == {"a"}
    assert paired.holm({"a": 0.001, "b": 0.02, "c": 0.03, "d": 0.9}) == {"a"}
    assert paired.holm({"a": 0.001, "b": 0.002, "c": 0.003, "d": 0.04}) == {"a", "b", "c", "d"}


def test_a_guess_counts_for_nothing_beside_many_blocks() -> None:
    """One block tells a side only while no level has more; three are enough whatever the others have."""
    nan = np.nan
    assert paired.glances(np.log([[0.9, 1.2]]), 0.02) == [WORSE, BETTER]
    assert paired.glances(np.log([[0.9, 1.2], [0.9, nan]]), 0.02) == [WORSE, UNDECIDED]
    logs = np.log([[0.90, 1.20, nan], [0.91, 1.21, 1.1], [0.90, 1.20, 1.1], [nan, 1.22, nan], [nan, 1.2, nan]])
    assert paired.glances(logs, 0.02) == [WORSE, BETTER, UNDECIDED]
    assert paired.glances(np.zeros((0, 0)), 0.02) == []
    assert paired.glances(np.full((1, 2), nan), 0.02) == [UNDECIDED, UNDECIDED]


def test_a_figure_of_nothing_has_no_logarithm() -> None:
    """The mean of what there is, without an interval."""
    value = paired.mean_of([0.0, 4.0])
    assert (value.value, value.interval, value.blocks) == (2.0, None, 2)
