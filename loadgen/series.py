"""What came when: tokens and requests in flight over time, from a Point's columns.

Pure. Owns how a token gets its moment; knows nothing of verdicts or of files. Times are nanoseconds since the Point
began; `cols` is what `columns.columns` makes of requests.parquet.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from loadgen.record import Outcome, failed

Columns = Mapping[str, np.ndarray]
NS_PER_S, NS_PER_MS = 1e9, 1e6
STREAMS_IN_STEP_MIN = 8  # fewer may meet by chance, and then prefill together only now and then
EVENTS_AT_ONCE = 250_000  # in a part; what is made of them on the way takes some dozens of bytes each


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


def parts(cols: Columns) -> Iterator[dict[str, np.ndarray]]:
    """The same columns as views, some requests after the others: whole ones, of about EVENTS_AT_ONCE events together.

    A Point may have a hundred million events: nothing that is made of them but what is needed of all at once may be as
    long as they are.
    """
    offsets, first = cols["chunk_ns_offsets"], 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + EVENTS_AT_ONCE, side="right")) - 1)
        part = {name: values[first:last] for name, values in cols.items()}
        events = {name: cols[name][offsets[first] : offsets[last]] for name in ("chunk_ns", "chunk_tokens")}
        yield {**part, **events, "chunk_ns_offsets": offsets[first : last + 1] - offsets[first]}
        first = last


def with_tokens(cols: Columns) -> Iterator[tuple[Columns, np.ndarray]]:
    """The parts, each with the tokens of every event in its `chunk_ns`.

    As the server told; else its request's tokens spread evenly over its events; else, for requests whose count never
    came (cut, broken off), as many a event as the others have, because an event is not a token.
    """
    counts, believed = chunk_counts(cols), cols["outcome"] != Outcome.MALFORMED
    output = cols["output_tokens"].astype(np.float64)
    counted = believed & (cols["token_source"] != "events") & ~np.isnan(output) & (counts > 0)
    usual = output[counted].sum() / counts[counted].sum() if counted.any() else 1.0
    spread = np.where(counted, output / np.maximum(counts, 1), usual)
    for part in parts({**cols, "believed": believed, "spread": spread}):
        told = np.where(_of_events(part, "believed"), part["chunk_tokens"], np.nan)
        yield part, np.where(np.isnan(told), _of_events(part, "spread"), told)


def _of_events(part: Columns, name: str) -> np.ndarray:
    """A column of requests, once for each event."""
    return np.repeat(part[name], chunk_counts(part))


def _of_requests(part: Columns, values: np.ndarray) -> np.ndarray:
    """The sums over each request's events."""
    rows = chunk_counts(part)
    return np.bincount(np.repeat(np.arange(len(rows)), rows), values, len(rows))


def chunk_tokens(cols: Columns) -> np.ndarray:
    """Tokens of every event in `chunk_ns`."""
    return np.concatenate([np.zeros(0), *(tokens for _, tokens in with_tokens(cols))])


def request_tokens(cols: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of each request: of all its events, and of the first one alone (NaN where it has none)."""
    totals, firsts = [np.zeros(0)], [np.zeros(0)]
    for part, tokens in with_tokens(cols):
        first, some = np.full(len(part["outcome"]), np.nan), chunk_counts(part) > 0
        first[some] = tokens[part["chunk_ns_offsets"][:-1][some]]
        totals.append(_of_requests(part, tokens))
        firsts.append(first)
    return np.concatenate(totals), np.concatenate(firsts)


def chunk_gaps_ms(cols: Columns, rows: np.ndarray) -> np.ndarray:
    """All gaps between consecutive events with output of the same request, of the chosen rows."""
    gaps, filled = np.empty(int(np.maximum(chunk_counts(cols)[rows] - 1, 0).sum())), 0
    for part in parts({**cols, "chosen": rows}):
        counts, begins = chunk_counts(part), part["chunk_ns_offsets"][:-1]
        later = _of_events(part, "chosen")
        later[begins[counts > 0]] = False
        found = np.diff(part["chunk_ns"], prepend=0)[later] / NS_PER_MS
        gaps[filled : filled + len(found)] = found
        filled += len(found)
    return gaps


def tokens_between(cols: Columns, start_ns: float, end_ns: float) -> float:
    """Tokens stamped in [start, end), those of requests that failed or were cut later included."""
    found = [np.zeros(0)]
    for part, tokens in with_tokens(cols):
        inside = (part["chunk_ns"] >= start_ns) & (part["chunk_ns"] < end_ns)
        found.append(_of_requests(part, tokens * inside))
    return float(np.concatenate(found).sum())


def series(cols: Columns, start_ns: float, end_ns: float, bin_s: float) -> np.ndarray:
    """Tokens in each whole bin of `bin_s` from start to end."""
    bins = int((end_ns - start_ns) / (bin_s * NS_PER_S) + 1e-9)
    edges = start_ns + np.arange(bins + 1) * bin_s * NS_PER_S
    found = np.zeros(bins)
    for part, tokens in with_tokens(cols) if bins else ():
        place, inside = _placed(part["chunk_ns"], edges)
        np.add.at(found, place[inside], tokens[inside])
    return found


def _placed(stamps: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Between which edges each stamp lies, and which lie between any."""
    place = np.searchsorted(edges, stamps, side="right") - 1
    return place, (place >= 0) & (place < len(edges) - 1)


def peak_events_per_s(cols: Columns, start_ns: float, end_ns: float) -> float | None:
    """Events a second of the busiest worker: p95 of its seconds in [start, end); None without a window or an event.

    Events, not reads: each of several in one read is still parsed, and reads merge when the client falls behind.
    """
    edges = np.arange(start_ns, end_ns, NS_PER_S)
    edges = np.append(edges[: max(1, int((end_ns - start_ns) / NS_PER_S))], end_ns)  # a last part joins its second
    if end_ns <= start_ns or not len(cols["chunk_ns"]):
        return None
    workers, number = np.unique(cols["worker"], return_inverse=True)
    counts = np.zeros((len(workers), len(edges) - 1), np.int64)
    for part in parts({**cols, "number": number}):
        place, inside = _placed(part["chunk_ns"], edges)
        flat = _of_events(part, "number") * counts.shape[1] + place
        counts += np.bincount(flat[inside], minlength=counts.size).reshape(counts.shape)
    return float(np.quantile(counts / np.diff(edges) * NS_PER_S, 0.95, axis=1).max())


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
