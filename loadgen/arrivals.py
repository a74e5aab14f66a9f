"""When requests come in open loop: times since the Point's begin, made before the clock starts.

Pure. A Process draws them from a seed, a Replay has them from a trace; the same for every variant of a block. Knows
nothing of clocks, workers or how late a request was sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

NS_PER_S = 1_000_000_000
DRAWN_AT_ONCE = 4096  # gaps; one by one they would cost microseconds each between two sends


@dataclass(frozen=True)
class Process:
    """Requests at `rate` a second with independent gaps: constant, poisson, or gamma of the shape `burstiness`."""

    rate: float
    arrival: str
    burstiness: float | None
    seed: int

    def times_ns(self) -> Iterator[int]:
        """When each request comes, without end, in order."""
        if self.arrival == "constant":
            number = 0
            while True:  # counted, not added up: a thousandth of a microsecond a gap is seconds in a day
                yield int(number * NS_PER_S / self.rate)
                number += 1
        rng, now_s = np.random.default_rng(self.seed), 0.0
        while True:
            times_s = now_s + np.cumsum(self._gaps(rng)) / self.rate
            now_s = float(times_s[-1])
            yield from (times_s * NS_PER_S).astype(np.int64).tolist()

    def _gaps(self, rng: np.random.Generator) -> np.ndarray:
        """Gaps of mean 1; those of a gamma process have the coefficient of variation 1 / sqrt(burstiness)."""
        shape = 1.0 if self.burstiness is None else self.burstiness
        return rng.gamma(shape, 1 / shape, DRAWN_AT_ONCE)


@dataclass(frozen=True)
class Replay:
    """The arrivals and lengths of a trace, in order; its first request comes at once."""

    at_ns: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray

    def times_ns(self) -> Iterator[int]:
        """When each request comes, in order."""
        yield from self.at_ns.tolist()

    def first(self, requests: int | None, speed: float) -> "Replay":
        """The first `requests` of them (None: all), `speed` times faster."""
        at_ns = (self.at_ns[:requests] / speed).astype(np.int64)
        return Replay(at_ns, self.input_tokens[:requests], self.output_tokens[:requests])

    @property
    def rate(self) -> float | None:
        """Mean requests a second from the first to the last; None where all come at once."""
        span_s = float(self.at_ns[-1]) / NS_PER_S
        return (len(self.at_ns) - 1) / span_s if span_s else None
