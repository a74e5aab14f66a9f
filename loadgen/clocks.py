"""How far another host's clock is ahead of ours, by what it told between two readings of ours.

Pure. The reading with the shortest round trip is taken, since the way back is known to half of it (Mills, RFC 5905,
clock filter). An offset begins a Point together and is written down; no latency is ever repaired with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NS_PER_MS = 1e6


@dataclass(frozen=True)
class Reading:
    """Our clock before the question, theirs in the answer, ours after it (ns)."""

    before_ns: int
    told_ns: int
    after_ns: int

    @property
    def rtt_ns(self) -> int:
        """The round trip."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class Offset:
    """How far their clock is ahead of ours, known to half of `rtt_ns`; both 0 on one host."""

    ahead_ns: int = 0
    rtt_ns: int = 0


@dataclass(frozen=True)
class Start:
    """How far apart the workers of a Point began, and how late the last one was (ms).

    Lateness is that against the common start on each worker's own clock; between hosts the start itself is known to
    `known_ms`, half of the longest of the round trips by which their clocks were read.
    """

    skew_ms: float
    late_ms: float
    known_ms: float


def start(workers: Iterable[Mapping[str, Any]]) -> Start | None:
    """The start of a Point by what its workers said in the end; None for one worker, or where one did not say."""
    told = list(workers)
    late = [one.get("start_late_ns") for one in told]
    known = [value for value in late if value is not None]
    if len(told) < 2 or len(known) < len(told):
        return None
    rtt_ns = max(one.get("clock_rtt_ns") or 0 for one in told)
    return Start((max(known) - min(known)) / NS_PER_MS, max(known) / NS_PER_MS, rtt_ns / 2 / NS_PER_MS)


def offset(readings: Sequence[Reading], same_host: bool) -> Offset:
    """The offset by the reading with the shortest round trip; on one host there is one clock, and no offset."""
    if same_host or not readings:
        return Offset()
    best = min(readings, key=lambda one: one.rtt_ns)
    return Offset(best.told_ns - (best.before_ns + best.after_ns) // 2, best.rtt_ns)
