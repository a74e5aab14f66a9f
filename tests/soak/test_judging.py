"""What counts as growth: a known leak is found in five minutes, and flat noise of every kind passes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from judging import BLOCKS, counts_grow, drift, growth

SECONDS = np.arange(300.0)
KIB, MIB = 1 / 1024, 1.0
SERIES = 500
FALSE_ALARMS_MAX = 0.003  # of each kind of noise; a soak judges some fifteen processes
LEVEL_MIB, ALLOWED_MIB = 100.0, 0.05

Noise = Callable[[np.random.Generator], np.ndarray]


def white(rng: np.random.Generator) -> np.ndarray:
    """Comes and goes from second to second."""
    return rng.normal(0, 0.2, len(SECONDS))


def slow(rng: np.random.Generator) -> np.ndarray:
    """Returns to its level within half a minute."""
    noise, found = rng.normal(0, 0.1, len(SECONDS)), np.zeros(len(SECONDS))
    for place in range(1, len(SECONDS)):
        found[place] = 0.97 * found[place - 1] + noise[place]
    return found


def wandering(rng: np.random.Generator) -> np.ndarray:
    """Keeps what it took, and gives back as often as it takes."""
    return np.cumsum(rng.normal(0, 0.05, len(SECONDS)))


def one_step(rng: np.random.Generator) -> np.ndarray:
    """An allocator takes one large piece, once."""
    return np.where(rng.uniform(0, 300) < SECONDS, 4 * MIB, 0) + rng.normal(0, 0.02, len(SECONDS))


def warming_up(rng: np.random.Generator) -> np.ndarray:
    """Grows to its level in the first minute, then stays."""
    return -20 * np.exp(-SECONDS / 12) + rng.normal(0, 0.02, len(SECONDS))


def pages(values: np.ndarray) -> np.ndarray:
    """As the system tells it."""
    return np.round(values / (4 * KIB)) * 4 * KIB


@pytest.mark.parametrize("noise", [white, slow, wandering, one_step, warming_up], ids=lambda kind: kind.__name__)
def test_flat_noise_passes(noise: Noise) -> None:
    """Of 500 made-up series of each kind at most one is called a leak."""
    rng = np.random.default_rng(1)
    found = [growth(SECONDS, pages(LEVEL_MIB + noise(rng))).above(ALLOWED_MIB) for _ in range(SERIES)]
    print(noise.__name__, np.mean(found))
    assert np.mean(found) <= FALSE_ALARMS_MAX


@pytest.mark.parametrize("noise", [white, one_step, warming_up], ids=lambda kind: kind.__name__)
def test_a_leak_of_a_mebibyte_a_minute_is_found(noise: Noise) -> None:
    """In nine of ten made-up series or more, and to a fifth; a fifth of it where there is no noise but the pages."""
    rng = np.random.default_rng(2)
    found = [growth(SECONDS, pages(LEVEL_MIB + noise(rng) + SECONDS / 60)) for _ in range(100)]
    print(noise.__name__, sum(one.above(ALLOWED_MIB) for one in found))
    assert sum(one.above(ALLOWED_MIB) for one in found) >= 90
    assert np.median([one.per_min for one in found]) == pytest.approx(1, abs=0.2)
    assert growth(SECONDS, pages(LEVEL_MIB + SECONDS / 300)).above(ALLOWED_MIB)


def test_a_staircase_that_goes_on_is_a_leak() -> None:
    """Half an hour of a mebibyte every minute, as lists and heaps grow."""
    seconds = np.arange(1800.0)
    assert growth(seconds, LEVEL_MIB + np.floor(seconds / 60)).above(ALLOWED_MIB)


def test_a_figure_that_drifts_is_told_from_one_that_varies() -> None:
    """Five per cent over the window beside one per cent of spread; of 500 that only vary at most two are."""
    rng = np.random.default_rng(3)
    spread = rng.normal(1000, 10, (SERIES, BLOCKS))
    assert sum(drift(one, 1.0).above(0) or drift(-one, 1.0).above(0) for one in spread) <= 2
    moving = drift(spread[0] + np.linspace(0, 50, BLOCKS), 1.0)
    assert moving.above(0)
    assert moving.per_min == pytest.approx(50 / BLOCKS, rel=0.3)
    gaps = spread[0] + np.linspace(0, 50, BLOCKS)
    gaps[[3, 11]] = np.nan  # blocks into which nothing fell
    assert drift(gaps, 1.0).above(0)


def test_numbers_that_come_and_go() -> None:
    """Descriptors that are opened and closed pass; one more a minute, kept, does not."""
    rng = np.random.default_rng(4)
    coming = 250 + rng.integers(0, 5, len(SECONDS))
    assert not counts_grow(SECONDS, coming)
    assert not counts_grow(SECONDS, np.full(len(SECONDS), 250))
    assert counts_grow(SECONDS, 250 + np.floor(SECONDS / 60))
    assert counts_grow(SECONDS, 250 + 2 * (SECONDS > 200))
    assert not counts_grow(SECONDS, 250 + (SECONDS > 200))  # one more, once


@pytest.mark.parametrize("step", [1, 5, 10, 16])
def test_what_follows_the_machine_is_no_drift(step: int) -> None:
    """A neighbour that comes in the midst, for a while or for good, explains what follows it; the program's own stays.

    A figure that grows by itself is found beside the same neighbour.
    """
    rng = np.random.default_rng(8)
    neighbour = np.where((np.arange(BLOCKS) >= step) & (np.arange(BLOCKS) < step + 10), 0.3, 0.02)
    neighbour = neighbour + rng.normal(0, 0.005, BLOCKS)
    speed = np.full(BLOCKS, np.nan)  # that was not told
    figure = 10 + 5 * neighbour + rng.normal(0, 0.02, BLOCKS)
    own = figure + np.linspace(0, 1, BLOCKS)
    alone = drift(figure, 0.25)
    beside = drift(figure, 0.25, [neighbour, speed])
    assert not beside.above(0.2)
    assert not replace(beside, per_min=-beside.per_min).above(0.2)
    assert abs(beside.per_min) < abs(alone.per_min)
    found = drift(own, 0.25, [neighbour])
    assert found.above(0)
    assert found.per_min == pytest.approx(1 / 0.25 / (BLOCKS - 1), rel=0.3)
