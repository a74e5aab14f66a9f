"""How each variant's throughput stands beside the baseline of the same block: one line a variant, and no more.

Pure. A look at the end of a command, without intervals: whether a ratio may be claimed is a comparison's to say.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from loadgen.config import in_words
from loadgen.verdict import VALID
from loadgen.words import figure, many

BASELINE = "baseline"

Point = Mapping[str, Any]


def lines(points: Sequence[Point]) -> list[str]:
    """A heading and a line for each variant that was measured in a block with the baseline; nothing without one.

    Ratios of output tokens a second, the geometric mean over blocks.
    """
    speeds = {_place(point): point for point in points if _speed(point)}
    names = dict.fromkeys(point["variant"] for point in points if point["variant"] != BASELINE)
    told = [line for name in names if (line := _line(name, speeds))]
    return ["output tok/s beside the baseline of the same block (no interval claimed):", *told] if told else []


def _place(point: Point) -> tuple[Any, ...]:
    load = point["load"]
    level = (load.get("concurrency"), load.get("rate"), load.get("trace"))
    return (point["variant"], point["engine"], point["model"], point.get("workload"), point["block"], level)


def _speed(point: Point) -> float | None:
    return (point.get("summary") or {}).get("output_tokens_per_s")


def _line(name: str, speeds: Mapping[tuple[Any, ...], Point]) -> str | None:
    ratios: dict[tuple[Any, ...], list[float]] = {}
    blocks, doubtful = set(), False
    for place, point in speeds.items():
        other = speeds.get((BASELINE, *place[1:]))
        if place[0] != name or other is None:
            continue
        ratios.setdefault((place[3], place[-1]), []).append(float(_speed(point) or 0) / float(_speed(other) or 1))
        blocks.add(place[-2])
        doubtful = doubtful or {VALID} != {one["verdict"]["status"] for one in (point, other)}
    if not ratios:
        return None
    means = {level: math.exp(sum(map(math.log, some)) / len(some)) for level, some in ratios.items()}
    several = len({workload for workload, _ in means}) > 1
    shown = ", ".join(
        f"{figure(mean)} x at {f'{workload} ' if several else ''}{in_words(*level)}"
        for (workload, level), mean in means.items()
    )
    word = _word(list(means.values()))
    believed = "; not all Points are VALID" if doubtful else ""
    return f"  {name}: {shown} ({many(len(blocks), 'block')}{believed}){word}"


def _word(means: Sequence[float]) -> str:
    if all(mean < 1 for mean in means):
        return ": does not pay here, the baseline is faster at every level"
    return ": faster than the baseline at every level" if all(mean > 1 for mean in means) else ""
