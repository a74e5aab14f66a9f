"""Statistics over blocks: ratios of pairs with their intervals, equivalence, crossovers.

Pure: numbers in, numbers out; knows nothing of variants or files. A block is one start of every server, so what is
said here holds for other starts too; what one start alone says is labelled so. Formulas: Student's t of the logarithms
of ratios (Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time"); two one-sided tests (Schuirmann 1987);
Holm (1979). Intervals are (low, high).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import stdtr, stdtrit

from loadgen.stats import LEVEL, Interval, mean_interval

BETTER, WORSE, SAME, UNDECIDED, TOO_FEW = "better", "worse", "same", "undecided", "too few blocks"
MARGIN = 0.02  # a smaller difference is none, unless told otherwise
LOOK_BLOCKS = 3  # fewer say nothing
CLAIM_BLOCKS = 5  # fewer are a look
# What an interval speaks about: other starts of the servers, or this one start alone.
ACROSS, WITHIN = "across starts", "within run"


@dataclass(frozen=True)
class Estimate:
    """A figure or a ratio, its 95 % interval where it has one, what that speaks about, of how many blocks.

    `p` is the two-sided probability of such a ratio where there is no difference; `same` whether it is proven to lie
    within the margin.
    """

    value: float
    interval: Interval | None
    scope: str | None
    blocks: int
    p: float | None = None
    same: bool = False


def mean_of(values: Sequence[float], within: Interval | None = None) -> Estimate:
    """The geometric mean of positive figures, one a block. `within` is the interval of the only one's own run.

    With a figure of 0 among them it is the arithmetic mean, without an interval.
    """
    if min(values) <= 0:
        return Estimate(float(np.mean(values)), None, None, len(values))
    logs = np.log(np.asarray(values, float))
    interval = mean_interval(logs)
    if interval is None:
        return Estimate(float(values[0]), within, WITHIN if within else None, len(logs))
    return Estimate(float(np.exp(logs.mean())), _exp(interval), ACROSS, len(logs))


def ratio_of(logs: Sequence[float], margin: float = MARGIN, within: Interval | None = None) -> Estimate:
    """The ratio that these logarithms of ratios, one a block, tell of; `within` as above, of the ratio itself."""
    known = np.asarray(logs, float)
    found = mean_of(np.exp(known), within)
    if len(known) < 2:
        return found
    mean, error = float(known.mean()), _standard_error(known)
    p = float(2 * stdtr(len(known) - 1, -abs(mean) / error)) if error else float(mean == 0)
    return replace(found, p=p, same=equivalent(known, margin))


def _exp(interval: Interval) -> Interval:
    return math.exp(interval[0]), math.exp(interval[1])


def _standard_error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def equivalent(logs: np.ndarray, margin: float) -> bool:
    """Two one-sided tests: the mean of these logarithms lies within +- log(1 + margin), each at 95 %."""
    if len(logs) < 2:
        return False
    bound = float(np.log1p(margin))
    reach = float(stdtrit(len(logs) - 1, LEVEL)) * _standard_error(logs)
    return -bound < logs.mean() - reach and logs.mean() + reach < bound


def within_ratio(ours: Interval | None, theirs: Interval | None, value: float) -> Interval | None:
    """The interval of a ratio of two figures by their own within-run intervals, each taken as mean +- half width."""
    if not ours or not theirs or min(*ours, *theirs) <= 0:
        return None
    halves = [(high - low) / (high + low) for low, high in (ours, theirs)]
    spread = math.hypot(*halves)
    return value * math.exp(-spread), value * math.exp(spread)


def word(ratio: Estimate, larger_is_better: bool = True) -> str:
    """What a row may say of itself, by its own interval: same before better, since a margin was stated."""
    if ratio.blocks < LOOK_BLOCKS or ratio.interval is None:
        return TOO_FEW
    if ratio.same:
        return SAME
    low, high = ratio.interval
    if low > 1 or high < 1:
        return BETTER if (low > 1) == larger_is_better else WORSE
    return UNDECIDED


def glance(ratio: Estimate, margin: float, larger_is_better: bool = True) -> str:
    """The word where it has one, else which side of the margin a ratio of too few blocks lies on: a guess."""
    said = word(ratio, larger_is_better)
    if said != TOO_FEW:
        return said
    if abs(np.log(ratio.value)) <= np.log1p(margin):
        return UNDECIDED
    return BETTER if (ratio.value > 1) == larger_is_better else WORSE


def weight(blocks: int) -> str:
    """How much so many blocks may carry: a guess, a look or a claim."""
    told = "a claim" if blocks >= CLAIM_BLOCKS else "a look" if blocks >= LOOK_BLOCKS else "a guess"
    return f"{blocks} block{'' if blocks == 1 else 's'}: {told}"


def glances(logs: np.ndarray, margin: float) -> list[str]:
    """A word for each level, by logarithms of ratios: a row a block and a column a level, NaN where there is none.

    Beside levels of many blocks a guess of one or two counts for nothing.
    """
    columns = [column[~np.isnan(column)] for column in logs.T]
    least = min(LOOK_BLOCKS, max(map(len, columns), default=1))
    return [glance(ratio_of(some, margin), margin) if len(some) >= max(1, least) else UNDECIDED for some in columns]


def holm(ps: Mapping[str, float]) -> set[str]:
    """Which of several differences stand together: Holm's step-down test at 5 % for all of them."""
    ordered = sorted(ps, key=lambda name: ps[name])
    stand: set[str] = set()
    for place, name in enumerate(ordered):
        if ps[name] > (1 - LEVEL) / (len(ordered) - place):
            break
        stand.add(name)
    return stand


@dataclass(frozen=True)
class Crossover:
    """Where a ratio passes 1 between two levels: above it the variant is better (`rises`) or worse.

    `between` are the levels with the words on either side. `at` and `interval` are None where fewer than all blocks
    cross there (`crossing` of `blocks`) and only the two levels bound it; `interval` also for fewer than three.
    """

    rises: bool
    between: Interval
    at: float | None
    interval: Interval | None
    crossing: int
    blocks: int


def crossovers(levels: Sequence[float], words: Sequence[str], logs: np.ndarray) -> list[Crossover]:
    """Every sign change between a level that is better and one that is worse, by rising level.

    `logs` has a row a block and a column a level, logarithms of ratios, NaN where there is none. In each block the
    crossing is interpolated in log2 of the level, the mean of the first and the last where noise makes several; then t
    over blocks.
    """
    order = np.argsort(levels)
    decided = [int(place) for place in order if words[place] in (BETTER, WORSE)]
    found = []
    for low, high in pairwise(decided):
        if words[low] == words[high]:
            continue
        inside = [place for place in order if levels[low] <= levels[place] <= levels[high]]
        known = [row[inside] for row in logs if not np.isnan(row[[low, high]]).any()]
        found.append(_crossover(np.array([levels[place] for place in inside]), known, words[high] == BETTER))
    return found


def _crossover(levels: np.ndarray, blocks: Sequence[np.ndarray], rises: bool) -> Crossover:
    between, octaves = (float(levels[0]), float(levels[-1])), np.log2(levels)
    places = [place for row in blocks if (place := _crossing(octaves, row if rises else -row)) is not None]
    if not places or len(places) < len(blocks):
        return Crossover(rises, between, None, None, len(places), len(blocks))
    at = float(2 ** np.mean(places))
    around = mean_interval(np.asarray(places)) if len(places) >= LOOK_BLOCKS else None
    interval = (2 ** around[0], 2 ** around[1]) if around else None
    return Crossover(rises, between, at, interval, len(places), len(blocks))


def _crossing(octaves: np.ndarray, values: np.ndarray) -> float | None:
    """Where a block's line rises through 0, the mean of the first and the last place; None where it does not."""
    known = ~np.isnan(values)
    x, y = octaves[known], values[known]
    if y[0] >= 0 or y[-1] <= 0:
        return None
    up = np.flatnonzero((y[:-1] < 0) & (y[1:] >= 0))
    places = x[up] - y[up] * (x[up + 1] - x[up]) / (y[up + 1] - y[up])
    return float((places[0] + places[-1]) / 2)
