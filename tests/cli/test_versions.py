"""Two engine versions in one grid, each from its own interpreter: read before the start, in every row after it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import TINY, Ended

from loadgen.dataset import read_dataset

pytestmark = pytest.mark.slow
# An engine that is ours to start and needs no GPU, so that the way of a real one is gone.
ON_CPU = ("engine=sglang", "+engine.args.device=cpu", *TINY[2:])


def with_engine(folder: Path, version: str) -> str:
    """An "interpreter" with this version of sglang, which is the simulator under its name."""
    info = folder / f"site-{version}" / f"sglang-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    simulated = f"-m server.sim --sim-version {version} --sim-speed 20"
    path = folder / f"python-{version}"
    path.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={info.parent}:$PYTHONPATH\n"
        f'if [ "$2" = sglang.launch_server ]; then shift 2; exec {sys.executable} {simulated} "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def test_two_versions_in_one_grid(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """Each server gets its version's flags, its rows say its version and what ran, and the nearest is told once."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    pythons = ",".join(with_engine(tmp_path, version) for version in ("0.5.9", "0.5.23"))
    weights = (f"model.path={model}", f"model.draft_path={model}")
    ended = cli("-m", "+variant=eagle_topk4_v1", f"engine.python={pythons}", *ON_CPU, *weights)
    assert ended.code in (0, 6), ended.err
    rows = read_dataset(ended.results)
    kinds = {(row["engine_version"], row["spec_mode"], row["launch_id"]) for row in rows.to_pylist()}
    assert {kind[:2] for kind in kinds} == {("0.5.9", "tree_sync"), ("0.5.23", "tree_sync")}
    assert len(kinds) == 2
    assert ended.err.count("on sglang 0.5.23 runs as tree_sync, its nearest") == 1
    logs = {path: path.read_text() for path in ended.results.rglob("server.log")}
    assert len(logs) == 2


def test_another_version_than_asked_starts_nothing(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """It is a mistake of the question: exit 2, both versions, what to set."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    python = f"engine.python={with_engine(tmp_path, '0.5.23')}"
    ended = cli("+variant=baseline", python, *ON_CPU, "engine.version=0.5.9", f"model.path={model}")
    assert ended.code == 2
    assert "engine.version=0.5.9 was asked for, but" in ended.err
    assert "set engine.version=0.5.23 or leave it out" in ended.err
    assert list(ended.results.rglob("server.log")) == []
