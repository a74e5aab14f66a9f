"""Statistics of one sample: intervals for means and quantiles, tests of steadiness.

Pure: numbers in, numbers out; knows nothing of requests, tokens or verdicts. Intervals are (low, high); None where the
sample is too small to have one.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, betaincinv, stdtrit

LEVEL = 0.95
BATCHES = 10  # enough for a t interval, few enough that neighbours are nearly independent
MSER_BATCH = 5  # the 5 of MSER-5
HALVES_DIFFERENCE_MAX = 0.05  # a smaller drift is not worth refusing a Point
HALVES_STANDARD_ERRORS_MAX = 4.0  # a larger difference of steady halves happens once in 10,000

Interval = tuple[float, float]


def mean_interval(values: np.ndarray, level: float = LEVEL) -> Interval | None:
    """Student's t interval of the mean of independent values."""
    if len(values) < 2:
        return None
    mean, half = float(np.mean(values)), _half_width(values, level)
    return mean - half, mean + half


def _half_width(values: np.ndarray, level: float) -> float:
    t = stdtrit(len(values) - 1, (1 + level) / 2)
    return float(t * np.std(values, ddof=1) / np.sqrt(len(values)))


def batch_means(values: np.ndarray, batches: int = BATCHES) -> np.ndarray:
    """Means of `batches` equal, consecutive parts; what is left over at the start is dropped. Empty when too few."""
    size = len(values) // batches
    if not size:
        return np.zeros(0)
    return np.asarray(values, float)[-size * batches :].reshape(batches, size).mean(axis=1)


def quantile(values: np.ndarray, q: float) -> float | None:
    """Quantile q of the values that are known (not NaN); None where none is."""
    known = values[~np.isnan(values.astype(np.float64))]
    return float(np.quantile(known, q)) if len(known) else None


def quantile_n_min(q: float, level: float = LEVEL) -> int:
    """The smallest sample whose extremes enclose quantile q with this confidence on either side."""
    rare = max(q, 1 - q)
    return int(np.ceil(np.log((1 - level) / 2) / np.log(rare)))


def quantile_interval(values: np.ndarray, q: float, level: float = LEVEL) -> Interval | None:
    """The interval of quantile q between two order statistics: it assumes nothing of the distribution."""
    n = len(values)
    if n < quantile_n_min(q, level):
        return None
    tail = (1 - level) / 2
    # The number of values below the true quantile is binomial (n, q).
    below = bdtr(np.arange(n), n, q)
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    ordered = np.sort(values)
    return float(ordered[low - 1]), float(ordered[high - 1])


def share_bounds(hits: int, n: int, level: float = LEVEL) -> Interval:
    """Exact (Clopper-Pearson) bounds of a share seen `hits` times in n, n above 0; each bound holds at `level`."""
    low = float(betaincinv(hits, n - hits + 1, 1 - level)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, level)) if hits < n else 1.0
    return low, high


@dataclass(frozen=True)
class Halves:
    """The second half's mean against the first's: as a share of the mean of all, and in standard errors."""

    difference: float
    standard_errors: float

    @property
    def steady(self) -> bool:
        """False only when the difference is both large and more than chance."""
        large = abs(self.difference) > HALVES_DIFFERENCE_MAX
        return not (large and abs(self.standard_errors) > HALVES_STANDARD_ERRORS_MAX)


def halves(values: np.ndarray) -> Halves | None:
    """Compare the two halves of a series; None with fewer than three values in each, or a mean of 0.

    The standard error is that of the spread around a straight line through each half: a drift must not hide behind the
    spread that it causes itself.
    """
    middle = len(values) // 2
    if middle < 3 or not np.mean(values):
        return None
    first, second = values[:middle], values[-middle:]
    difference = float(np.mean(second) - np.mean(first))
    error = float(np.sqrt((_variance_around_line(first) + _variance_around_line(second)) / middle))
    errors = difference / error if error else (0.0 if not difference else float(np.copysign(np.inf, difference)))
    return Halves(difference / float(np.mean(values)), errors)


def _variance_around_line(values: np.ndarray) -> float:
    place = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float((place * values).sum() / (place**2).sum())
    left = values - np.mean(values) - slope * place
    return float((left**2).sum()) / (len(values) - 2)


def slope_per_min(values: np.ndarray, bin_s: float, level: float = LEVEL) -> tuple[float, float] | None:
    """Least-squares slope of a series of bins as a share of its mean a minute, and the half width of its t interval."""
    n = len(values)
    if n < 3 or not np.mean(values):
        return None
    minutes = np.arange(n) * bin_s / 60
    centred = minutes - minutes.mean()
    spread = float((centred**2).sum())
    slope = float((centred * values).sum()) / spread
    left = values - np.mean(values) - slope * centred
    error = np.sqrt(float((left**2).sum()) / (n - 2) / spread)
    mean = float(np.mean(values))
    return slope / mean, float(stdtrit(n - 2, (1 + level) / 2) * error) / mean


def mser5(values: np.ndarray) -> int | None:
    """How many values at the start MSER-5 would drop as warm-up; None with fewer than four batches of five.

    Looks only at the first half: later the few values left make the statistic small by chance.
    """
    batches = batch_means(values, len(values) // MSER_BATCH) if len(values) >= 4 * MSER_BATCH else np.zeros(0)
    if not len(batches):
        return None
    scores = [np.var(batches[cut:]) / (len(batches) - cut) for cut in range(len(batches) // 2 + 1)]
    return int(np.argmin(scores)) * MSER_BATCH
