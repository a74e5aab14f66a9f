"""What a server's counters and gauges said of a Point, from the rows of server_metrics.parquet.

Pure. Owns how a counter's rise over a span is read from samples a second apart; knows no engine but by the names of its
metrics. Times are nanoseconds on the server node's monotonic clock, that of the rows.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Row = Mapping[str, Any]
Span = tuple[float, float]

# SGLang counts tokens, requests and verify steps of a request when it has ended, vLLM its tokens and drafts each step.
COUNTERS: dict[str, tuple[str, ...]] = {
    "requests": ("sglang:num_requests_total", "vllm:request_success_total"),
    "prompt_tokens": ("sglang:prompt_tokens_total", "vllm:prompt_tokens_total"),
    "cached_tokens": ("sglang:cached_tokens_total", "vllm:prefix_cache_hits_total"),
    "generation_tokens": ("sglang:generation_tokens_total", "vllm:generation_tokens_total"),
    "verify_steps": ("sglang:spec_verify_calls_total",),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "retractions": ("sglang:num_retracted_requests_total", "vllm:num_preemptions_total"),
}
ACCEPT_GAUGE, THROUGHPUT_GAUGE = "sglang:spec_accept_length", "sglang:gen_throughput"
STEPS_GAUGE = "sglang:spec_num_steps"
RUNNING_GAUGES = ("sglang:num_running_reqs", "vllm:num_requests_running")
QUEUED_GAUGES = ("sglang:num_queue_reqs", "vllm:num_requests_waiting")
DEVICE = "gpu:"  # rows of devices have stamps of their own, also where the server did not answer


@dataclass(frozen=True)
class Counted:
    """What the server counted: rises over the measured span and over the whole Point, by the names of COUNTERS.

    A name is missing where the server has no such counter. `how` says how the span's edges were read.
    """

    span: Mapping[str, float] = field(default_factory=dict)
    point: Mapping[str, float] = field(default_factory=dict)
    how: str = "the server has no counters"
    accept_gauge: float | None = None  # mean over the span's tokens of the server's own figure
    draft_steps_max: float | None = None  # the most steps that adaptive speculation took in the span
    zero_steps_share: float | None = None  # of the span's samples, those in which it drafted nothing


@dataclass(frozen=True)
class Series:
    """One metric with one set of labels: its samples in order of time, and when its server was read at all."""

    name: str
    labels: Mapping[str, str]
    times: np.ndarray
    values: np.ndarray
    read: np.ndarray


def counted(series: Sequence[Series], point_ns: Span, span_ns: Span, whole_run: bool) -> Counted:
    """The counters' rises over a Point and over its measured span.

    `point_ns` is from before its first request to after its last: nothing runs at its edges, so they are taken at the
    samples around it. A window's edges lie between samples, where a counter is taken to rise evenly. A whole run
    (`whole_run`) has the Point's own edges.
    """
    around = _around(series, point_ns)
    if around is None:
        return Counted()
    point = _rises(series, around)
    steps = gauge(series, STEPS_GAUGE, span_ns)
    return Counted(
        span=point if whole_run else _rises(series, span_ns),
        point=point,
        how="from the sample before the Point to the one after it"
        if whole_run
        else "over the window, evenly spread between samples",
        accept_gauge=_accept_gauge(series, span_ns),
        draft_steps_max=max(steps, default=None),
        zero_steps_share=sum(step == 0 for step in steps) / len(steps) if steps else None,
    )


def by_series(rows: Iterable[Row]) -> list[Series]:
    """The rows apart by name and labels. Values that are no numbers are left out."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        if not math.isnan(row["value"]):
            found.setdefault((row["name"], row["labels"]), []).append((row["t_mono_ns"], row["value"]))
    labels = {text: json.loads(text or "{}") for _, text in found}
    read: dict[Any, set[int]] = {}
    for (name, text), samples in found.items():
        if not name.startswith(DEVICE):
            read.setdefault(labels[text].get("endpoint"), set()).update(time for time, _ in samples)
    at = {endpoint: np.array(sorted(times), dtype=np.float64) for endpoint, times in read.items()}
    return [
        _series(name, labels[text], samples, at.get(labels[text].get("endpoint")))
        for (name, text), samples in found.items()
    ]


def _series(name: str, labels: Mapping[str, str], samples: list[tuple[int, float]], read: np.ndarray | None) -> Series:
    table = np.array(sorted(samples), dtype=np.float64)
    return Series(name, labels, table[:, 0], table[:, 1], np.zeros(0) if read is None else read)


def rise(one: Series, span_ns: Span) -> float:
    """How much a counter rose over a span, of which only what its samples cover is known.

    A fall is a new start from zero (Prometheus' own rule). A counter appears with its first event: in the samples of
    its server before that it was zero.
    """
    times, values = one.times, one.values
    earlier = one.read[one.read < times[0]]
    if len(earlier):
        times, values = np.concatenate(([earlier[-1]], times)), np.concatenate(([0.0], values))
    steps = np.diff(values)
    risen = np.concatenate(([0.0], np.cumsum(np.where(steps < 0, values[1:], steps))))
    start, end = np.interp(span_ns, times, risen)
    return float(end - start)


def gauge(series: Sequence[Series], name: str, span_ns: Span) -> list[float]:
    """Every sample of a gauge in the span, of all labels."""
    return [
        float(value)
        for one in series
        if one.name == name
        for value in one.values[(one.times >= span_ns[0]) & (one.times < span_ns[1])]
    ]


def _rises(series: Sequence[Series], span_ns: Span) -> dict[str, float]:
    """The rise of every counter that the server has, summed over its labels (versions add labels)."""
    totals: dict[str, float] = {}
    for name, metrics in COUNTERS.items():
        found = [rise(one, span_ns) for one in series if one.name in metrics]
        if found:
            totals[name] = sum(found)
    return totals


def _around(series: Sequence[Series], span_ns: Span) -> Span | None:
    """From the last sample before the span, of the server that was read first, to the last after it.

    None without samples at both edges: a rise since an unknown value says nothing.
    """
    reads = [one.read for one in series if len(one.read)]
    before = [read[read <= span_ns[0]] for read in reads]
    after = [read[read >= span_ns[1]] for read in reads]
    if not reads or not all(map(len, before)) or not all(map(len, after)):
        return None
    return min(float(read[-1]) for read in before), max(float(read[0]) for read in after)


def _accept_gauge(series: Sequence[Series], span_ns: Span) -> float | None:
    """The mean of the server's accept length over the span, weighted by verify steps: tokens over steps.

    Samples of a log interval: stale where nothing runs, 0 where there was no step. Without throughput all weigh alike.
    """
    lengths = np.array(gauge(series, ACCEPT_GAUGE, span_ns))
    speeds = np.array(gauge(series, THROUGHPUT_GAUGE, span_ns))
    weights = speeds if len(speeds) == len(lengths) else np.ones(len(lengths))
    known = (lengths > 0) & (weights > 0)
    return float(weights[known].sum() / (weights[known] / lengths[known]).sum()) if known.any() else None


def accept_length(rises: Mapping[str, float]) -> float | None:
    """Tokens a verify step by the counters; None where they do not tell.

    SGLang: (tokens - requests) / verify steps, because the prefill gives each request one token without a step. vLLM's
    own definition: 1 + accepted draft tokens / drafts.
    """
    if rises.get("verify_steps") and {"generation_tokens", "requests"} <= rises.keys():
        return (rises["generation_tokens"] - rises["requests"]) / rises["verify_steps"]
    if rises.get("drafts") and "accepted_tokens" in rises:
        return 1 + rises["accepted_tokens"] / rises["drafts"]
    return None
