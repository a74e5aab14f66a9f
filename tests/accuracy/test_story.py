"""The simulator tells the study's story: measured by the whole program, not computed from the profile."""

from pathlib import Path

import pytest
from conftest import measured, server_reasons

pytestmark = pytest.mark.slow
TREE = {1: 0.84, 2: 0.78, 5: 0.63, 10: 0.52, 30: 0.42, 70: 0.43, 100: 0.44, 250: 0.44}
CHAIN = {1: 0.94, 30: 1.10, 100: 1.00, 250: 1.05}
# Three ladders at the default speed take eleven minutes; the ratios are the same at three times the speed.
SPEED = "engine.sim_speed=30"


def test_ladder_ratios(tmp_path: Path) -> None:
    """A tree loses at every level and most under load; a chain with overlap is behind alone and ahead at 30 and 250."""
    grid = ["-m", "+variant=baseline,eagle_topk4_v1,eagle_topk1_v2", "engine=sim", SPEED]
    _, points, said = measured(tmp_path, *grid, limit_s=900)
    rate = {(p["variant"], p["load"]["concurrency"]): p["summary"]["output_tokens_per_s"] for p in points}
    assert len(rate) == 24, said
    assert len({point["launch_id"] for point in points}) == 3
    for variant, expected in (("eagle_topk4_v1", TREE), ("eagle_topk1_v2", CHAIN)):
        found = {level: rate[variant, level] / rate["baseline", level] for level in expected}
        print(variant, {level: round(ratio, 3) for level, ratio in found.items()})
        assert found == pytest.approx(expected, abs=0.05)


def test_a_fixed_prompt_flatters(tmp_path: Path) -> None:
    """One stream: with the fixed prompt the fused tree is 2-6 % ahead of the baseline, with diverse prompts behind."""
    code, points, said = measured(tmp_path, "-m", "+study=single_stream", "engine=sim", limit_s=200)
    assert code in (0, 6), said
    assert server_reasons(points) == []
    fixed = {point["variant"]: point["summary"]["output_tokens_per_s"] for point in points}
    assert 1.02 <= fixed["eagle_fusion_v1"] / fixed["baseline"] <= 1.06
    diverse_folder = tmp_path / "diverse"
    diverse_folder.mkdir()
    grid = ["-m", "+variant=baseline,eagle_fusion_v1", "load.concurrency=1", "engine=sim"]
    _, points, said = measured(diverse_folder, *grid, limit_s=200)
    diverse = {point["variant"]: point["summary"]["output_tokens_per_s"] for point in points}
    assert diverse["eagle_fusion_v1"] / diverse["baseline"] < 0.95, said
