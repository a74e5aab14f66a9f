"""Where the steady part of a Point starts and ends, decided while it runs, and how long a Point will take.

Pure: everything is a function of what has been counted so far. Times are nanoseconds since the Point began.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadgen.config import Level, Load
from loadgen.plan import WARM_UP_REQUESTS

NS_PER_S = 1_000_000_000
OPEN_WINDOW_S = 30.0  # unless load.window_s says otherwise
PILED_UP_HOPELESS = 0.3  # of the requests sent in the window
DRAIN_TIMES_MAX = 2  # times the longest request so far ...
DRAIN_SLACK_NS = 5 * NS_PER_S  # ... and so much more


@dataclass(frozen=True)
class Window:
    """The steady part [start_ns, end_ns) and, in words, how it was chosen."""

    start_ns: int
    end_ns: int
    how: str


@dataclass(frozen=True)
class End:
    """One finished request, failed or not."""

    sent_ns: int
    done_ns: int
    ok: bool


@dataclass(frozen=True)
class Durations:
    """Of all finished requests: how many, their times from sent to done added up, and those of the good ones alone."""

    count: int = 0
    total_ns: int = 0
    good: int = 0
    good_ns: int = 0
    longest_ns: int = 0

    @property
    def mean_ns(self) -> int:
        """Mean time from sent to done of the requests that ended well (of all, where none did)."""
        return self.good_ns // self.good if self.good else self.total_ns // self.count

    def after(self, ends: Iterable[End]) -> "Durations":
        """The same with these requests too."""
        took = [(end.done_ns - end.sent_ns, end.ok) for end in ends]
        good = [ns for ns, ok in took if ok]
        return Durations(
            self.count + len(took),
            self.total_ns + sum(ns for ns, _ in took),
            self.good + len(good),
            self.good_ns + sum(good),
            max([self.longest_ns, *(ns for ns, _ in took)]),
        )


@dataclass(frozen=True)
class Crowd:
    """How many requests had been sent at a moment, and how many of them were in flight."""

    sent: int
    in_flight: int


@dataclass(frozen=True)
class Expected:
    """How long a request is expected to take before any of the Point's own has ended, and where that comes from."""

    duration_s: float
    how: str


def find(load: Load, stagger_ns: int, first_round_ns: int | None, ends: Sequence[End]) -> Window | None:
    """The window of a closed loop, or None while what it needs has not happened yet.

    It starts when the stagger is over and every stream has finished one request (`first_round_ns`), and is the longest
    of `window_durations` mean request durations, `window_requests` finished requests and `window_min_s`; or `window_s`.
    It is known once a request has ended at or after its end, which so lies in the past; `window_s` is known at once.
    """
    if first_round_ns is None:
        return None
    start = max(stagger_ns, first_round_ns)
    if load.window_s is not None:
        return Window(start, start + int(load.window_s * NS_PER_S), f"load.window_s={load.window_s:g}")
    inside = sorted((end for end in ends if end.done_ns > start), key=lambda end: end.done_ns)
    if len(inside) < load.window_requests:
        return None
    # Of the requests that ended in the window: those of the ramp ran beside fewer others and were shorter.
    mean_ns = Durations().after(inside).mean_ns
    lengths = {
        f"{load.window_durations:g} request duration(s) of {mean_ns / NS_PER_S:.2f} s": int(
            load.window_durations * mean_ns
        ),
        f"{load.window_requests} finished requests": inside[load.window_requests - 1].done_ns - start + 1,
        f"load.window_min_s={load.window_min_s:g}": int(load.window_min_s * NS_PER_S),
    }
    reason = max(lengths, key=lambda name: lengths[name])
    if inside[-1].done_ns < start + lengths[reason] - 1:
        return None  # the mean may still grow
    begin = f"after a stagger of {stagger_ns / NS_PER_S:.2f} s and one finished request a stream"
    return Window(start, start + lengths[reason], f"{begin}; length: {reason} (mean of {len(inside)} finished)")


def find_open(load: Load, expected_ns: int, known: Durations, now_ns: int) -> Window | None:
    """The window of an open loop, or None while one request duration is not over yet.

    The duration is the longer of what was expected and the mean of the finished requests, so that as many requests are
    in flight when the window begins as the rate keeps there; its length is `window_s`, else OPEN_WINDOW_S.
    """
    if not known.count:
        return None
    start = max(expected_ns, known.mean_ns)
    if now_ns < start:
        return None  # the mean may still grow
    length_s = load.window_s or OPEN_WINDOW_S
    how = f"after one request duration of {start / NS_PER_S:.2f} s; length: load.window_s={length_s:g}"
    return Window(start, start + int(length_s * NS_PER_S), how)


def hopeless(begin: Crowd, end: Crowd) -> bool:
    """Whether so many of an open window's requests piled up that waiting for them tells nothing more.

    A share and a number that no steady server shows by chance: with L in flight, chance moves that by about sqrt(2 L).
    """
    grown = end.in_flight - begin.in_flight
    return grown > PILED_UP_HOPELESS * (end.sent - begin.sent) and grown > 5 * math.sqrt(2 * (begin.in_flight + 1))


def drain_ns_max(known: Durations) -> int:
    """How long after an open loop's window the last of its requests are waited for.

    A server that keeps up with the rate answers none of them much more slowly than those before; one that does not has
    a backlog that only grows, and nobody should wait for that.
    """
    return DRAIN_TIMES_MAX * known.longest_ns + DRAIN_SLACK_NS


@dataclass(frozen=True)
class Measured:
    """What one level showed: `concurrency` streams (in open loop, requests in flight), mean request duration."""

    concurrency: int
    duration_s: float


def expect(concurrency: int, warm_up_s: float, before: Sequence[Measured]) -> Expected:
    """The duration to expect at `concurrency` from the warm-up or from the levels before it.

    Where throughput was flat over the last two levels a request takes longer in proportion to the concurrency; where it
    still grew, by the part of the proportion that throughput did not take up (a power law through the two levels). One
    level alone says nothing of that: more streams are taken to be slower in proportion, since first requests that are
    spread too far cost seconds, and those that are not spread far enough keep the streams in step for ever.
    """
    levels = list(before) or [Measured(WARM_UP_REQUESTS, warm_up_s)]
    last = levels[-1]
    others = [level for level in levels if level.concurrency != last.concurrency]  # a level may have been repeated
    growth = _exponent(others[-1], last) if others else float(concurrency > last.concurrency)
    factor = (concurrency / last.concurrency) ** growth
    source = f"level {last.concurrency}'s" if before else "the warm-up's"
    return Expected(last.duration_s * factor, f"{source} duration times {factor:.2f}")


def expect_at(concurrency: int | None, warm_up_s: float, before: Sequence[Measured]) -> Expected:
    """The same for a level of any kind: nothing says how many requests a rate keeps in flight (None)."""
    if concurrency is not None:
        return expect(concurrency, warm_up_s, before)
    if before:
        return Expected(before[-1].duration_s, "the level before's")
    return Expected(warm_up_s, "the warm-up's")


def _exponent(earlier: Measured, later: Measured) -> float:
    """The exponent of duration over concurrency between two levels, 0 (throughput still grew) to 1 (flat)."""
    slope = math.log(later.duration_s / earlier.duration_s) / math.log(later.concurrency / earlier.concurrency)
    return min(1.0, max(0.0, slope))


def stagger_s(load: Load, concurrency: int | None, expected: Expected) -> float:
    """Over how many seconds the first requests are spread; one stream has nothing to spread, nor has open loop."""
    if concurrency in (None, 1):
        return 0.0
    return load.stagger_s if load.stagger_s is not None else expected.duration_s


def level_s(load: Load, level: Level, duration_s: float) -> float:
    """Seconds that a level is expected to take: stagger, one request a stream, window, drain."""
    if level.concurrency is None:
        return _open_s(load, level, duration_s)
    spread = 0.0 if level.concurrency == 1 else load.stagger_s if load.stagger_s is not None else duration_s
    if level.requests is not None:
        return spread + math.ceil(level.requests / level.concurrency) * duration_s
    length = load.window_s or max(
        load.window_durations * duration_s, load.window_requests * duration_s / level.concurrency, load.window_min_s
    )
    return spread + duration_s + length + duration_s


def _open_s(load: Load, level: Level, duration_s: float) -> float:
    """The same in open loop: one duration, window, drain; or a fixed count at the rate."""
    if level.requests is not None:
        return level.requests / (level.rate or math.inf) + duration_s
    return duration_s + (load.window_s or OPEN_WINDOW_S) + duration_s


def window_s_min(load: Load) -> float:
    """The shortest window that the load may have, in seconds."""
    return load.window_s or (OPEN_WINDOW_S if load.kind == "open" else load.window_min_s)
