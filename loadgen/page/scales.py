"""Axes: from values to places between 0 and 1, with ticks at round values.

Pure. Knows nothing of pixels, variants or units.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
TICKS_MAX = 6
HALF_A_STEP = 0.04  # room on either side of the outermost values


@dataclass(frozen=True)
class Scale:
    """From `low` to `high`, linear or logarithmic; `ticks` are (value, text)."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """Where a value stands: 0 at `low`, 1 at `high`; what lies outside is drawn at the edge."""
        if self.log:
            value, low, high = (math.log(max(one, 1e-12)) for one in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


def linear(values: Iterable[float], zero: bool = True, ticks_max: int = TICKS_MAX) -> Scale:
    """Round ticks around the values, from 0 unless told otherwise."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min([0.0, *known] if zero else known), max(known)
    if high <= low:
        low, high = (0.0, high or 1.0) if zero else (low - 0.5, low + 0.5)
    step = _step((high - low) / (ticks_max - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((place * step, _text(place * step)) for place in range(first, last + 1))
    return Scale(first * step, last * step, False, ticks)


def _step(raw: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is no less."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in STEPS if power * step >= raw * (1 - 1e-9))


def _text(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1e4 else f"{value / 1000:.6g}k"


def octaves(values: Iterable[float]) -> Scale:
    """A log axis with its ticks at the given values themselves, as loads are given; crowded ones have no text."""
    known = sorted({value for value in values if value > 0}) or [1.0]
    low, high = math.log2(known[0]), math.log2(known[-1])
    room = max(HALF_A_STEP * (high - low), 0.25)
    scale = Scale(2 ** (low - room), 2 ** (high + room), True, ())
    return Scale(scale.low, scale.high, True, tuple(reversed(list(_apart(known, scale)))))


def _apart(values: Sequence[float], scale: Scale) -> Iterable[tuple[float, str]]:
    """Texts from the highest down, each only where it has room beside the one before."""
    edge = math.inf
    for value in reversed(values):
        text, place = _text(value), scale.at(value)
        width = 0.012 + 0.022 * len(text)
        fits = place + width / 2 <= edge
        edge = place - width / 2 if fits else edge
        yield value, text if fits else ""


def decades(values: Iterable[float]) -> Scale:
    """A log axis from round value to round value, ticks at 1, 2 and 5 times powers of ten as far as they fit."""
    known = [value for value in values if value > 0 and math.isfinite(value)] or [1.0, 10.0]
    low, high = min(known), max(known)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = _round_values(low, high, steps)
        if len(ticks) <= TICKS_MAX + 1:
            break
    else:
        ticks = ticks[:: math.ceil(len(ticks) / TICKS_MAX)]
    return Scale(min(ticks[0], low), max(ticks[-1], high), True, tuple((tick, _text(tick)) for tick in ticks))


def _round_values(low: float, high: float, steps: Sequence[int]) -> list[float]:
    """The round values from the last one not above `low` to the first not below `high`."""
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    every = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
    below = max(value for value in every if value <= low)
    above = min(value for value in every if value >= high and value > below)
    return [value for value in every if below <= value <= above]
