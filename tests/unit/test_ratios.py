"""The lines that hold variants beside the baseline: paired by block and level, and silent without a pair."""

from typing import Any

import pytest

from loadgen.ratios import lines


def point(variant: str, speed: float | None, block: int = 0, concurrency: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "variant": variant,
        "engine": "sglang",
        "model": "tiny",
        "workload": "diverse",
        "block": block,
        "load": {"concurrency": concurrency},
        "verdict": {"status": "VALID"},
        "summary": {"output_tokens_per_s": speed} if speed else None,
        **more,
    }


def test_ratios_are_of_the_same_block_and_level() -> None:
    """Two blocks of 0.4 and 0.9 have the geometric mean 0.6; a block without a baseline counts for nothing."""
    points = [
        point("baseline", 100, 0),
        point("chain", 40, 0),
        point("baseline", 200, 1),
        point("chain", 180, 1),
        point("chain", 999, 2),
        point("chain", 999, 0, 8),
    ]
    head, line = lines(points)
    assert "no interval claimed" in head
    assert (
        line == "  chain: 0.60 x at concurrency 4 (2 blocks): does not pay here, the baseline is faster at every level"
    )


@pytest.mark.parametrize(
    "points",
    [
        [],
        [point("baseline", 100)],
        [point("chain", 100)],
        [point("baseline", None), point("chain", 40)],
        [point("baseline", 100), point("chain", None)],
        [point("baseline", 100, engine="vllm"), point("chain", 40)],
        [point("baseline", 100), point("chain", 40, workload="random")],
    ],
)
def test_nothing_is_said_without_a_pair(points: list[dict[str, Any]]) -> None:
    """No baseline, another engine or workload, a Point without numbers: no ratio."""
    assert lines(points) == []


def test_a_mixed_result_and_doubtful_points_are_said() -> None:
    """Faster at one level and slower at another gets no verdict; a Point that is not VALID is not passed over."""
    doubt = {"verdict": {"status": "INVALID"}}
    points = [
        point("baseline", 100, 0, 1),
        point("chain", 150, 0, 1, **doubt),
        point("baseline", 100, 0, 4),
        point("chain", 50, 0, 4),
    ]
    assert (
        lines(points)[1]
        == "  chain: 1.50 x at concurrency 1, 0.50 x at concurrency 4 (1 block; not all Points are VALID)"
    )
