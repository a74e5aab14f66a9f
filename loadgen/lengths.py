"""How many tokens a prompt or an answer has: a fixed number, or drawn from a distribution.

Pure: a draw is a function of its seed. Knows nothing of texts or requests.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadgen.errors import ConfigError

TOKENS_MAX = 1_000_000
DRAWN = 4093  # lengths of a plan before they go round; a prime, so that they and the prompts go round out of step
SHAPES = {  # what a distribution must be told; min and max bound the others too
    "fixed": ("mean",),
    "uniform": ("min", "max"),
    "normal": ("mean", "stdev"),
    "lognormal": ("mean", "stdev"),
}
EXAMPLE = "{dist: lognormal, mean: 300, stdev: 150, max: 1024}"


@dataclass(frozen=True)
class Lengths:
    """A distribution of tokens. `mean` and `stdev` are those of the lengths themselves, before `low` and `high` bound.

    A drawn length beyond a bound is the bound. Of uniform both bounds are drawn too, and the mean follows from them.
    """

    dist: str
    mean: float
    stdev: float = 0.0
    low: int = 1
    high: int = TOKENS_MAX

    @property
    def typical(self) -> int:
        """About the mean: what a warm-up asks for."""
        return self._bounded(self.mean)

    def drawn(self, count: int, seed: str) -> tuple[int, ...]:
        """`count` lengths by `seed`."""
        rng = random.Random(seed)
        return tuple(self._bounded(self._value(rng)) for _ in range(count))

    def _bounded(self, value: float) -> int:
        return min(self.high, max(self.low, round(value)))

    def _value(self, rng: random.Random) -> float:
        if self.dist == "uniform":
            return rng.randint(self.low, self.high)
        if self.dist == "normal":
            return rng.gauss(self.mean, self.stdev)
        if self.dist == "lognormal":
            # Of the logarithm: variance ln(1 + (stdev / mean)^2), mean ln(mean) less half of it.
            variance = math.log1p((self.stdev / self.mean) ** 2)
            return rng.lognormvariate(math.log(self.mean) - variance / 2, math.sqrt(variance))
        return self.mean


def parse(key: str, value: Any, least: int = 1, most: int = TOKENS_MAX) -> Lengths:
    """The lengths in a configuration's value: a number, or a mapping with `dist` and its numbers. Raises ConfigError.

    No length outside `least` and `most` is drawn, and none may be asked for.
    """
    if not isinstance(value, Mapping):
        return Lengths("fixed", _number(key, value, least, most))
    dist = value.get("dist")
    if not isinstance(dist, str) or dist not in SHAPES:
        raise ConfigError(f"{key}.dist={dist}: choose one of {', '.join(SHAPES)}, as in {key}={EXAMPLE}")
    needed = SHAPES[dist]
    for name in [name for name in value if name not in ("dist", "min", "max", *needed)]:
        raise ConfigError(f"{key}.{name}: {dist} takes {', '.join(dict.fromkeys([*needed, 'min', 'max']))} only")
    for name in [name for name in needed if value.get(name) is None]:
        raise ConfigError(f"{key}.{name} is missing: {dist} needs {' and '.join(needed)}")
    bounds = [name for name in ("min", "max") if value.get(name) is not None]
    given = {name: _number(f"{key}.{name}", value[name], least, most) for name in {*bounds, *needed} - {"stdev"}}
    low, high = given.get("min", least), given.get("max", most)
    if low > high:
        raise ConfigError(f"{key}.min={low} is above {key}.max={high}; exchange them")
    mean = given.get("mean", (low + high) / 2)
    if not low <= mean <= high:
        raise ConfigError(f"{key}.mean={mean} is outside {low} to {high}; change it, or {key}.min or {key}.max")
    stdev = value.get("stdev", 0)
    if isinstance(stdev, bool) or not isinstance(stdev, int | float) or not 0 <= stdev <= TOKENS_MAX:
        raise ConfigError(f"{key}.stdev={stdev}: give tokens from 0 to {TOKENS_MAX}")
    return Lengths(dist, mean, float(stdev), low, high)


def _number(key: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{key}={value}: give a whole number of tokens from {least} to {most}")
    return value
