"""Made-up results of several commands on a real server, for tests of the record: `points`, with times and a stack."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.unit import points

OF = {
    "engine.kind": "sglang",
    "engine.version": "0.5.9",
    "hardware.gpus": ["8 x RTX PRO 6000"],
    "hardware.cpu_model": "EPYC",
}
REAL = {"engine": "sglang", "simulated": False, "sim_speed": None, "stack": "0123456789abcdef"}
SIMULATED = {"engine": "sim", "simulated": True, "sim_speed": 10.0, "of": {"engine.kind": "sim"}}
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
    """A VALID Point of a real server, `minute` after the start of its block's day; `changes` are of the whole."""
    of = {**OF, **changes.pop("of", {})}
    made = points.point(variant, level, speed, block=block, root=root, of=of)
    began = f"2026-01-{1 + block:02d}T{minute // 60:02d}:{minute % 60:02d}:{level % 60:02d}+00:00"
    modes = {**points.MODES, "ngram": "ngram"}
    ours = {"engine_version": of["engine.version"], "started_at": began, "spec_mode": modes.get(variant, "none")}
    return {**made, "point_id": made["point_id"].replace("/", "-"), **REAL, **ours, **changes}


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
