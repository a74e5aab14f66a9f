"""Every file under conf/ composes and passes the checks; every variant and study runs, tiny, on one Ray."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from loadgen import cluster, grid
from loadgen.__main__ import compose, main, variants
from loadgen.config import levels
from loadgen.dataset import point_files, read_dataset
from loadgen.overrides import prepare
from server.variant import argv

CONF = Path(__file__).parent.parent / "conf"
TINY = [
    "load.concurrency=[1,3]",
    "workload.max_tokens=48",
    "load.window_min_s=0.5",
    "load.window_requests=8",
    "engine=sim",
    "engine.sim_speed=8",
    "output.quiet=true",
]


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


CHOICES = [
    (group, name) for group in ("model", "engine", "workload", "load", "cluster", "output") for name in names(group)
]
NEEDS = {
    ("load", "open"): ["load.rate=6"],
    ("engine", "external"): ["engine.url=http://127.0.0.1:1"],
    ("engine", "sglang"): ["model.path=/m"],
}


def composed(folder: Path, *overrides: str) -> grid.Collected:
    return compose(prepare([*overrides, f"hydra.run.dir={folder}/run", f"hydra.sweep.dir={folder}/sweep"]))


@pytest.mark.parametrize(("group", "name"), CHOICES, ids=lambda value: value)
def test_every_group_file_composes(group: str, name: str, tmp_path: Path) -> None:
    """Each choice of each group gives a whole, checked configuration with the baseline."""
    runs = composed(tmp_path, "+variant=baseline", f"{group}={name}", *NEEDS.get((group, name), [])).runs
    assert len(runs) == 1
    assert levels(runs[0].config.load)


@pytest.mark.parametrize("name", names("variant"))
def test_every_variant_composes_under_its_own_name(name: str, tmp_path: Path) -> None:
    """A variant's file, its name and its argv agree, and it says what it tests in its first line."""
    assert name in variants()
    config = composed(tmp_path, f"+variant={name}").runs[0].config
    assert config.variant.name == name
    words = argv(grid.engine.server_spec(config, "sglang"), host="127.0.0.1", port=1, seed=1)
    assert words[1:3] == ["-m", "sglang.launch_server"]
    assert len((CONF / "variant" / f"{name}.yaml").read_text().splitlines()[0]) > 20


def test_variants_cannot_touch_the_load() -> None:
    """A comparison of variants is a paired one only while a variant's file sets nothing else."""
    for path in (CONF / "variant").glob("*.yaml"):
        assert "@package" not in path.read_text()


@pytest.mark.parametrize("name", names("study"))
def test_every_study_composes(name: str, tmp_path: Path) -> None:
    """A study sets its own name in each of its runs."""
    runs = composed(tmp_path, "-m", f"+study={name}").runs
    assert len(runs) > 1 or runs[0].config.chaos  # whose faults are runs of their own later
    assert {run.config.study for run in runs} == {name}


@pytest.fixture(scope="module")
def one_ray() -> Iterator[None]:
    with cluster.opened(None):
        yield


# A start costs seconds: by default one of each way to speculate and of each dialect, the others with the slow tests.
QUICK = ("eagle_topk4_v1", "eagle_topk1_v2", "eagle_dynamic")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in names("variant") if name not in QUICK]


@pytest.mark.usefixtures("one_ray")
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_every_variant_runs_tiny(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each variant starts on the simulator, proves itself, serves two levels and leaves the files that are promised."""
    code = main([f"+variant={name}", *TINY, f"hydra.run.dir={tmp_path}/run"])
    out = capsys.readouterr().out
    points = [json.loads(path.read_text()) for path in point_files(tmp_path)]
    # On a busy machine a tiny Point may be INVALID for the client's sake; it must never be for the server's.
    assert code in (0, 6), out
    assert not [reason for point in points for reason in point["verdict"]["reasons"] if reason["rule"] == "server"]
    assert sorted(point["load"]["concurrency"] for point in points) == [1, 3]
    assert "SIMULATED" in out
    assert name in out
    for file in ("launch.json", "server.log", "server_metrics.parquet", "ledger.jsonl", "runs.json"):
        assert (tmp_path / "run" / file).exists(), file
    rows = read_dataset(tmp_path)
    assert set(rows["variant"].to_pylist()) == {name}
    assert rows["simulated"].to_pylist() == [True] * len(rows)
    # Speculation and version stand in every row, so that no reader takes two servers for one.
    launch = json.loads((tmp_path / "run" / "launch.json").read_text())
    told = {
        (row["spec_mode"], row["engine_version"]) for row in rows.select(["spec_mode", "engine_version"]).to_pylist()
    }
    assert told == {(launch["spec_mode"], launch["server_info"]["version"])}
    assert {(point["spec_mode"], point["engine_version"]) for point in points} == told
    assert pc.all(pc.equal(rows["outcome"].filter(rows["in_window"]), "ok")).as_py()


@pytest.mark.usefixtures("one_ray")
def test_study_runs_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first study of all, with short answers: two variants, two server starts, labelled as a whole run."""
    study = ["-m", "+study=single_stream", "engine=sim", "engine.sim_speed=20", "workload.max_tokens=64"]
    code = main([*study, "output.quiet=true", f"hydra.sweep.dir={tmp_path}/sweep"])
    out = capsys.readouterr().out
    assert code in (0, 6), out
    assert "whole run" in out
    rows = read_dataset(tmp_path)
    assert len(rows) == 20
    assert set(rows["study"].to_pylist()) == {"single_stream"}
    assert set(rows["variant"].to_pylist()) == {"baseline", "eagle_fusion_v1"}
    assert len(set(rows["launch_id"].to_pylist())) == 2


def tiny(folder: Path, study: str, blocks: str, requests: int = 6) -> list[dict[str, Any]]:
    """A study with short answers and fixed counts; its Points, each of a server that is what was asked for."""
    small = ["load.concurrency=[2]", f"load.requests={requests}", "workload.max_tokens=48", "engine.sim_speed=8"]
    quiet = ["engine=sim", "output.quiet=true", f"hydra.sweep.dir={folder}/sweep"]
    code = main(["-m", f"+study={study}", f"block={blocks}", *small, *quiet])
    assert code in (0, 6)
    points = [json.loads(path.read_text()) for path in point_files(folder)]
    assert not [reason for point in points for reason in point["verdict"]["reasons"] if reason["rule"] == "server"]
    return points


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
def test_noise_is_the_same_server_under_two_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The comparison's first lines say how far apart the two lie; neither is better."""
    points = tiny(tmp_path, "noise", "0,1,2")
    assert len({point["launch_id"] for point in points}) == 6
    out = capsys.readouterr().out
    if all(point["verdict"]["status"] == "VALID" for point in points):
        assert "A/A: baseline_again is the baseline by another name, and " in out
        assert "(root mean square of 3 pairs)" in out


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
def test_two_workloads_share_servers_and_have_a_contest_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fixed prompt is accepted for longer than the eight kinds of diverse ones on average."""
    points = tiny(tmp_path, "acceptance", "0", 16)
    assert len({point["launch_id"] for point in points}) == 2
    assert len(points) == 4
    kinds = {
        kind: told["accept_length"]
        for point in points
        if point["variant"] == "eagle_topk4_v1"
        for kind, told in point["summary"]["by_kind"].items()
    }
    assert len(kinds) == 9
    assert kinds.pop("fixed") > sum(kinds.values()) / len(kinds)
    out = capsys.readouterr().out
    if all(point["verdict"]["status"] == "VALID" for point in points):
        assert [out.count(f"{name} · kimi_k25 · sim") for name in ("fixed_prompt", "diverse")] == [1, 1]
        assert "by kind of prompt, eagle_topk4_v1 at concurrency 2: fixed " in out


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
def test_dynamic_has_all_three_ways_to_speculate(tmp_path: Path) -> None:
    """On 0.5.23 a tree with overlap, a chain and the adaptive chain beside the baseline."""
    points = tiny(tmp_path, "dynamic", "0")
    assert {(point["spec_mode"], point["engine_version"]) for point in points} == {
        (mode, "0.5.23") for mode in ("none", "tree_overlap", "chain_overlap", "adaptive")
    }
