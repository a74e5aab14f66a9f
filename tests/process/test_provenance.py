"""What a machine tells of itself, from real files, and what another interpreter has installed."""

import sys
from pathlib import Path

import pytest

from server import installed, packages
from server.provenance import limits, numa_nodes, provenance
from server.spec import ServerSpec


def spec(**fields: object) -> ServerSpec:
    return ServerSpec(**{"engine": "sglang", "variant": "baseline", **fields})  # type: ignore[arg-type]


def interpreter(folder: Path, script: str) -> tuple[str, ...]:
    """An interpreter that does as the script says."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return (str(path),)


def test_packages_of_the_engines_interpreter() -> None:
    """Asked of the interpreter that runs the engine, not of ours."""
    told = packages.of_engine(spec(python=(sys.executable, "-I")), {})
    assert told["packages"]["numpy"] == packages.ours()["numpy"]
    assert told["interpreter"] == [sys.executable, "-I"]
    assert "sglang" not in told["packages"]


@pytest.mark.parametrize(
    ("script", "said"), [("echo noise; exit 4", "ended with 4"), ("echo packages={", "it said nothing")]
)
def test_an_interpreter_that_does_not_tell(script: str, said: str, tmp_path: Path) -> None:
    """The reason stands where the packages would."""
    assert said in packages.of_engine(spec(python=interpreter(tmp_path, script)), {})["error"]


def test_a_hung_or_missing_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, and no failure of the launch."""
    monkeypatch.setattr(installed, "READ_S_MAX", 0.2)
    assert "within 0.2 s" in packages.of_engine(spec(python=interpreter(tmp_path, "exec sleep 60")), {})["error"]
    assert "cannot be run" in packages.of_engine(spec(python=(str(tmp_path / "none"),)), {})["error"]
    assert "not ours" in packages.of_engine(spec(engine="external"), {})["error"]


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "1073741824"}, 1.5, 2**30),
        ({"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None, None),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, None, None),
        ({"cpu.max": "x", "memory.max": ""}, None, None),
        ({}, None, None),
    ],
)
def test_limits_of_a_container(files: dict[str, str], cpus: float | None, memory: int | None, tmp_path: Path) -> None:
    """Both versions of cgroups; no limit is none."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert limits(tmp_path) == {"cpus": cpus, "memory_bytes": memory}


def test_numa_nodes(tmp_path: Path) -> None:
    """In the order of their numbers, as the kernel lists their cores."""
    for number, cores in ((10, "4-5"), (2, "0-3")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    assert list(numa_nodes(tmp_path).items()) == [("2", "0-3"), ("10", "4-5")]
    assert numa_nodes(tmp_path / "none") == {}


def test_this_machine() -> None:
    """Whatever runs the tests has a host, a kernel and cores."""
    told = provenance([])
    assert told["host"]
    assert told["kernel"]
    assert told["cpu_cores"] >= 1
    assert told["links"] == []
    assert {"cpus", "memory_bytes"} == told["limits"].keys()
