"""Whether a series grows or drifts: pure, numbers in, words out. It must not know what was measured.

Memory is a staircase of allocators: what it does in one block of time stays in the next, so its noise is that of a
random walk, and one step says nothing. Figures return to their level, so their noise is the spread around a line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

# Of what is sampled: the first part is the ramp, first connections, and allocators that reach the level they keep.
WARM_UP_SHARE = 0.3
BLOCKS = 20
SURE = 0.999  # one side; some fifteen processes are judged in each soak
FLOOR = 0.2  # of a block's samples; the lowest one alone says less
NOISE_TIMES = 1.3  # floors of a random walk are smoother than the walk, and a line through it less sure than its ends


@dataclass(frozen=True)
class Trend:
    """The slope of a series a minute, and what chance may make of it (half width), beside the series' median."""

    per_min: float
    noise: float
    median: float

    def above(self, allowed: float) -> bool:
        """Whether it surely grows faster than this."""
        return self.per_min - self.noise > allowed


def settled(times_s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The series without its warm-up."""
    kept = times_s >= times_s[0] + WARM_UP_SHARE * (times_s[-1] - times_s[0])
    return times_s[kept], values[kept]


def blocks(times_s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """The floor of each of BLOCKS equal parts of the time (NaN without a sample), and the minutes of each part.

    What a leak has taken is there at every moment; what a process holds while it is behind with its work is not.
    """
    length_s = (times_s[-1] - times_s[0]) / BLOCKS
    number = np.minimum((times_s - times_s[0]) / length_s, BLOCKS - 1).astype(int)
    parts = [values[number == one] for one in range(BLOCKS)]
    return np.array([np.quantile(part, FLOOR) if len(part) else np.nan for part in parts]), length_s / 60


def theil_sen(values: np.ndarray) -> float:
    """The median of the slopes between all pairs of a series, for each step of it."""
    first, second = np.triu_indices(len(values), 1)
    return float(np.median((values[second] - values[first]) / (second - first)))


def growth(times_s: Sequence[float], values: Sequence[float]) -> Trend:
    """How fast something that keeps what it gets has grown since its warm-up.

    The slope is Theil and Sen's through the floors of the blocks, once the largest step between two of them is taken
    out: an allocator that takes one piece is no leak. Its noise is Student's t interval of the other steps.
    """
    level, minutes = blocks(*settled(np.asarray(times_s, float), np.asarray(values, float)))
    steps = np.diff(level)
    largest = int(np.argmax(np.abs(steps - np.median(steps))))
    others = np.delete(steps, largest)
    steps[largest] = np.median(others)
    slope = theil_sen(np.concatenate(([0.0], np.cumsum(steps)))) / minutes
    error = float(np.std(others, ddof=1)) / np.sqrt(len(others)) / minutes
    return Trend(slope, NOISE_TIMES * float(stdtrit(len(others) - 1, SURE)) * error, float(np.median(level)))


def drift(level: Sequence[float], minutes: float, beside: Sequence[Sequence[float]] = ()) -> Trend:
    """How fast a figure moves, given a value for each block of `minutes`, or NaN: least squares and its t interval.

    What follows series of the same blocks that stand `beside` it, the machine's own, is no move of the figure's.
    """
    series = [np.asarray(one, float) for one in (level, *beside)]
    all_of_it = np.vstack([series[0], *(one for one in series[1:] if not np.isnan(one).all())])
    told = ~np.isnan(all_of_it).any(axis=0)
    known, *others = all_of_it[:, told]
    at = np.flatnonzero(told) * minutes
    around = [one - one.mean() for one in (at, *others)]
    columns = np.column_stack([np.ones(len(known)), *(one / np.abs(one).max() for one in around if one.any())])
    factors = np.linalg.lstsq(columns, known, rcond=None)[0]
    left, free = known - columns @ factors, len(known) - columns.shape[1]
    error = float(np.sqrt((left**2).sum() / free * np.linalg.pinv(columns.T @ columns)[1, 1]))
    a_minute = 1 / float(np.abs(around[0]).max())
    return Trend(float(factors[1]) * a_minute, float(stdtrit(free, SURE)) * error * a_minute, float(np.median(known)))


def counts_grow(times_s: Sequence[float], values: Sequence[float]) -> bool:
    """Whether whole numbers that come and go have left their range: the last third lies above the first one.

    By more than one between its ends: a single step, like the one thread more of a pool that was busy, is no growth.
    """
    _, kept = settled(np.asarray(times_s, float), np.asarray(values, float))
    third = len(kept) // 3
    first, last = kept[:third], kept[-third:]
    return bool(last.min() > first.max() and last.max() - first.min() > 1)
