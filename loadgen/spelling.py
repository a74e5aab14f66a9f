"""How a comparison's numbers are written for a person: figures and ratios with their intervals, changes, crossovers.

Pure. What speaks of one start alone carries a mark, wherever it stands.
"""

from collections.abc import Callable

from loadgen import paired
from loadgen.paired import Crossover, Estimate
from loadgen.words import NOTHING, figure, many

STAR = "*"  # of an interval within one run ...
DAGGER = "†"  # ... in Markdown, which would set what stands between two stars in italics


def limits(value: Estimate, digits: Callable[[float], str], within: str) -> str:
    """An interval behind its value: " [1.091, 1.113]", then `within` where it speaks of one run; "" without one."""
    if value.interval is None:
        return ""
    return f" [{', '.join(map(digits, value.interval))}]{within if value.scope == paired.WITHIN else ''}"


def spread(value: Estimate, within: str = STAR) -> str:
    """A figure with its interval: 690 [684, 696]."""
    return f"{figure(value.value)}{limits(value, figure, within)}"


def ratio(value: Estimate | None, within: str = STAR, times: str = "") -> str:
    """A ratio with its interval, three decimals: 1.102 [1.091, 1.113]; `times` stands behind its value."""
    return f"{value.value:.3f}{times}{limits(value, '{:.3f}'.format, within)}" if value else NOTHING


def change(value: Estimate) -> str:
    """A ratio as a change with its interval: +10.1 % [+9.2, +11.0]."""
    return f"{percent(value.value)} %{limits(value, percent, ' within one run')}"


def percent(times: float) -> str:
    """A ratio as a signed change in per cent: +10.1."""
    return f"{100 * (times - 1):+.1f}"


def side(one: Crossover) -> str:
    """On which side of a crossover a variant is better."""
    return "better above" if one.rises else "better below"


def crossing(one: Crossover) -> str:
    """A crossover in words: the estimate, its interval, or only the levels between which it lies."""
    low, high = (f"{level:g}" for level in one.between)
    if one.at is None:
        return f"somewhere between {low} and {high} ({one.crossing} of {many(one.blocks, 'block')} cross there)"
    around = f" [{figure(one.interval[0])}, {figure(one.interval[1])}]" if one.interval else ""
    return f"{figure(one.at)}{around} (between {low} and {high}; {paired.weight(one.blocks)})"
