"""What came when: tokens and requests in flight over time, from a Point's columns.

Pure. Owns how a token gets its moment; knows nothing of verdicts or of files. Times are nanoseconds since the Point
began; `cols` is what `columns.columns` makes of requests.parquet.
"""

from collections.abc import Mapping

import numpy as np

from loadgen.record import Outcome, failed

Columns = Mapping[str, np.ndarray]
NS_PER_S = 1e9
STREAMS_IN_STEP_MIN = 8  # fewer may meet by chance, and then prefill together only now and then


def in_window(cols: Columns, start_ns: float, end_ns: float) -> np.ndarray:
    """Which requests were sent in [start, end); one that failed before it could be sent counts by when it was due."""
    sent = cols["sent_ns"].astype(np.float64)
    unsent_failure = np.isnan(sent) & failures(cols)
    moment = np.where(unsent_failure, cols["planned_ns"], sent)
    return (moment >= start_ns) & (moment < end_ns)


def is_open(cols: Columns) -> bool:
    """Whether the requests came by a clock: then they have a rate."""
    return not bool(np.isnan(cols["rate"].astype(np.float64)).all())


def failures(cols: Columns) -> np.ndarray:
    """Which requests failed; ok, cut and unsent ones did not."""
    return np.array([failed(outcome) for outcome in cols["outcome"]], dtype=bool)


def chunk_counts(cols: Columns) -> np.ndarray:
    """How many events with output each request has."""
    return np.diff(cols["chunk_ns_offsets"])


def chunk_tokens(cols: Columns) -> np.ndarray:
    """Tokens of every event in `chunk_ns`.

    As the server told; else its request's tokens spread evenly over its events; else, for requests whose count never
    came (cut, broken off), as many a event as the others have, because an event is not a token.
    """
    counts = chunk_counts(cols)
    output = cols["output_tokens"].astype(np.float64)
    believed = cols["outcome"] != Outcome.MALFORMED
    source = cols["token_source"]
    counted = believed & (source != "events") & ~np.isnan(output) & (counts > 0)
    usual = output[counted].sum() / counts[counted].sum() if counted.any() else 1.0
    spread = np.where(counted, output / np.maximum(counts, 1), usual)
    told = np.where(np.repeat(believed, counts), cols["chunk_tokens"], np.nan)
    return np.where(np.isnan(told), np.repeat(spread, counts), told)


def tokens_between(cols: Columns, start_ns: float, end_ns: float) -> float:
    """Tokens stamped in [start, end), those of requests that failed or were cut later included."""
    inside = (cols["chunk_ns"] >= start_ns) & (cols["chunk_ns"] < end_ns)
    return float(chunk_tokens(cols)[inside].sum())


def series(cols: Columns, start_ns: float, end_ns: float, bin_s: float) -> np.ndarray:
    """Tokens in each whole bin of `bin_s` from start to end."""
    bins = int((end_ns - start_ns) / (bin_s * NS_PER_S) + 1e-9)
    edges = start_ns + np.arange(bins + 1) * bin_s * NS_PER_S
    if not bins:
        return np.zeros(0)
    place = np.searchsorted(edges, cols["chunk_ns"], side="right") - 1
    inside = (place >= 0) & (place < bins)
    return np.bincount(place[inside], weights=chunk_tokens(cols)[inside], minlength=bins)


def peak_events_per_s(cols: Columns, start_ns: float, end_ns: float) -> float | None:
    """Events a second of the busiest worker: p95 of its seconds in [start, end); None without a window or an event.

    Events, not reads: each of several in one read is still parsed, and reads merge when the client falls behind.
    """
    edges = np.arange(start_ns, end_ns, NS_PER_S)
    edges = np.append(edges[: max(1, int((end_ns - start_ns) / NS_PER_S))], end_ns)  # a last part joins its second
    if end_ns <= start_ns or not len(cols["chunk_ns"]):
        return None
    workers = np.repeat(cols["worker"], chunk_counts(cols))
    counts = [np.histogram(cols["chunk_ns"][workers == one], edges)[0] for one in np.unique(workers)]
    return max(float(np.quantile(count / np.diff(edges) * NS_PER_S, 0.95)) for count in counts)


def in_flight_mean(cols: Columns, start_ns: float, end_ns: float) -> float | None:
    """Mean number of requests in flight over [start, end); None for an empty span."""
    if end_ns <= start_ns:
        return None
    sent = cols["sent_ns"].astype(np.float64)
    done = np.where(np.isnan(cols["done_ns"]), end_ns, cols["done_ns"])
    overlap = np.minimum(done, end_ns) - np.maximum(sent, start_ns)
    return float(np.nansum(np.maximum(overlap, 0)) / (end_ns - start_ns))


def idle_spans(cols: Columns, start_ns: float, end_ns: float) -> tuple[np.ndarray, np.ndarray]:
    """When nothing was in flight in [start, end): where those times begin and where they end."""
    sent = cols["sent_ns"].astype(np.float64)
    known = ~np.isnan(sent)
    done = np.where(np.isnan(cols["done_ns"]), np.inf, cols["done_ns"])[known]
    order = np.argsort(sent[known])
    # Until when something of all that was sent before is in flight.
    begun = np.concatenate(([-np.inf], np.maximum.accumulate(done[order])))
    over = np.concatenate((sent[known][order], [np.inf]))
    begun, over = np.maximum(begun, start_ns), np.minimum(over, end_ns)
    idle = over > begun
    return begun[idle], over[idle]


def in_step(cols: Columns, start_ns: float, end_ns: float, concurrency: int | None) -> float | None:
    """How much the streams ask together: 0 where requests begin at any time, 1 where those of all streams do at once.

    Of the other streams, how many asked within a twentieth of a request's duration of each one sent in [start, end),
    less as many as do by chance. None in open loop, for few streams, and where nothing was sent or ended.
    """
    sent, took = cols["sent_ns"].astype(np.float64), cols["done_ns"].astype(np.float64) - cols["sent_ns"]
    known = np.sort(sent[~np.isnan(sent)])
    inside = known[(known >= start_ns) & (known < end_ns)]
    if concurrency is None or concurrency < STREAMS_IN_STEP_MIN or not len(inside) or np.isnan(took).all():
        return None
    near = float(np.nanmean(took)) / 20
    met = np.searchsorted(known, inside + near, "right") - np.searchsorted(known, inside - near, "left") - 1
    return max(0.0, (float(met.mean()) / (concurrency - 1) - 0.1) / 0.9)


def held_mean(cols: Columns, start_ns: float, end_ns: float, think_s: float) -> float | None:
    """Mean number of streams that are in use over [start, end): in flight, or between two turns of a conversation."""
    flying = in_flight_mean(cols, start_ns, end_ns)
    if flying is None or not think_s:
        return flying
    ends = np.where(cols["turn"] > 1, cols["planned_ns"].astype(np.float64), np.nan)
    overlap = np.minimum(ends, end_ns) - np.maximum(ends - think_s * NS_PER_S, start_ns)
    return flying + float(np.nansum(np.maximum(overlap, 0)) / (end_ns - start_ns))


def whole_run_span(cols: Columns) -> tuple[float, float]:
    """[first request sent, last output], the span of a run with a fixed count; (0, 0) when nothing came."""
    sent, last = cols["sent_ns"].astype(np.float64), cols["last_token_ns"].astype(np.float64)
    if np.isnan(sent).all() or np.isnan(last).all():
        return 0.0, 0.0
    return float(np.nanmin(sent)), float(np.nanmax(last)) + 1  # spans are half open; the last output is inside
