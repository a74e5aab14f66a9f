"""Where the steady part of a Point starts and ends, decided while it runs, and how long a Point will take.

Pure: everything is a function of what has been counted so far. Times are nanoseconds since the Point began.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.config import Load
from loadgen.plan import WARM_UP_REQUESTS

NS_PER_S = 1_000_000_000


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
    mean_ns = mean_duration_ns(inside)
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


def mean_duration_ns(ends: Sequence[End]) -> int:
    """Mean time from sent to done of the requests that ended well (of all, where none did)."""
    good = [end for end in ends if end.ok] or list(ends)
    return sum(end.done_ns - end.sent_ns for end in good) // len(good)


@dataclass(frozen=True)
class Measured:
    """What one level showed: `concurrency` streams, mean request duration."""

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


def _exponent(earlier: Measured, later: Measured) -> float:
    """The exponent of duration over concurrency between two levels, 0 (throughput still grew) to 1 (flat)."""
    slope = math.log(later.duration_s / earlier.duration_s) / math.log(later.concurrency / earlier.concurrency)
    return min(1.0, max(0.0, slope))


def stagger_s(load: Load, concurrency: int, expected: Expected) -> float:
    """Over how many seconds the first requests are spread; a single stream has nothing to spread."""
    if concurrency == 1:
        return 0.0
    return load.stagger_s if load.stagger_s is not None else expected.duration_s


def level_s(load: Load, concurrency: int, requests: int | None, duration_s: float) -> float:
    """Seconds that a level is expected to take: stagger, one request a stream, window, drain."""
    spread = 0.0 if concurrency == 1 else load.stagger_s if load.stagger_s is not None else duration_s
    if requests is not None:
        return spread + math.ceil(requests / concurrency) * duration_s
    length = load.window_s or max(
        load.window_durations * duration_s, load.window_requests * duration_s / concurrency, load.window_min_s
    )
    return spread + duration_s + length + duration_s
