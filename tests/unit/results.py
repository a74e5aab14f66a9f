"""Made-up Points for tests of the record: what point.json would say, with figures that the test chooses."""

from collections.abc import Mapping
from typing import Any

import numpy as np

SPEC_MODES = {"eagle_topk4_v1": "tree_sync", "eagle_topk1_v2": "chain_overlap", "ngram": "ngram"}
OF = {
    "loadgen": "0.1.0",
    "engine.kind": "sglang",
    "engine.version": "0.5.9",
    "hardware.gpus": ["8 x RTX PRO 6000"],
    "hardware.cpu_model": "EPYC",
    "workload_hash": "abc",
}
# The study's two tables, output tokens a second by concurrency.
FIRST = {
    "baseline": {1: 92.6, 30: 711.0, 100: 761.6, 250: 772.1},
    "eagle_topk4_v1": {1: 77.5, 30: 299.5, 100: 338.8, 250: 340.9},
}
SECOND = {
    "baseline": {1: 92.7, 30: 689.4, 100: 773.1, 250: 718.1},
    "eagle_topk1_v2": {1: 86.8, 30: 759.3, 100: 775.0, 250: 754.4},
}


def point(
    variant: str, level: int, speed: float, block: int = 0, root: str = "outputs/a", minute: int = 0, **changes: Any
) -> dict[str, Any]:
    """A VALID Point of a real server; `changes` are of the whole, `of` of what must match."""
    of = {**OF, **changes.pop("of", {})}
    told = {
        "point_id": f"{variant}-{root}-{block}-c{level}".replace("/", "-"),
        "study": None,
        "variant": variant,
        "spec_mode": SPEC_MODES.get(variant, "none"),
        "engine": of["engine.kind"],
        "engine_version": of["engine.version"],
        "simulated": False,
        "sim_speed": None,
        "model": "kimi_k25",
        "workload": "diverse",
        "workload_hash": of["workload_hash"],
        "block": block,
        "stack": "0123456789abcdef",
        "started_at": f"2026-01-{1 + block:02d}T{minute // 60:02d}:{minute % 60:02d}:{level % 60:02d}+00:00",
        "load": {"kind": "closed", "concurrency": level, "requests": None},
        "verdict": {"status": "VALID", "reasons": []},
        "summary": {"output_tokens_per_s": speed, "requests": 100, "failed": 0, "intervals": {}},
        "must_match": {"of": of},
        "files": {"requests": "requests.parquet", "launch": "../launch.json"},
        "root": root,
        "folder": f"{root}/{variant}-{block}/c{level}",
    }
    return {**told, **changes}


def study(
    table: Mapping[str, Mapping[int, float]], root: str, minute: int, blocks: int = 3, **changes: Any
) -> list[dict[str, Any]]:
    """A study of these figures; blocks differ by 0.4 % in what all variants share and by 0.1 % in what they do not."""
    return [
        point(name, level, speed * (1 + 0.004 * block + 0.001 * ((block + place) % 3)), block, root, minute, **changes)
        for block in range(blocks)
        for place, (name, speeds) in enumerate(table.items())
        for level, speed in speeds.items()
    ]


def failed(variant: str, level: int, status: str = "FAILED", **changes: Any) -> dict[str, Any]:
    """A Point that may not be believed."""
    reason = {"rule": "gpu_memory", "measured": "the server ran out of memory", "advice": "ask for less"}
    verdict = {"status": status, "reasons": [reason]}
    return point(variant, level, 1.0, verdict=verdict, summary=None, **changes)


def no_times(_: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Latencies of a tree of which only point.json was kept."""
    return {}
