"""The facts of one Point, gathered from its rows for the verdict.

Pure. Owns which rows and samples a fact is taken from; knows no limits (see verdict.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadgen.agreement import Agreement, agreement
from loadgen.clocks import Start
from loadgen.config import Load
from loadgen.openloop import OpenFacts, open_facts
from loadgen.record import PROBE_S, Outcome
from loadgen.series import (
    EVENTS_AT_ONCE,
    NS_PER_S,
    Columns,
    chunk_counts,
    failures,
    held_mean,
    idle_spans,
    in_step,
    is_open,
    peak_events_per_s,
    series,
    whole_run_span,
)
from loadgen.stats import MSER_BATCH, halves, mser5, quantile, slope_per_min
from loadgen.summary import cached_share
from loadgen.window import Window
from server.proof import Contradiction

NS_PER_MS = 1e6
REFILLS_FOR_P99 = 100
BINS = 40  # twenty in each half: with ten, one request's begin in a bin too many hides a slow warm-up
MSER_BINS = 20 * MSER_BATCH
HEALTH_NAMES = ("t_ns", "duration_ns", "cpu_share", "gc_pause_max_ms", "descriptors", "descriptors_max")


@dataclass(frozen=True)
class Facts:
    """What is known of one Point. None: not known. Shares are of 1; `steady` is None where it could not be tested."""

    requests: int  # sent in the window
    failed: int
    short: int
    failed_share_max: float
    short_share_max: float
    failure: str | None = None  # the commonest one in words
    whole_run: bool = False  # a fixed count: rules about a steady level are shown and not judged
    steady: bool | None = None
    halves_difference: float | None = None  # second half against first, share of the mean
    halves_standard_errors: float | None = None
    slope_per_min: float | None = None  # share of the mean
    slope_half_width: float | None = None
    mser_s: float | None = None  # what MSER-5 would still cut at the window's start
    concurrency_held: float | None = None  # mean in flight over the target; None in open loop
    in_step: float | None = None  # 0: requests begin at any time, 1: those of all streams together
    refill_ms: float | None = None  # p99, or p90 where `refill_few`
    refill_few: bool = False
    silence_s: float | None = None  # longest time in the window without an event of any stream
    window_s: float | None = None
    ttft_ms: float | None = None  # median
    request_ms: float | None = None  # mean from sent to done
    chunk_gap_ms: float | None = None  # median over requests of their mean gap between events
    open: OpenFacts | None = None  # None in closed loop
    loop_lag_p99_ms: float | None = None
    loop_lag_max_ms: float | None = None
    worker_cpu_p95: float | None = None  # of a core
    capacity_share: float | None = None  # of what calibration found for one worker, the busiest one's
    capacity_at_least: bool = False  # calibration found no limit, so a larger share proves nothing
    capacity_note: str = ""  # the figure and its day, or why there is none
    workers: Agreement | None = None
    gc_pause_max_ms: float | None = None
    descriptors_share: float | None = None
    chunks_per_read: float | None = None
    cached_share: float | None = None  # of the prompts' tokens
    sharing_meant: bool = False  # prompts begin alike on purpose
    contradictions: tuple[Contradiction, ...] = ()
    not_proven: tuple[str, ...] = ()  # what the server does not tell
    proof_needed: bool = True  # false for a server that is not ours: nothing is claimed of it
    start: Start | None = None  # None: one worker, or nobody told
    died: str | None = None  # how the server ended, when it did


def gather(
    cols: Columns,
    health_rows: Sequence[Mapping[str, Any]],
    span: Window | None,
    load: Load,
    concurrency: int | None,
    contradictions: Sequence[Any] = (),
    not_proven: Sequence[str] = (),
    **more: Any,
) -> Facts:
    """The facts of a Point as its driver has them; no span is a whole run. `more` goes to `facts_of`."""
    return facts_of(
        cols,
        health_columns(health_rows),
        (span.start_ns, span.end_ns) if span else None,
        concurrency=concurrency,
        failed_share_max=load.failed_share_max,
        short_share_max=load.short_share_max,
        contradictions=tuple(contradictions),
        not_proven=tuple(not_proven),
        **more,
    )


def health_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The columns of Health that facts are taken from."""
    cols = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in HEALTH_NAMES}
    lags = [np.asarray(row["loop_lag_ms"], dtype=np.float64) for row in rows]
    cols["loop_lag_ms"] = np.concatenate([np.zeros(0), *lags])
    cols["loop_lag_ms_offsets"] = np.cumsum([0, *map(len, lags)])
    return cols


def facts_of(
    cols: Columns,
    health: Columns,
    window_ns: tuple[float, float] | None,
    *,
    concurrency: int | None,
    failed_share_max: float,
    short_share_max: float,
    capacity_events_per_s: float | None = None,
    think_s: float = 0.0,
    **from_server: Any,
) -> Facts:
    """The facts of a Point: `cols` of requests.parquet, `health` of health.parquet, `window_ns` [start, end).

    No window is a whole run: its span is from the first request sent to the last output. `concurrency` is None in open
    loop. `capacity_events_per_s` is what calibration found for one worker. `from_server` are the fields of Facts that
    rows cannot tell: contradictions, not_proven, died, and what is known of the capacity.
    """
    whole_run = window_ns is None
    counted = np.full(len(cols["outcome"]), True) if whole_run else cols["in_window"]
    span_ns = whole_run_span(cols) if window_ns is None else window_ns
    sent = counted & (cols["outcome"] != Outcome.UNSENT)
    held = held_mean(cols, *span_ns, think_s)
    good = sent & (cols["outcome"] == Outcome.OK)
    peak = peak_events_per_s(cols, *span_ns)
    return Facts(
        requests=int(sent.sum()),
        failed=int((sent & failures(cols)).sum()),
        short=int((sent & cols["short"]).sum()),
        failed_share_max=failed_share_max,
        short_share_max=short_share_max,
        failure=_failure(cols, sent),
        whole_run=whole_run,
        concurrency_held=held / concurrency if concurrency and held is not None else None,
        in_step=in_step(cols, *span_ns, concurrency),
        **_refill(cols["refill_ns"][sent]),
        open=open_facts(cols, *span_ns, whole_run) if is_open(cols) else None,
        capacity_share=peak / capacity_events_per_s if peak and capacity_events_per_s else None,
        workers=agreement(cols, good),
        chunks_per_read=_chunks_per_read(cols, sent),
        cached_share=cached_share(cols, good),
        silence_s=_silence_s(cols, *span_ns, think_s),
        window_s=(span_ns[1] - span_ns[0]) / NS_PER_S,
        **_times(cols, good),
        **_steadiness(cols, *span_ns),
        **_client(health, *span_ns),
        **from_server,
    )


def _failure(cols: Columns, rows: np.ndarray) -> str | None:
    """The commonest way in which the chosen rows failed, in the server's words where it had any; None without one."""
    bad = rows & failures(cols)
    told = Counter(zip(cols["outcome"][bad], cols["error"][bad], strict=True))
    if not told:
        return None
    (outcome, error), count = told.most_common(1)[0]
    return f"{count} x {outcome}" + (f" ({error})" if error else "")


def _times(cols: Columns, good: np.ndarray) -> dict[str, Any]:
    """How long requests took, and the gap between their events: what the client's own delays are held against."""
    took = (cols["done_ns"].astype(np.float64) - cols["sent_ns"].astype(np.float64))[good]
    spans = cols["last_token_ns"].astype(np.float64) - cols["first_token_ns"].astype(np.float64)
    gaps = (spans / np.maximum(chunk_counts(cols) - 1, 1))[good]
    request_ms = float(took.mean()) / NS_PER_MS if len(took) else None
    ttft = (cols["first_token_ns"].astype(np.float64) - cols["sent_ns"].astype(np.float64))[good]
    return {
        "request_ms": request_ms,
        "chunk_gap_ms": quantile(gaps / NS_PER_MS, 0.5),
        "ttft_ms": quantile(ttft / NS_PER_MS, 0.5),
    }


def _silence_s(cols: Columns, start_ns: float, end_ns: float, think_s: float) -> float | None:
    """The longest time in the window in which no request had an event; None without a window.

    Times in which nobody asked are no silence: in open loop, and where users think between turns.
    """
    if end_ns <= start_ns:
        return None
    idle = is_open(cols) or think_s > 0
    begun, over = idle_spans(cols, start_ns, end_ns) if idle else (np.zeros(0), np.zeros(0))
    stamps = np.concatenate((cols["chunk_ns"], over, [start_ns, end_ns]), dtype=np.float64)
    np.clip(stamps, start_ns, end_ns, out=stamps)
    stamps.sort()
    # An idle time ends with a stamp of its own and holds no event: it lies in one gap, which is shorter by it.
    holding = np.searchsorted(stamps, over, side="left") - 1
    for first in range(0, len(stamps) - 1, EVENTS_AT_ONCE):  # to gaps in place: they are as many as all events
        piece = stamps[first : first + EVENTS_AT_ONCE + 1]
        piece[:-1] = np.diff(piece)
    gaps = stamps[:-1]
    np.subtract.at(gaps, holding, over - begun)
    return float(gaps.max()) / NS_PER_S


def _refill(refills: np.ndarray) -> dict[str, Any]:
    """The refill's p99; of few refills that is the longest one, which a pause of the machine decides: then p90."""
    refills_ms = refills.astype(np.float64) / NS_PER_MS
    few = int((~np.isnan(refills_ms)).sum()) < REFILLS_FOR_P99
    return {"refill_ms": quantile(refills_ms, 0.9 if few else 0.99), "refill_few": few}


def _chunks_per_read(cols: Columns, rows: np.ndarray) -> float | None:
    reads = float(np.nansum(cols["reads"][rows]))
    return float(chunk_counts(cols)[rows].sum()) / reads if reads else None


def _steadiness(cols: Columns, start_ns: float, end_ns: float) -> dict[str, Any]:
    """The tests of a steady level, from tokens in equal bins of the window."""
    length_s = (end_ns - start_ns) / NS_PER_S
    if length_s <= 0:
        return {}
    bins = series(cols, start_ns, end_ns, length_s / BINS)
    compared, slope = halves(bins), slope_per_min(bins, length_s / BINS)
    cut = mser5(series(cols, start_ns, end_ns, length_s / MSER_BINS))
    return {
        "steady": compared.steady if compared else None,
        "halves_difference": compared.difference if compared else None,
        "halves_standard_errors": compared.standard_errors if compared else None,
        "slope_per_min": slope[0] if slope else None,
        "slope_half_width": slope[1] if slope else None,
        "mser_s": cut * length_s / MSER_BINS if cut is not None else None,
    }


def _client(health: Columns, start_ns: float, end_ns: float) -> dict[str, Any]:
    """What the workers were doing, from the health rows that overlap the window; samples of all workers together."""
    inside = (health["t_ns"] > start_ns) & (health["t_ns"] - health["duration_ns"] < end_ns)
    lag_ms = health["loop_lag_ms"][np.repeat(inside, np.diff(health["loop_lag_ms_offsets"]))]
    return {
        "loop_lag_p99_ms": quantile(_at_any_moment(lag_ms), 0.99),
        "loop_lag_max_ms": quantile(lag_ms, 1),
        "worker_cpu_p95": quantile(health["cpu_share"][inside], 0.95),
        "gc_pause_max_ms": quantile(health["gc_pause_max_ms"][inside], 1),
        "descriptors_share": quantile((health["descriptors"] / health["descriptors_max"])[inside], 1),
    }


def _at_any_moment(lag_ms: np.ndarray) -> np.ndarray:
    """The lags with those of the probes that long pauses kept from being sent: each would have waited for the end too.

    Without them a pause of 50 ms counts once, like one of 5 ms, though it bends ten times as many stamps. The longest
    one counts once all the same: it has a limit of its own, and one pause of the machine is no habit of the client's.
    """
    swallowed = np.floor(lag_ms / (PROBE_S * 1000)).astype(int)
    if len(swallowed):
        swallowed[np.argmax(lag_ms)] = 0
    earlier = [np.arange(1, count + 1) * PROBE_S * 1000 for count in swallowed]
    return np.concatenate([lag_ms, np.repeat(lag_ms, swallowed) - np.concatenate([np.zeros(0), *earlier])])
