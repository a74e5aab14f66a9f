"""Made-up Points: the content of point.json as far as a comparison reads it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# The study's tables: output tokens a second by concurrency.
STUDY = {
    "baseline": {1: 92.7, 30: 689.4, 100: 773.1},
    "eagle_topk4_v1": {1: 80.9, 30: 313.3, 100: 353.1},
    "eagle_topk1_v2": {1: 86.8, 30: 759.3, 100: 775.0},
}
MODES = {"eagle_topk4_v1": "tree_sync", "eagle_topk1_v2": "chain_overlap"}
# How far the three blocks lie from the table, as shares: other for every variant.
WOBBLE = {
    "baseline": (0.0, 0.004, -0.003),
    "eagle_topk4_v1": (0.002, 0.001, -0.004),
    "eagle_topk1_v2": (0.001, 0, 0.001),
}


def point(
    variant: str,
    concurrency: int | None,
    speed: float,
    *,
    block: int = 0,
    root: str = "outputs/a",
    status: str = "VALID",
    of: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One Point with this throughput. `of`: what must match, beside the workload's hash."""
    name = f"{root}/{variant}-{block}-c{concurrency}"
    asked = {"engine.kind": "sim", "engine.version": "0.5.9", "workload_hash": "w", **(of or {})}
    return {
        "point_id": name,
        "launch_id": f"{variant}-{block}-{root}",
        "folder": name,
        "root": root,
        "study": None,
        "variant": variant,
        "spec_mode": MODES.get(variant, "none"),
        "engine": "sim",
        "engine_version": "0.5.9",
        "simulated": True,
        "sim_speed": 10.0,
        "model": "kimi_k25",
        "workload": "diverse",
        "workload_hash": "w",
        "stack": "s",
        "block": block,
        "started_at": f"2026-01-0{block + 1}T10:00:00+00:00",
        "load": {"kind": "closed", "concurrency": concurrency, "requests": None},
        "verdict": {"status": status, "reasons": []},
        "must_match": {"hash": "h", "of": asked},
        "files": {"requests": "requests.parquet", "launch": "../launch.json"},
        "summary": {
            "requests": 100,
            "failed": 0,
            "measured_s": 10.0,
            "output_tokens_per_s": speed,
            "total_tokens_per_s": 2 * speed,
            "requests_per_s": speed / 512,
            "tokens_per_s_per_stream": speed / (concurrency or 1),
            "accept_length": None if variant == "baseline" else 2.2,
            "accept_source": None if variant == "baseline" else "counters",
            "output_tokens_mean": 512.0,
            "by_kind": {"code": {"accept_length": None if variant == "baseline" else 2.5}},
            "intervals": {"output_tokens_per_s": [speed * 0.99, speed * 1.01]},
            "ttft_ms": {"mean": 50.0, "p50": 50.0, "p90": 60.0, "p99": None, "n": 100},
        },
        **more,
    }


def by_clock(made: Mapping[str, Any], rate: float, trace: str | None = None) -> dict[str, Any]:
    """The same Point under an open load: of this rate, or of a trace with this mean."""
    load = {"kind": "open", "concurrency": None, "rate": rate, "requests": None, "arrival": "poisson"}
    load |= {"arrival": "trace", "trace": trace, "trace_speed": 1} if trace else {}
    return {**made, "load": load, "point_id": f"{made['point_id']}-{rate}-{trace}"}


def study(variants: Sequence[str] = tuple(STUDY), blocks: int = 3, **more: Any) -> list[dict[str, Any]]:
    """The study's later table, `blocks` times with some spread."""
    return [
        point(name, level, speed * (1 + WOBBLE[name][block % 3]), block=block, **more)
        for block in range(blocks)
        for name in variants
        for level, speed in STUDY[name].items()
    ]


def times(point: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A hundred requests: 50 ms to the first token, the rest from the throughput."""
    tpot_ms = 1000 * (point["load"].get("concurrency") or 1) / point["summary"]["output_tokens_per_s"]
    spread = np.linspace(0.9, 1.1, 100)
    return {"ttft_ms": 50 * spread, "tpot_ms": tpot_ms * spread, "e2e_ms": (50 + 511 * tpot_ms) * spread}
