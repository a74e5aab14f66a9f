"""The baseline once more at the end: which run is appended, what is refused, and that it enters no pair."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_config import made

from loadgen import comparison, drift
from loadgen.asked import Run
from loadgen.comparison import Contest
from loadgen.config import levels
from loadgen.errors import ConfigError

ROOT = Path("/out")


def runs(*overrides: str, variants: tuple[str, ...] = ("eagle_topk1_v2", "baseline"), blocks: int = 2) -> list[Run]:
    """As a command has them: highest block first, so that the order does not choose the lowest one."""
    names = [(block, name) for block in reversed(range(blocks)) for name in variants]
    return [
        Run(made(f"+variant={name}", f"block={block + 3}", *overrides), ROOT / str(place))
        for place, (block, name) in enumerate(names)
    ]


def test_the_lowest_blocks_baseline_is_repeated_at_the_levels_asked_for() -> None:
    """Once, with the same question at other levels, in a folder of its own."""
    asked = runs("drift=[30,7]", "load.concurrency=[1,30]")
    (again,) = drift.repeated(asked, ROOT)
    assert (again.repeat, again.folder) == (True, ROOT / "drift")
    assert [level.concurrency for level in levels(again.config.load)] == [30, 7]
    first = next(run.config for run in asked if (run.config.block, run.config.variant.name) == (3, "baseline"))
    assert replace(again.config, load=first.load) == first
    assert not any(run.repeat for run in asked)


def test_levels_that_are_runs_of_their_own_have_one_repetition_and_workloads_one_each() -> None:
    """A grid over load.concurrency asks for the same repetition in each of its runs; another workload is another."""
    split = [run for level in (1, 30) for run in runs("drift=[1]", f"load.concurrency={level}")]
    assert len(drift.repeated(split, ROOT)) == 1
    two = [*runs("drift=[1]", "workload=fixed_prompt"), *runs("drift=[1]")]
    found = drift.repeated(two, ROOT)
    assert [run.config.workload.name for run in found] == ["fixed_prompt", "diverse"]
    assert [run.folder for run in found] == [ROOT / "drift", ROOT / "drift-2"]


def test_counts_follow_their_levels() -> None:
    """With one number of requests a level the repetition asks for as many as the first time."""
    counted = runs("drift=[8,1]", "load.concurrency=[1,4,8]", "load.requests=[3,12,24]")
    (again,) = drift.repeated(counted, ROOT)
    assert [(level.concurrency, level.requests) for level in levels(again.config.load)] == [(8, 24), (1, 3)]


def test_no_drift_and_no_baseline() -> None:
    """Nothing is appended unless asked; asked without a baseline it is refused with what to do."""
    assert drift.repeated(runs(), ROOT) == []
    with pytest.raises(ConfigError, match=r"no run of this command is of it: add -m and \+variant=baseline,OTHER, or"):
        drift.repeated(runs("drift=[1]", variants=("eagle_topk1_v2",)), ROOT)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["drift=[0]"], "drift=[0]: name concurrencies from 1 to"),
        (["drift=[-1]"], "drift=[-1]: name concurrencies"),
        (["drift=[1,1]"], "each once"),
        (["drift=[200000]"], "from 1 to 100000"),
        (["drift=[1.5]"], "drift[0]: Value '1.5'"),
        (["drift=[true]"], "drift[0]: Value 'True'"),
        (["drift=[one]"], "drift[0]: Value 'one'"),
        (["drift=5"], "drift: give a list, as in drift=[1,30]"),
        (["drift=null"], "drift=null is no value"),
        (["drift=[1]", "load=open", "load.rate=6"], "this load is open: leave it out (drift=[])"),
        (["drift=[9]", "load.concurrency=2", "load.requests=6"], "load.requests=6 is below the concurrency 9"),
        (["drift=[9]", "load.concurrency=[1,4]", "load.requests=[3,12]"], "has no number for concurrency 9"),
    ],
)
def test_nonsense_is_one_sentence(given: list[str], said: str) -> None:
    """Levels that are none, twice the same, of another kind of load, or without a count."""
    with pytest.raises(ConfigError) as caught:
        made("+variant=baseline", *given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def point(variant: str, block: int, rate: float, minute: int, **more: Any) -> dict[str, Any]:
    """What a comparison needs of a Point."""
    return {
        "point_id": f"{variant}-{block}-{minute}",
        "root": "r",
        "variant": variant,
        "workload": "diverse",
        "block": block,
        "load": {"kind": "closed", "concurrency": 4},
        "started_at": f"2026-01-02T03:{minute:02}:00Z",
        "verdict": {"status": "VALID"},
        "summary": {"output_tokens_per_s": rate, "requests": 9, "failed": 0},
        **more,
    }


def contest(*last: dict[str, Any]) -> Contest:
    """Two variants in three blocks, and what came at the end."""
    of_blocks = [
        point(name, block, rate * (1 + 0.001 * block), 2 * block + (name != "baseline"))
        for block in range(3)
        for name, rate in (("baseline", 100.0), ("chain", 110.0))
    ]
    points = [*of_blocks, *last]
    named = {one["point_id"]: one["variant"] for one in points}
    (found,) = comparison.contests(points, lambda _: {}, named, "baseline")
    return found


def test_a_repeated_point_enters_no_pair() -> None:
    """Ratios and figures are those without it; only the drift tells of it, beside the first block."""
    plain, drifted = contest(), contest(point("baseline", 0, 80.0, 50, repeat=True))
    assert drifted.rows == plain.rows
    assert plain.drift == ()
    (told,) = drifted.drift
    assert (told.first, told.again, told.ratio) == (100.0, 80.0, pytest.approx(0.8))


@pytest.mark.parametrize(
    "more",
    [
        {"verdict": {"status": "INVALID"}},
        {"summary": None, "verdict": {"status": "INTERRUPTED"}},
        {"load": {"kind": "closed", "concurrency": 5}},
        {"root": "another"},
    ],
)
def test_no_drift_is_told_of_what_does_not_count(more: dict[str, Any]) -> None:
    """Not VALID, cut off, at a level that the first time lacks, of another command."""
    assert contest(point("baseline", 0, 80.0, 50, **{"repeat": True, **more})).drift == ()
