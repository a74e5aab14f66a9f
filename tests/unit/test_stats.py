"""Intervals cover as often as they say, and tests of steadiness tell drift from noise."""

import numpy as np
import pytest
from scipy import stats as reference

from loadgen.stats import batch_means, halves, mean_interval, mser5, quantile_interval, quantile_n_min, slope_per_min


def test_mean_interval_is_students() -> None:
    """The interval is that of a known implementation."""
    values = np.array([9.8, 10.1, 10.4, 9.9, 10.2])
    expected = reference.t.interval(0.95, 4, loc=values.mean(), scale=reference.sem(values))
    assert mean_interval(values) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_mean_interval_needs_two_values(values: list[float]) -> None:
    """One value says nothing of its spread."""
    assert mean_interval(np.array(values)) is None


def test_batch_means_drop_the_rest_at_the_start() -> None:
    """Equal parts, in order; too few values give none."""
    assert batch_means(np.arange(7.0), 3).tolist() == [1.5, 3.5, 5.5]
    assert batch_means(np.arange(2.0), 3).tolist() == []


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_quantile_interval_starts_at_the_known_sizes(q: float, n: int) -> None:
    """One value fewer has no interval; at the bound it reaches to the extremes."""
    values = np.arange(float(n))
    assert quantile_n_min(q) == n
    assert quantile_interval(values[:-1], q) is None
    interval = quantile_interval(values, q)
    assert interval is not None
    assert interval[1] == n - 1


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.5, 100), (0.9, 36), (0.9, 500), (0.99, 400)])
def test_quantile_interval_holds_its_level_and_is_no_wider_than_needed(q: float, n: int) -> None:
    """The binomial chance outside is at most 2.5 % a side, and one rank closer it would be more."""
    interval = quantile_interval(np.arange(1.0, n + 1), q)
    assert interval is not None
    low, high = (int(limit) for limit in interval)
    below = reference.binom(n, q)
    assert below.cdf(low - 1) <= 0.025 < below.cdf(low)
    assert below.sf(high - 1) <= 0.025 < below.sf(high - 2)


def test_quantile_interval_covers() -> None:
    """Of many samples of a skewed distribution, about 95 % of the intervals hold the true p90."""
    rng = np.random.default_rng(0)
    true = float(reference.expon.ppf(0.9))
    intervals = [quantile_interval(rng.exponential(size=200), 0.9) for _ in range(1000)]
    covered = sum(low <= true <= high for low, high in filter(None, intervals))
    assert 0.93 <= covered / 1000 <= 0.99


@pytest.mark.parametrize(
    ("values", "steady"),
    [
        ([100.0] * 20, True),
        ([100.0] * 10 + [104.0] * 10, True),
        ([100.0] * 10 + [110.0] * 10, False),
        ([110.0] * 10 + [100.0] * 10, False),
        ([0.0, 200.0] * 5 + [20.0, 210.0] * 5, True),
    ],
)
def test_halves(values: list[float], steady: bool) -> None:
    """Unsteady only when the difference is large and more than chance."""
    compared = halves(np.array(values))
    assert compared is not None
    assert compared.steady is steady


@pytest.mark.parametrize("values", [[], [1.0, 2.0, 3.0], [0.0] * 20])
def test_halves_of_too_little(values: list[float]) -> None:
    """Too few values, or no tokens at all, cannot be tested."""
    assert halves(np.array(values)) is None


def test_slope() -> None:
    """A ramp of 1 % a second is 60 % a minute of the mean in its middle, without any doubt."""
    found = slope_per_min(100.0 + np.arange(21) - 10, bin_s=1.0)
    assert found is not None
    assert found[0] == pytest.approx(0.6)
    assert found[1] == pytest.approx(0.0, abs=1e-12)
    assert slope_per_min(np.array([1.0, 2.0]), 1.0) is None


def test_slope_of_noise_is_within_its_interval() -> None:
    """Noise without drift has an interval around zero about 95 times in 100."""
    rng = np.random.default_rng(1)
    found = [slope_per_min(rng.normal(100, 5, 20), 1.0) for _ in range(400)]
    inside = sum(abs(slope) <= half for slope, half in filter(None, found))
    assert 0.92 <= inside / 400 <= 0.98


def test_mser5_finds_a_ramp() -> None:
    """A start that differs is cut, and about where it ends; steady noise is hardly cut."""
    rng = np.random.default_rng(2)
    noise = rng.normal(100, 1, 100)
    ramp = np.where(np.arange(100) < 20, 50, 0)
    assert mser5(noise - ramp) == 20
    assert (mser5(noise) or 0) <= 25
    assert mser5(noise[:19]) is None
