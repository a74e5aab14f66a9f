"""The baseline once more at the end, where the server that would serve it is running already."""

import json
from collections.abc import Callable

import pytest
from running import Ended

from loadgen.dataset import read_dataset

pytestmark = pytest.mark.usefixtures("one_ray")

TINY = ("+variant=baseline", "engine=sim", "engine.sim_speed=20", "workload.max_tokens=32", "load.requests=6")


def test_a_repetition_has_a_server_of_its_own(cli: Callable[..., Ended]) -> None:
    """One run of one block: the same flags, and yet another start; each row, Point and line says which it is of."""
    ended = cli(*TINY, "load.concurrency=[1,2]", "drift=[2]")
    assert ended.code in (0, 6), ended.err
    assert "plan: 2 server starts, 3 Points" in ended.err
    launches = {path.parent: json.loads(path.read_text()) for path in ended.results.rglob("launch.json")}
    assert {str(folder.relative_to(ended.results)): launch["repeat"] for folder, launch in launches.items()} == {
        ".": False,
        "drift": True,
    }
    places = [(point["launch_id"], point["load"]["concurrency"], point["repeat"]) for point in ended.points()]
    first, again = (launches[ended.results / name]["launch_id"] for name in ("", "drift"))
    assert sorted(places, key=lambda place: place[1:]) == [(first, 1, False), (first, 2, False), (again, 2, True)]
    assert [(line["concurrency"], line["repeat"]) for line in ended.ledger()] == [(1, False), (2, False), (2, True)]
    for name in ("requests.parquet", "health.parquet"):
        told = read_dataset(ended.results, name)
        assert {(row["launch_id"], row["repeat"]) for row in told.to_pylist()} == {(first, False), (again, True)}
    # One variant has nothing beside it: no comparison, and nothing is said of one.
    assert "compar" not in ended.out
