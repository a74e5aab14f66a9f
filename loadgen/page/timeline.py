"""One Point over time, read from its rows, its health and what the server told, part by part.

Owns how rows become steps of time, whose number is bounded however long a Point was. Draws nothing (see strips).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from loadgen import series
from loadgen.columns import columns
from loadgen.counters import QUEUED_GAUGES, RUNNING_GAUGES
from loadgen.dataset import request_batches
from loadgen.page.strips import Samples, Timeline
from loadgen.pairing import Point

FINE_NS = 50_000_000
FINE_MAX = 24 * 3600 * 20  # a day of them; what comes later is put in the last one
STEPS_MAX = 70  # a verify step of many streams must not look like a pause
SAMPLES_MAX = 240
ROWS = ("outcome", "token_source", "output_tokens", "chunk_ns", "chunk_tokens", "sent_ns", "done_ns")


Counts = dict[str, np.ndarray]  # tokens, first bytes sent and ends in each fine step; they grow as rows come


def _add(counts: Counts, name: str, stamps: np.ndarray, weights: np.ndarray | None = None) -> None:
    """Count stamps (ns); those that never came are passed over."""
    known = ~np.isnan(stamps.astype(np.float64))
    places = np.clip(stamps[known] // FINE_NS, 0, FINE_MAX).astype(np.int64)
    more = np.bincount(places, None if weights is None else weights[known])
    counts[name] = _sum(counts[name], more)


def _sum(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    found = longer.astype(np.float64)
    found[: len(shorter)] += shorter
    return found


def read(point: Point, variant: str, level: str) -> Timeline:
    """The Point's timeline. Raises StorageError where its rows cannot be read."""
    folder, files = Path(point["folder"]), point["files"]
    counts: Counts = {name: np.zeros(1) for name in ("tokens", "sent", "ended")}
    for part in request_batches(folder / files["requests"], ROWS):
        cols = columns(part)
        _add(counts, "tokens", cols["chunk_ns"], series.chunk_tokens(cols))
        _add(counts, "sent", cols["sent_ns"])
        _add(counts, "ended", np.where(np.isnan(cols["sent_ns"].astype(np.float64)), np.nan, cols["done_ns"]))
    tokens, in_flight, step_ns = _steps(counts)
    zero_us, lag = _health(folder / (files.get("health") or ""))
    window = point.get("window") or {}
    known = window.get("start_s") is not None and window.get("end_s") is not None
    end_ns = step_ns * len(tokens)
    running, queued = _gauges(folder / (files.get("server_metrics") or ""), zero_us, end_ns)
    return Timeline(
        variant,
        level,
        str(folder),
        (float(window["start_s"]), float(window["end_s"])) if known else None,
        step_ns / series.NS_PER_S,
        tuple(float(value) for value in in_flight),
        tuple(float(value) for value in tokens),
        running,
        queued,
        lag,
    )


def _steps(counts: Counts) -> tuple[np.ndarray, np.ndarray, int]:
    """Tokens a second and requests in flight of each step, and a step's length, ns."""
    length = max(map(len, counts.values()))
    size = -(-length // STEPS_MAX)
    padded = {name: _sum(values, np.zeros(-(-length // size) * size)) for name, values in counts.items()}
    flying = np.cumsum(padded["sent"]) - np.cumsum(padded["ended"])
    step_ns = size * FINE_NS
    tokens = padded["tokens"].reshape(-1, size).sum(axis=1) / (step_ns / series.NS_PER_S)
    return tokens, flying.reshape(-1, size).mean(axis=1), step_ns


def _health(path: Path) -> tuple[float | None, Samples]:
    """The wall clock at the Point's begin, microseconds, and the longest loop lag of each second, ms."""
    if not path.is_file():
        return None, ()
    zero_us, lags = None, []
    for part in request_batches(path, ("t_ns", "utc", "loop_lag_ms")):
        cols = columns(part)
        offsets = cols["loop_lag_ms_offsets"]
        if zero_us is None and len(cols["t_ns"]):
            zero_us = float(cols["utc"][0].astype("datetime64[us]").astype(np.int64)) - cols["t_ns"][0] / 1000
        for place, moment in enumerate(cols["t_ns"]):
            mine = cols["loop_lag_ms"][offsets[place] : offsets[place + 1]]
            if len(mine):
                lags.append((float(moment) / series.NS_PER_S, float(mine.max())))
    return zero_us, tuple(lags)


def _gauges(path: Path, zero_us: float | None, end_ns: float) -> tuple[Samples, Samples]:
    """Requests that ran and that waited at the server, by the wall clocks of both; empty where it did not tell."""
    if zero_us is None or not path.is_file():
        return (), ()
    found: dict[str, dict[float, float]] = {"running": {}, "queued": {}}
    for part in request_batches(path, ("utc", "name", "value")):
        cols = columns(part)
        moments = (cols["utc"].astype("datetime64[us]").astype(np.int64) - zero_us) / 1e6
        inside = (moments >= 0) & (moments <= end_ns / series.NS_PER_S) & ~np.isnan(cols["value"])
        for name, gauges in (("running", RUNNING_GAUGES), ("queued", QUEUED_GAUGES)):
            for place in np.flatnonzero(inside & np.isin(cols["name"].astype(str), gauges)):
                moment = float(moments[place])  # several ranks or servers tell at the same moment
                found[name][moment] = found[name].get(moment, 0.0) + float(cols["value"][place])
    running, queued = (_thinned(sorted(found[name].items())) for name in ("running", "queued"))
    return running, queued


def _thinned(samples: Sequence[tuple[float, float]]) -> Samples:
    """The highest of each few: a short queue must not vanish."""
    size = -(-len(samples) // SAMPLES_MAX) or 1
    parts = (samples[place : place + size] for place in range(0, len(samples), size))
    return tuple((part[0][0], max(value for _, value in part)) for part in parts)
