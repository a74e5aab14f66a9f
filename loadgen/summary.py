"""The numbers of one Point, with their intervals.

Pure. Owns the definition of every figure that is printed or written to point.json; knows nothing of whether the Point
may be believed. Latencies are of requests that ended well and were sent in the window; tokens are those stamped in it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from loadgen import acceptance
from loadgen.acceptance import Speculation
from loadgen.openloop import open_facts
from loadgen.record import CENSORED, Outcome
from loadgen.series import (
    NS_PER_S,
    Columns,
    chunk_counts,
    chunk_gaps_ms,
    failures,
    held_mean,
    in_flight_mean,
    is_open,
    request_tokens,
    series,
    tokens_between,
    whole_run_span,
)
from loadgen.stats import BATCHES, LEVEL, mean_interval, quantile_interval, quantile_n_min

NS_PER_MS = 1e6
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
PROMPT_LENGTH_OFF_MAX = 0.2  # beyond, the rule of thumb by which prompts are made does not fit the server's tokenizer
WITHHELD = ("p99",)  # a guess from few requests misleads most here; p50 and p90 are shown with their n


def summarize(
    cols: Columns,
    window_start_ns: float,
    window_end_ns: float,
    *,
    concurrency: int | None,
    gpus: int | None,
    whole_run: bool,
    overloaded: bool = False,
    think_s: float = 0.0,
    told: Speculation | None = None,
) -> dict[str, Any]:
    """The summary of a Point. Numbers that cannot be had are None.

    `whole_run`: every request counts and the window is from the first request sent to the last output. `overloaded`:
    the server did not keep up with the rate; latencies that only grew have no distribution, and none is given.
    `think_s` is the pause between turns, in which a stream counts as held. `told` is what the server tells of its
    speculation and its counters.
    """
    start, end = whole_run_span(cols) if whole_run else (window_start_ns, window_end_ns)
    length_s = (end - start) / NS_PER_S
    counted = np.full(len(cols["outcome"]), True) if whole_run else cols["in_window"]
    good = counted & (cols["outcome"] == Outcome.OK)
    timed = good & (not overloaded)
    tokens, first = request_tokens(cols)
    each = latencies(cols, tokens, first)
    times = {**_known(each, timed), "chunk_gap_ms": chunk_gaps_ms(cols, timed)}
    ever = (-np.inf, np.inf)  # a request's last event may come after its last output
    accepted = acceptance.acceptance(cols, good, ever if whole_run else (start, end), told or Speculation())
    return {
        **_counts(cols, counted),
        "whole_run": whole_run,
        "measured_s": length_s,
        **_rates(cols, start, end, gpus, times["tpot_ms"]),
        **_in_flight(cols, start, end, concurrency, think_s),
        **(_arrivals(cols, start, end, whole_run) if is_open(cols) else {}),
        **{name: distribution(values) for name, values in times.items()},
        **_tokens(cols, good, tokens),
        **accepted,
        "cached_tokens_counters": accepted["server_counters"]["measured"].get("cached_tokens"),
        "by_kind": by_kind(cols, good, timed, each, tokens, accepted["accept_length"] is not None),
        "intervals": _intervals(cols, start, end, times, whole_run),
    }


def _counts(cols: Columns, counted: np.ndarray) -> dict[str, Any]:
    """Requests that count, how they ended; `outcomes` is of all rows, also those outside the window."""
    sent = counted & (cols["outcome"] != Outcome.UNSENT)
    kinds, numbers = np.unique(cols["outcome"].astype(str), return_counts=True)
    return {
        "requests": int(sent.sum()),
        "failed": int((sent & failures(cols)).sum()),
        "censored": int((sent & np.isin(cols["outcome"].astype(str), sorted(CENSORED))).sum()),
        "short": int((sent & cols["short"]).sum()),
        "outcomes": {str(kind): int(number) for kind, number in zip(kinds, numbers, strict=True)},
    }


def _rates(cols: Columns, start: float, end: float, gpus: int | None, tpot_ms: np.ndarray) -> dict[str, float | None]:
    length_s = (end - start) / NS_PER_S
    per_stream = _mean_or_median(1000 / tpot_ms[tpot_ms > 0], np.median)
    if length_s <= 0:
        names = ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s", "tokens_per_s_per_gpu")
        return {**dict.fromkeys(names), "tokens_per_s_per_stream": per_stream}
    output = tokens_between(cols, start, end)
    # A prompt's tokens count when its first output came: by then all of them have been worked through.
    prompts = float(np.nansum(cols["prompt_tokens"][_within(cols["first_token_ns"], start, end)]))
    ended = _within(cols["last_token_ns"], start, end) & (cols["outcome"] == Outcome.OK)
    return {
        "output_tokens_per_s": output / length_s,
        "total_tokens_per_s": (output + prompts) / length_s,
        "requests_per_s": float(ended.sum()) / length_s,
        "tokens_per_s_per_stream": per_stream,
        "tokens_per_s_per_gpu": output / length_s / gpus if gpus else None,
    }


def _within(stamps: np.ndarray, start: float, end: float) -> np.ndarray:
    return (stamps >= start) & (stamps < end)


def _in_flight(
    cols: Columns, start: float, end: float, concurrency: int | None, think_s: float
) -> dict[str, float | None]:
    mean, held = in_flight_mean(cols, start, end), held_mean(cols, start, end, think_s)
    return {
        "in_flight_mean": mean,
        "concurrency_held": held / concurrency if held is not None and concurrency else None,
    }


def _arrivals(cols: Columns, start: float, end: float, whole_run: bool) -> dict[str, Any]:
    """How the requests came, beside how they should have."""
    facts = open_facts(cols, start, end, whole_run)
    return {
        "offered_per_s": facts.offered_per_s,
        "achieved_per_s": facts.achieved_per_s,
        "waited": facts.waited,
        "sent_in_100_ms_max": facts.burst,
        "piled_up": facts.piled_up,
        "growing": facts.growing,
    }


def request_times(cols: Columns, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The latencies of the chosen requests, in milliseconds, one value a request that has it."""
    return _known(latencies(cols, *request_tokens(cols)), rows)


def _known(each: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows & ~np.isnan(values)] for name, values in each.items()}


def latencies(cols: Columns, tokens: np.ndarray, first_tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The latencies of whole requests, in milliseconds, one value a request; NaN where it has none.

    `tokens` and `first_tokens` are what `request_tokens` makes of the same columns.
    """
    sent, first = cols["sent_ns"].astype(np.float64), cols["first_token_ns"]
    times = {
        "ttft_ms": (first - sent) / NS_PER_MS,
        "first_answer_ms": (cols["first_answer_ns"] - sent) / NS_PER_MS,
        "tpot_ms": tpot_ms(cols, tokens, first_tokens),
        "e2e_ms": (cols["last_token_ns"] - sent) / NS_PER_MS,
    }
    if is_open(cols):
        # From the moment a request was due: no waiting is left out, wherever it waited.
        planned = cols["planned_ns"].astype(np.float64)
        times["ttft_planned_ms"] = (first - planned) / NS_PER_MS
        times["e2e_planned_ms"] = (cols["last_token_ns"] - planned) / NS_PER_MS
        times["lateness_ms"] = (sent - planned) / NS_PER_MS
    return times


def tpot_ms(cols: Columns, tokens: np.ndarray, first_tokens: np.ndarray) -> np.ndarray:
    """Time per output token of each request: (last - first output) / (tokens after the first event); NaN where none."""
    told = cols["output_tokens"].astype(np.float64)
    # A last token may come without an event of its own (an end-of-sequence token): usage counts it.
    total = np.where((cols["outcome"] == Outcome.OK) & (told > tokens), told, tokens)
    after = total - first_tokens
    span = (cols["last_token_ns"] - cols["first_token_ns"]).astype(np.float64)
    timed = (chunk_counts(cols) > 1) & (after > 0)
    return np.divide(span / NS_PER_MS, after, out=np.full(len(after), np.nan), where=timed)


def distribution(values: np.ndarray) -> dict[str, float | int | None]:
    """Mean, quantiles and n of a sample; p99 only from as many values as an interval for it needs.

    The values are in another order afterwards: a copy of all gaps between events would be as much as the events are.
    """
    found: dict[str, float | int | None] = {"mean": _mean_or_median(values, np.mean), **dict.fromkeys(QUANTILES)}
    found["n"] = len(values)
    for name, q in QUANTILES.items():
        if len(values) >= (quantile_n_min(q) if name in WITHHELD else 1):
            found[name] = float(np.quantile(values, q, overwrite_input=True))
    return found


def _mean_or_median(values: np.ndarray, of: Callable[[np.ndarray], Any]) -> float | None:
    return float(of(values)) if len(values) else None


def _tokens(cols: Columns, good: np.ndarray, tokens: np.ndarray) -> dict[str, Any]:
    """Token counts of the requests that ended well, and where they came from."""
    return {
        "tokens_per_chunk": tokens_per_chunk(cols, good, tokens),
        "output_tokens_mean": _nanmean(cols["output_tokens"][good]),
        "prompt_tokens_mean": _nanmean(cols["prompt_tokens"][good]),
        "planned_prompt_tokens_mean": _nanmean(cols["planned_prompt_tokens"][good]),
        "cached_tokens": _nansum(cols["cached_tokens"][good]),
        "cached_share": cached_share(cols, good),
        "token_sources": sorted({str(source) for source in cols["token_source"][good] if source is not None}),
    }


def caveats(numbers: Mapping[str, Any] | None) -> list[str]:
    """What a Point's summary says against taking its workload, or its latencies, for what was asked."""
    known = numbers or {}
    found = [*acceptance.caveats(known)]
    told, asked = known.get("prompt_tokens_mean"), known.get("planned_prompt_tokens_mean")
    if told and asked and abs(told / asked - 1) > PROMPT_LENGTH_OFF_MAX:
        found.append(
            f"prompts were to have about {asked:.0f} tokens, the server counted {told:.0f}: "
            "its tokenizer is not the usual four characters a token"
        )
    if known.get("whole_run") and known.get("growing"):
        found.append(
            f"requests piled up while they came ({100 * known['piled_up']:.0f} % of them): "
            "latencies are those of this count, and grow with it (load.requests)"
        )
    return found


def cached_share(cols: Columns, rows: np.ndarray) -> float | None:
    """Prompt tokens that the server found in its cache, of all of those chosen rows that tell; None where none does."""
    prompt, cached = cols["prompt_tokens"][rows], cols["cached_tokens"][rows]
    known = ~np.isnan(cached.astype(np.float64))
    prompt_known = float(np.nansum(prompt[known]))
    return float(np.nansum(cached[known])) / prompt_known if prompt_known else None


def _nansum(values: np.ndarray) -> float | None:
    return float(np.nansum(values)) if len(values) and not np.isnan(values.astype(np.float64)).all() else None


def _nanmean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values.astype(np.float64))]
    return _mean_or_median(known, np.mean)


def tokens_per_chunk(cols: Columns, rows: np.ndarray, tokens: np.ndarray) -> float | None:
    """Output tokens of the chosen rows (`tokens` has those of each request) over their events with output."""
    chunks = int(chunk_counts(cols)[rows].sum())
    return float(tokens[rows].sum()) / chunks if chunks else None


def by_kind(
    cols: Columns,
    good: np.ndarray,
    timed: np.ndarray,
    each: Mapping[str, np.ndarray],
    tokens: np.ndarray,
    speculates: bool,
) -> dict[str, dict[str, Any]]:
    """The figures that depend on what is asked, for each kind of prompt; latencies of the rows in `timed`.

    `each` has the latencies of all rows, `tokens` their tokens.
    """
    found = {}
    for kind in sorted({str(kind) for kind in cols["prompt_kind"] if kind is not None}):
        rows = good & (cols["prompt_kind"] == kind)
        times, per_chunk = _known(each, rows & timed), tokens_per_chunk(cols, rows, tokens)
        found[kind] = {
            "requests": int(rows.sum()),
            "tokens_per_chunk": per_chunk,
            **acceptance.by_kind(cols, rows, per_chunk, speculates),
            "ttft_ms": distribution(times["ttft_ms"]),
            "tpot_ms": distribution(times["tpot_ms"]),
        }
    return found


def _intervals(
    cols: Columns, start: float, end: float, times: dict[str, np.ndarray], whole_run: bool
) -> dict[str, Any]:
    """95 % intervals within the run. Chunk gaps have none: they are too dependent on each other for one."""
    # A whole run holds its own ramp and drain: its parts are not repetitions of each other.
    bins = np.zeros(0) if whole_run or end <= start else series(cols, start, end, (end - start) / BATCHES / NS_PER_S)
    rate = mean_interval(bins * BATCHES * NS_PER_S / (end - start)) if len(bins) else None
    found: dict[str, Any] = {
        "level": LEVEL,
        "scope": "within run",
        "output_tokens_per_s": list(rate) if rate else None,
    }
    for name in (name for name in times if name != "chunk_gap_ms"):
        limits = {quantile: quantile_interval(times[name], q) for quantile, q in QUANTILES.items()}
        found[name] = {quantile: list(limit) if limit else None for quantile, limit in limits.items()}
    return found
