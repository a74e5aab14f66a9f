"""What the server, beside its answers, tells of one Point: its counters, its own average, its limits.

Owns how a Point's time is found on the server node's clock. Knows no rules: what is odd becomes a caveat elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loadgen import energy, launch, logged, objectives, summary
from loadgen.acceptance import Speculation, length_max
from loadgen.cell import Cell
from loadgen.counters import Series, Span, by_series, counted
from loadgen.launched import Launched
from loadgen.series import tokens_between, whole_run_span
from loadgen.window import Window
from server.claims import running_cap
from server.variant import ServerSpec, parse_version

CACHE_UNTOLD_LAST = (0, 5, 9)  # until here SGLang tells 0 cached tokens of every request under speculation

BEFORE_NS = 30_000_000_000  # rows so long before a Point begins hold a sample of everything that is sampled
LOG_S_MAX = 30.0  # a Point's part of the log, at most 64 MiB of it

Infos = Sequence[Mapping[str, Any] | None]


def numbers(
    cell: Cell, cols: Mapping[str, np.ndarray], begun_utc_ns: int, span: Window | None, infos: Infos, overloaded: bool
) -> dict[str, Any]:
    """The summary of a Point: its rows' numbers and what the server tells beside them."""
    begun_ns = launch.server_clock_ns(cell.launched, begun_utc_ns)
    series = by_series(row for row in cell.launched.metrics if row["t_mono_ns"] > begun_ns - BEFORE_NS)
    measured = (span.start_ns, span.end_ns) if span else whole_run_span(cols)
    summarized = summary.summarize(
        cols,
        *measured,
        concurrency=cell.level.concurrency,
        gpus=_gpus(cell.launched.spec, infos),
        whole_run=cell.counted,
        overloaded=overloaded,
        think_s=cell.conf.workload.think_s,
        told=_speculation(cell, series, _point(cols, begun_ns), _later(measured, begun_ns), infos),
    )
    tokens = tokens_between(cols, *measured)
    gpu = energy.devices(series, _later(measured, begun_ns), tokens)
    per_joule = {"tokens_per_joule": gpu["tokens_per_joule"] if gpu else None}
    if _hides_cache(cell.launched) and not summarized["cached_tokens_counters"]:
        summarized["cached_tokens_counters"] = None
    promised = objectives.figures(cell.conf.slo, cols, summarized, overloaded)
    return {**summarized, **promised, **per_joule, "gpu": gpu, "server_log": _logged(cell, infos)}


def _gpus(spec: ServerSpec, infos: Infos) -> int | None:
    """GPUs that share the throughput; None where nobody tells, or there are none."""
    if spec.on_cpu:
        return None
    sizes: list[Any] = [(info or {}).get("tp_size") for info in infos]
    return spec.devices if spec.engine != "external" else sum(sizes) if all(sizes) else None


def _speculation(cell: Cell, series: Sequence[Series], point_ns: Span, span_ns: Span, infos: Infos) -> Speculation:
    """What is known of speculation beside the requests' own counts; the rows of /metrics must have been collected."""
    told = counted(series, point_ns, span_ns, cell.counted)
    if not (infos[0] or {}).get("speculative_adaptive"):
        told = replace(told, zero_steps_share=None)  # servers without speculation show a gauge of 0 too
    average = _average(infos) if cell.flushed else None
    return Speculation(told, average, length_max(infos[0] or {}, cell.launched.spec.args, told))


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
    told = cols["cached_tokens"].astype(np.float64)
    if not _hides_cache(launched) or np.nansum(told) > 0:
        return cols
    return {**cols, "cached_tokens": np.full(len(told), np.nan)}


def _hides_cache(launched: Launched) -> bool:
    info = launched.endpoint.get("server_info") or {}
    old = info.get("version") is not None and parse_version(str(info["version"])) <= CACHE_UNTOLD_LAST
    return old and bool(info.get("speculative_algorithm"))


def before(launched: Launched) -> int:
    """Read the counters before a Point's first request; how many bytes the server's log has by then."""
    launch.sample(launched)
    return _log_end(launched)


def _log_end(launched: Launched) -> int:
    return int(launched.server.ask("log_end", wait_s_max=launch.ACTOR_S_MAX))


def _logged(cell: Cell, infos: Infos) -> dict[str, Any] | None:
    """What the server's log says of the Point's batches; None where there is no log, or no such line."""
    server, end = cell.launched.server, _log_end(cell.launched)
    found: dict[str, Any] | None = server.ask("logged", cell.log_start, end, wait_s_max=LOG_S_MAX)
    return found and {**found, "running_cap": running_cap(infos[0] or {})}


def caveats(numbers: Mapping[str, Any] | None, cell: Cell) -> list[str]:
    """What the server's log and its GPUs show against the Point."""
    known = numbers or {}
    return [*logged.caveats(known.get("server_log"), cell.level.concurrency), *energy.caveats(known.get("gpu"))]
