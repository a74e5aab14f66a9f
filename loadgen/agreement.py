"""Whether the workers of a Point saw the same server: each one's time to first token, held against the others'.

Pure. They ask the same kinds of prompts of the same servers at the same time: what sets them apart is the client.
"""

from dataclasses import dataclass

import numpy as np

from loadgen.margin import Finding
from loadgen.series import Columns

APART_MAX = 0.05  # of the median of all; less bends no comparison ...
P_MIN = 0.001  # ... and more is believed when shuffled workers are so far apart this seldom
SHUFFLES = 2000
FAR_ENOUGH = 20  # shuffles as far apart settle it: p is known to a quarter of itself, and far above P_MIN
ROWS_MIN = 20  # of each worker: medians of fewer say little


@dataclass(frozen=True)
class Agreement:
    """How far the workers' median TTFTs lie apart, as a share of the median of all, and how often by chance."""

    apart: float
    p: float


def agreement(cols: Columns, good: np.ndarray) -> Agreement | None:
    """What the `good` rows say; None for a single worker, or where one has too few of them."""
    ttft = (cols["first_token_ns"].astype(np.float64) - cols["sent_ns"])[good]
    known = ~np.isnan(ttft)
    ttft, workers = ttft[known], cols["worker"][good][known]
    counts = np.unique(workers, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < ROWS_MIN:
        return None
    ttft, cuts = ttft[np.argsort(workers, kind="stable")], np.cumsum(counts)[:-1]
    apart, middle = _apart(ttft, cuts), float(np.median(ttft))
    if not apart:
        return Agreement(0.0, 1.0)
    return Agreement(apart / middle if middle else np.inf, _p(ttft, cuts, apart))


def _apart(values: np.ndarray, cuts: np.ndarray) -> float:
    """The statistic of the permutation test over k samples: the largest median less the smallest."""
    medians = [float(np.median(part)) for part in np.split(values, cuts)]
    return max(medians) - min(medians)


def _p(values: np.ndarray, cuts: np.ndarray, apart: float) -> float:
    """How often shuffled values lie so far apart; a sequential test, so that chance is told from few shuffles.

    J. Besag and P. Clifford, Sequential Monte Carlo p-values, Biometrika 78 (1991).
    """
    rng, far = np.random.default_rng(0), 0
    for tried in range(1, SHUFFLES + 1):
        far += _apart(rng.permutation(values), cuts) >= apart
        if far == FAR_ENOUGH:
            return far / tried
    return (far + 1) / (SHUFFLES + 1)


def findings(told: Agreement | None) -> list[Finding]:
    """The rule; nothing for a single worker."""
    if told is None:
        return []
    advice = "the workers saw different times of one server: look at loop lag and CPU by worker in health.parquet"
    ok = told.apart <= APART_MAX or told.p >= P_MIN
    note = f" and p below {P_MIN:g}, here {told.p:.2g}"
    return [Finding("workers_apart", told.apart, APART_MAX, "share", ok, advice, note=note)]
