"""A Point's figures over the time of its window, from its files: one value for each of judging's blocks.

Read in parts, since the events of half an hour do not fit into every memory.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from judging import BLOCKS

from loadgen.columns import columns
from loadgen.dataset import request_batches

NS, MS = 1e9, 1e6
GAP_BINS, GAP_BIN_MS = 40_000, 0.01  # longer gaps count as the last one
TTFT = ("sent_ns", "first_token_ns", "in_window", "outcome")


@dataclass(frozen=True)
class Told:
    """What a Point's files say: its window on the wall clock, its rows, and each figure by block."""

    start_s: float
    end_s: float
    requests: int
    tokens: int
    sent_per_s: float
    by_block: dict[str, np.ndarray]
    machine: dict[str, np.ndarray] = field(default_factory=dict)  # what machine.py tells of the same blocks

    @property
    def block_min(self) -> float:
        """Minutes of one block."""
        return (self.end_s - self.start_s) / BLOCKS / 60


def read(point_file: Path) -> Told:
    """The figures of a Point that had a window."""
    point = json.loads(point_file.read_text())
    start_ns, end_ns = (point["window"][name] * NS for name in ("start_s", "end_s"))
    rows = _requests(point_file.with_name("requests.parquet"), start_ns, end_ns)
    lags = _lags(point_file.with_name("health.parquet"), start_ns, end_ns)
    return Told(
        begun_s(point) + start_ns / NS,
        begun_s(point) + end_ns / NS,
        rows["requests"],
        rows["tokens"],
        rows["sent"] / ((end_ns - start_ns) / NS),
        {**rows["figures"], **lags},
    )


def begun_s(point: dict[str, Any]) -> float:
    """When the Point began, seconds since 1970."""
    return datetime.fromisoformat(point["started_at"]).timestamp()


def _block(stamps: np.ndarray, start_ns: float, end_ns: float) -> np.ndarray:
    """Which block each stamp falls into; those outside the window are negative or too large."""
    return np.floor((stamps - start_ns) / (end_ns - start_ns) * BLOCKS).astype(int)


def _requests(path: Path, start_ns: float, end_ns: float) -> dict[str, Any]:
    requests = tokens = sent = 0
    gaps, drawn = np.zeros((BLOCKS, GAP_BINS), np.int64), np.zeros(BLOCKS)
    waited: list[list[np.ndarray]] = [[] for _ in range(BLOCKS)]
    for part in request_batches(path, (*TTFT, "chunk_ns", "output_tokens")):
        cols = columns(part)
        requests += len(cols["sent_ns"])
        tokens += int(np.nansum(cols["output_tokens"]))
        sent += int(cols["in_window"].sum())
        drawn += _count(cols["chunk_ns"], start_ns, end_ns)
        gaps += _gaps(cols, start_ns, end_ns)
        good = cols["in_window"] & (cols["outcome"] == "ok")
        place = _block(cols["sent_ns"][good], start_ns, end_ns)
        ttft = (cols["first_token_ns"] - cols["sent_ns"])[good] / MS
        for one in range(BLOCKS):
            waited[one].append(ttft[place == one])
    each_s = (end_ns - start_ns) / NS / BLOCKS
    ttfts = [np.concatenate(one) for one in waited]
    return {
        "requests": requests,
        "tokens": tokens,
        "sent": sent,
        "figures": {
            "events/s": drawn / each_s,
            "TTFT p50, ms": _quantiles(ttfts, 0.5),
            "TTFT p90, ms": _quantiles(ttfts, 0.9),
            "chunk gap p50, ms": _gap_quantile(gaps, 0.5),
            "chunk gap p99, ms": _gap_quantile(gaps, 0.99),
        },
    }


def _quantiles(parts: Sequence[np.ndarray], q: float) -> np.ndarray:
    """One value a block; NaN where nothing fell into it, as when streams in step ask together."""
    return np.array([np.quantile(one, q) if len(one) else np.nan for one in parts])


def _count(stamps: np.ndarray, start_ns: float, end_ns: float) -> np.ndarray:
    place = _block(stamps, start_ns, end_ns)
    return np.bincount(place[(place >= 0) & (place < BLOCKS)], minlength=BLOCKS)


def _gaps(cols: dict[str, np.ndarray], start_ns: float, end_ns: float) -> np.ndarray:
    """How many gaps of each length ended in each block."""
    stamps = cols["chunk_ns"]
    same = np.full(max(0, len(stamps) - 1), True)
    inner = cols["chunk_ns_offsets"][1:-1]
    same[inner[(inner > 0) & (inner < len(stamps))] - 1] = False
    place = _block(stamps[1:], start_ns, end_ns)
    counted = same & (place >= 0) & (place < BLOCKS)
    size = np.minimum(np.diff(stamps) / MS / GAP_BIN_MS, GAP_BINS - 1).astype(int)
    flat = place[counted] * GAP_BINS + size[counted]
    return np.bincount(flat, minlength=BLOCKS * GAP_BINS).reshape(BLOCKS, GAP_BINS)


def _gap_quantile(gaps: np.ndarray, q: float) -> np.ndarray:
    below = np.cumsum(gaps, axis=1)
    return np.array([np.searchsorted(one, q * one[-1]) * GAP_BIN_MS for one in below])


def _lags(path: Path, start_ns: float, end_ns: float) -> dict[str, np.ndarray]:
    """The workers' loop lag and CPU."""
    lag: list[list[np.ndarray]] = [[] for _ in range(BLOCKS)]
    cpu: list[list[np.ndarray]] = [[] for _ in range(BLOCKS)]
    for part in request_batches(path, ("t_ns", "loop_lag_ms", "cpu_share")):
        cols = columns(part)
        row = _block(cols["t_ns"], start_ns, end_ns)
        probe = np.repeat(row, np.diff(cols["loop_lag_ms_offsets"]))
        for one in range(BLOCKS):
            lag[one].append(cols["loop_lag_ms"][probe == one])
            cpu[one].append(cols["cpu_share"][row == one])
    lags = [np.concatenate(one) for one in lag]
    return {
        "loop lag p50, ms": _quantiles(lags, 0.5),
        "loop lag p99, ms": _quantiles(lags, 0.99),
        "worker CPU, cores": _quantiles([np.concatenate(one) for one in cpu], 0.5),
    }
