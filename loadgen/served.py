"""What the server, beside its answers, tells of one Point: its counters, its own average, its limits.

Owns how a Point's time is found on the server node's clock. Knows no rules: what is odd becomes a caveat elsewhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadgen import launch
from loadgen.acceptance import Speculation, length_max
from loadgen.cell import Cell
from loadgen.counters import Span, counted
from loadgen.launched import Launched
from loadgen.series import whole_run_span
from loadgen.window import Window
from server.variant import parse_version

CACHE_UNTOLD_LAST = (0, 5, 9)  # until here SGLang tells 0 cached tokens of every request under speculation

Infos = Sequence[Mapping[str, Any] | None]


def speculation(
    cell: Cell, cols: Mapping[str, np.ndarray], begun_utc_ns: int, span: Window | None, infos: Infos
) -> Speculation:
    """What is known of speculation beside the requests' own counts; the rows of /metrics must have been collected."""
    launched, info = cell.launched, infos[0] or {}
    begun_ns = launch.server_clock_ns(launched, begun_utc_ns)
    measured = (span.start_ns, span.end_ns) if span else whole_run_span(cols)
    told = counted(launched.metrics, _point(cols, begun_ns), _later(measured, begun_ns), cell.counted)
    return Speculation(told, _average(infos) if cell.flushed else None, length_max(info, launched.spec.args, told))


def _later(span_ns: Span, by_ns: float) -> Span:
    return span_ns[0] + by_ns, span_ns[1] + by_ns


def _point(cols: Mapping[str, np.ndarray], begun_ns: float) -> Span:
    """From the Point's begin to the end of its last request, on the server node's clock."""
    ends = cols["done_ns"].astype(np.float64)
    return begun_ns, begun_ns + (float(np.nanmax(ends)) if len(ends) and not np.isnan(ends).all() else 0.0)


def _average(infos: Infos) -> float | None:
    """The server's own average accept length since the flush.

    Averages of several servers cannot be averaged: none tells of how many tokens its own is.
    """
    states = (infos[0] or {}).get("internal_states") or [{}]
    average = states[0].get("avg_spec_accept_length") if isinstance(states[0], dict) and len(infos) == 1 else None
    return float(average) if average else None


def with_cache_as_told(launched: Launched, cols: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns with `cached_tokens` unknown where this engine tells 0 whatever it found in its cache."""
    info = launched.endpoint.get("server_info") or {}
    old = info.get("version") is not None and parse_version(str(info["version"])) <= CACHE_UNTOLD_LAST
    told = cols["cached_tokens"].astype(np.float64)
    if not old or not info.get("speculative_algorithm") or np.nansum(told) > 0:
        return cols
    return {**cols, "cached_tokens": np.full(len(told), np.nan)}
