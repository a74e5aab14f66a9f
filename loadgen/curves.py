"""A distribution of many values in a bounded number of its quantiles.

Pure. A page and a plot need no more of ten million requests than these.
"""

from collections.abc import Iterable, Mapping

import numpy as np

# Every fiftieth, and the upper end closer, where requests that wait are.
SHARES = tuple(float(share) for share in np.unique([*np.linspace(0, 1, 51).round(2), 0.01, 0.95, 0.99, 0.995, 0.999]))

Curve = tuple[float, ...]


def of(parts: Iterable[Mapping[str, np.ndarray]], names: Iterable[str]) -> dict[str, Curve]:
    """By name the quantiles at SHARES of all parts' values together; a name without a value is left out."""
    kept, found = list(parts), {}
    for name in names:
        values = [part[name] for part in kept if len(part.get(name, ()))]
        if values:
            found[name] = tuple(float(value) for value in np.quantile(np.concatenate(values), SHARES))
    return found


def at(curve: Curve, share: float) -> float:
    """One quantile of a curve."""
    return float(np.interp(share, SHARES, curve))
