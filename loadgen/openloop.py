"""What became of a load that arrives by a clock: was it sent as planned, and could the server keep up with it?

Pure. Owns the facts and the rules of open loop. A request is in the system from the moment it was due until it ended,
whether it waited at the server or, with `load.max_in_flight`, for a place here. By how much this client was too slow to
send it is lateness, and no fault of the server's.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from loadgen.margin import Finding
from loadgen.record import Outcome
from loadgen.series import NS_PER_S, Columns, failures, tokens_between

LATENESS_P99_MS_MAX = 10.0  # of requests that had no place to wait for: more is the client's own delay
RATE_HELD_MIN = 0.99  # below, the rate that was asked for was not what came
PILED_UP_MAX = 0.10  # of the requests that came; a server that keeps up has as many in the system at the end as before
PILED_UP_ERRORS = 4.0  # a steady system's thirds differ by more once in 30,000 ...
TTFT_GROWTH_MIN = 1.2  # ... and then the first token does not take longer
BURST_S = 0.1
NS_PER_MS = 1e6


@dataclass(frozen=True)
class OpenFacts:
    """What is known of an open loop's window. None: not known; shares are of 1."""

    lateness_p99_ms: float | None = None  # of those that had no place to wait for, opening a connection not counted
    waited: int = 0  # requests that had to wait for one of load.max_in_flight places
    offered_per_s: float | None = None  # by the plan
    achieved_per_s: float | None = None  # as sent
    missing: int | None = None  # requests of the plan that were not sent in the window; None in a whole run
    served_per_s: float | None = None  # the tokens that came, in requests of their mean length
    burst: int = 0  # the most requests sent in any BURST_S
    cut: int = 0  # sent in the window, and not ended when the Point was
    piled_up: float | None = None  # requests more in the system at the end than at the start, share of those that came
    piled_up_errors: float | None = None  # the same in standard errors of a steady system
    still_growing: bool = False  # from each third of the window to the next
    ttft_ms: tuple[float, float] | None = None  # medians of the first and the last third, from the moment they were due

    @property
    def growing(self) -> bool:
        """More and more requests in the system, by more than chance, and each waits longer for its first token."""
        if self.piled_up is None or self.piled_up_errors is None or self.ttft_ms is None:
            return False
        longer = self.ttft_ms[1] > TTFT_GROWTH_MIN * self.ttft_ms[0] or self.ttft_ms[1] == np.inf
        return (
            self.still_growing
            and longer
            and min(self.piled_up / PILED_UP_MAX, self.piled_up_errors / PILED_UP_ERRORS) > 1
        )


def open_facts(cols: Columns, start_ns: float, end_ns: float, whole_run: bool) -> OpenFacts:
    """The facts of an open loop's rows in [start, end); of a whole run all rows count.

    What piled up in a whole run is told of the time in which its requests came, and not judged: it ends at the last.
    """
    planned, sent = cols["planned_ns"].astype(np.float64), cols["sent_ns"].astype(np.float64)
    # What failed before its first byte was tried when it was due: the failed share tells of it.
    tried = np.where(np.isnan(sent) & failures(cols), planned, sent)
    due = np.full(len(planned), True) if whole_run else _within(planned, start_ns, end_ns)
    out = ~np.isnan(tried) if whole_run else _within(tried, start_ns, end_ns)
    length_s = (end_ns - start_ns) / NS_PER_S
    waited = ~np.isnan(cols["refill_ns"].astype(np.float64))
    opening = np.nan_to_num(cols["connect_ns"].astype(np.float64))
    late_ms = ((sent - planned - opening) / NS_PER_MS)[out & ~waited & ~np.isnan(sent)]
    return OpenFacts(
        lateness_p99_ms=float(np.quantile(late_ms, 0.99)) if len(late_ms) else None,
        waited=int((out & waited).sum()),
        offered_per_s=rate_per_s(planned[due], None if whole_run else length_s),
        achieved_per_s=rate_per_s(tried[out], None if whole_run else length_s),
        missing=None if whole_run else int(due.sum() - out.sum()),
        served_per_s=_served_per_s(cols, start_ns, end_ns),
        burst=burst(tried[out]),
        cut=0 if whole_run else int((out & (cols["outcome"] == Outcome.CUT)).sum()),
        **(_pile(cols, *_came_in(planned)) if whole_run else _pile(cols, start_ns, end_ns)),
    )


def _served_per_s(cols: Columns, start_ns: float, end_ns: float) -> float | None:
    """Requests that end in a window tell less: of those that pile up most are half done."""
    lengths = cols["output_tokens"][cols["outcome"] == Outcome.OK].astype(np.float64)
    if end_ns <= start_ns or not np.nansum(lengths):
        return None
    return tokens_between(cols, start_ns, end_ns) / float(np.nanmean(lengths)) / ((end_ns - start_ns) / NS_PER_S)


def _within(stamps: np.ndarray, start: float, end: float) -> np.ndarray:
    return (stamps >= start) & (stamps < end)


def rate_per_s(stamps_ns: np.ndarray, length_s: float | None) -> float | None:
    """Requests a second in a window of `length_s`; without one, from the first to the last of them."""
    if length_s is not None:
        return len(stamps_ns) / length_s if length_s > 0 else None
    span_s = float(np.ptp(stamps_ns)) / NS_PER_S if len(stamps_ns) else 0.0
    return (len(stamps_ns) - 1) / span_s if span_s else None


def burst(sent_ns: np.ndarray) -> int:
    """The most requests sent in any BURST_S."""
    ordered = np.sort(sent_ns)
    ends = np.searchsorted(ordered, ordered + BURST_S * NS_PER_S, side="left")
    return int((ends - np.arange(len(ordered))).max(initial=0))


def _pile(cols: Columns, start_ns: float, end_ns: float) -> dict[str, Any]:
    """How the number of requests in the system changed over the thirds of a window, against chance.

    In a steady system it is L on average, and its mean over a third in which n requests come has a variance of
    L^2 c / n; c is 1 for Poisson arrivals of equal requests, else the squared coefficients of variation of the gaps and
    of the durations (M/G/infinity, whose autocovariance adds up to L E[D^2] / E[D]).
    """
    if end_ns <= start_ns:
        return {}
    came, done = _came(cols), cols["done_ns"].astype(np.float64)
    inside = np.flatnonzero(_within(came, start_ns, end_ns))
    edges = np.linspace(start_ns, end_ns, 4)
    thirds = [_in_system(came, done, low, high) for low, high in pairwise(edges)]
    ttft_ms = (cols["first_token_ns"].astype(np.float64) - came) / NS_PER_MS
    # Who had none when the Point ended would have waited for longer than can be told.
    waiting = np.isnan(ttft_ms) & np.isin(cols["outcome"].astype(str), (Outcome.CUT, Outcome.UNSENT))
    ttft_ms = np.where(waiting, np.inf, ttft_ms)
    medians = [_median(ttft_ms[_within(came, low, high)]) for low, high in ((edges[0], edges[1]), (edges[2], edges[3]))]
    if len(inside) < 6 or None in medians or not any(thirds):
        return {}
    spread = _cv2(np.diff(np.sort(came[inside]))) + _cv2((done - came)[inside])
    # The mean of all three: one third alone may be nearly empty by chance.
    error = float(np.mean(thirds) * np.sqrt(2 * max(spread, 1.0) / (len(inside) / 3)))
    grown = thirds[2] - thirds[0]
    return {
        "piled_up": 1.5 * grown / len(inside),  # the middles of the outer thirds are two thirds of the window apart
        "piled_up_errors": grown / error,
        "still_growing": thirds[0] < thirds[1] < thirds[2],
        "ttft_ms": tuple(medians),
    }


def _came_in(planned: np.ndarray) -> tuple[float, float]:
    """From the first to the last request's time (ns); (0, 0) where there is none."""
    return (float(np.nanmin(planned)), float(np.nanmax(planned))) if len(planned) else (0.0, 0.0)


def _came(cols: Columns) -> np.ndarray:
    """When each request came into the system (ns): when it was due, but for what the client alone held it back.

    NaN: never, since only the client's slowness kept it from being sent.
    """
    planned, sent = cols["planned_ns"].astype(np.float64), cols["sent_ns"].astype(np.float64)
    waited = ~np.isnan(cols["refill_ns"].astype(np.float64))
    opening = np.nan_to_num(cols["connect_ns"].astype(np.float64))
    came = np.where(waited | np.isnan(sent), planned, sent - opening)
    # What was not sent at all waited for a place where others did.
    return came if waited.any() else np.where(cols["outcome"] == Outcome.UNSENT, np.nan, came)


def _in_system(came: np.ndarray, done: np.ndarray, low: float, high: float) -> float:
    """Mean number of requests in the system between two moments; what never ended stays in it."""
    until = np.where(np.isnan(done), high, done)
    return float(np.nansum(np.maximum(np.minimum(until, high) - np.maximum(came, low), 0)) / (high - low))


def _median(values: np.ndarray) -> float | None:
    # No quantile: between two infinite waits that finds none.
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _cv2(values: np.ndarray) -> float:
    """The squared coefficient of variation."""
    known = values[~np.isnan(values)]
    mean = float(np.mean(known)) if len(known) else 0.0
    return float(np.var(known)) / mean**2 if mean else 0.0


def findings(f: OpenFacts, whole_run: bool) -> list[Finding]:
    """What the rules of open loop say."""
    return [*_overload(f, whole_run), *_rate_held(f), *_lateness(f)]


def _overload(f: OpenFacts, whole_run: bool) -> list[Finding]:
    """Both must rise: in-flight alone may by chance, TTFT alone by a pause of the server."""
    enough = "" if f.served_per_s is None else f" (its tokens were those of {f.served_per_s:.3g} requests a second)"
    bound, mend = ("", "lower load.rate")
    if f.waited:  # more at once might be served, nobody knows
        bound, mend = " with load.max_in_flight requests at once", "raise load.max_in_flight or lower load.rate"
    advice = f"the rate is above what the server can serve{bound}, and no latency has a steady value; {mend}{enough}"
    if f.cut and not f.growing:
        late = "requests sent in the window had not ended long after it, and were cut; " + advice
        return [Finding("overload", f"{f.cut} not answered", "all", "", False, late)]
    note = ", if in flight and TTFT rise beyond chance"
    if f.growing and f.ttft_ms is not None:
        first, last = ("for ever" if ms == np.inf else f"{ms:.0f} ms" for ms in f.ttft_ms)
        note = f"; the first token took {first} in the first third of the time, {last} in the last"
    ok = None if whole_run else not f.growing
    return [Finding("overload", f.piled_up, PILED_UP_MAX, "share", ok, advice, note=note)]


def _rate_held(f: OpenFacts) -> list[Finding]:
    held = f.achieved_per_s / f.offered_per_s if f.achieved_per_s is not None and f.offered_per_s else None
    # One request more or less falls over an edge of the window by chance.
    by_chance = f.missing is not None and f.missing <= 1 and bool(held)
    ok = None if held is None else held >= RATE_HELD_MIN or by_chance
    waited = f"; {f.waited} waited for one of load.max_in_flight places" if f.waited else ""
    mend = "raise load.max_in_flight, lower the rate, or" if f.waited else "lower the rate, or"
    advice = f"not all were sent as planned: {mend} add workers (cluster.workers)"
    return [Finding("rate_held", held, RATE_HELD_MIN, "share", ok, advice, at_least=True, note=waited)]


def _lateness(f: OpenFacts) -> list[Finding]:
    advice = "the client was the bottleneck: use more workers or nodes (cluster.workers), or a quieter machine"
    late = f.lateness_p99_ms
    return [
        Finding(
            "lateness_p99",
            late,
            LATENESS_P99_MS_MAX,
            "ms",
            None if late is None else late <= LATENESS_P99_MS_MAX,
            advice,
        )
    ]
