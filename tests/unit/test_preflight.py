"""server.preflight: what a start needs against what is there; loadgen.preflight: the most at once, and the table."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from loadgen.config import Config, Load
from loadgen.preflight import ROOM_BYTES_MIN, in_flight, room_for, shown, table
from loadgen.report import rendered
from loadgen.volume import Volume
from server.gpu import Device
from server.preflight import GIB, Place, Row, descriptor_rows, gpu_rows, look, model_row, weights_bytes
from server.spec import ServerSpec

SIM = ServerSpec("sim", "baseline")


def place(folder: Path, in_flight: int | None = 4, per_worker: int | None = 4) -> Place:
    return Place(folder, "127.0.0.1", (), in_flight, per_worker, {"PATH": "/usr/bin:/bin"})


def model(folder: Path, *sizes: int, kind: str = "safetensors") -> Path:
    """A model's folder with weights of so many bytes, which take no room."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for number, size in enumerate(sizes):
        with (folder / f"model-{number}.{kind}").open("wb") as file:
            file.truncate(size)
    return folder


def states(rows: list[Row]) -> dict[str, str]:
    return {row.check: row.state for row in rows}


def test_the_simulator_needs_little(tmp_path: Path) -> None:
    """A short table: disk, open files, a port; of several alike servers once. The folder need not be there yet."""
    rows = look([SIM, replace(SIM, variant="other")], place(tmp_path / "not/yet"))
    assert states(rows) == {"disk for the server's log": "ok", "open files": "ok", "port": "ok"}
    assert len(rows) == 3


def test_an_external_server_needs_no_port(tmp_path: Path) -> None:
    """Nothing is started here for it."""
    assert "port" not in states(look([ServerSpec("external", "baseline", urls=("http://a:1",))], place(tmp_path)))


def test_weights_are_counted_by_their_first_kind(tmp_path: Path) -> None:
    """Safetensors beside the same weights in an older form count once; no weights are 0."""
    both = model(tmp_path / "both", 100, 50)
    (both / "pytorch_model.bin").write_bytes(b"x" * 7)
    assert weights_bytes(both) == 150
    assert weights_bytes(model(tmp_path / "old", 30, kind="bin")) == 30
    assert weights_bytes(model(tmp_path / "none")) == 0


def test_a_models_folder(tmp_path: Path) -> None:
    """Whole, missing, without its config, or a hub's name."""
    whole = model(tmp_path / "whole", 3 * GIB)
    row = model_row("model", str(whole), "model.path")
    assert (row.state, "3.0 GiB of weights" in row.found) == ("ok", True)
    empty = str(model(tmp_path / "empty"))
    assert model_row("model", empty, "model.path").state == "warn"
    assert model_row("model", empty, "model.path", dummy=True).state == "ok"
    missing = model_row("model", str(tmp_path / "missing"), "model.path")
    assert (missing.state, missing.exit, missing.advice) == ("refused", 2, "correct model.path")
    (whole / "config.json").unlink()
    broken = model_row("draft", str(whole), "model.draft_path")
    assert (broken.state, broken.exit) == ("refused", 2)
    assert "config.json cannot be read" in broken.found
    hub = model_row("model", "meta-llama/Llama-3.1-8B-Instruct", "model.path")
    assert (hub.state, "not checked" in hub.found) == ("ok", True)


@pytest.mark.parametrize(
    ("weights", "count", "state"),
    [(100 * GIB, 2, "ok"), (100 * GIB, 1, "refused"), (158 * GIB, 2, "warn"), (162 * GIB, 2, "refused")],
)
def test_weights_against_the_fullest_gpu(weights: int, count: int, state: str) -> None:
    """Each device holds its share; the one with the least room decides."""
    devices = [Device("0", 90 * GIB, 96 * GIB), Device("1", 80 * GIB, 96 * GIB)]
    (row,) = gpu_rows(weights, devices, count)
    assert (row.state, row.found) == (state, "80.0 GiB free (GPU 1, the fullest)")
    assert row.exit == (3 if state == "refused" else 0)
    assert bool(row.advice) == (state != "ok")


def test_r10_others_on_a_gpu_are_named_and_refused() -> None:
    """Who holds memory of our devices is told with its pid, small contexts are not; cluster.clean goes on beside it."""
    devices = [Device("0", GIB, 96 * GIB, ((1, 95 * GIB), (2, 2**20), (3, None)))]
    (unsure,) = gpu_rows(0, [Device("0", GIB, 96 * GIB, ((3, None),))], 1)
    assert (unsure.state, unsure.exit) == ("warn", 0)
    (beside,) = gpu_rows(0, devices, 1, dirty=True)
    assert (beside.state, beside.exit) == ("warn", 0)
    (row,) = gpu_rows(0, devices, 1)
    assert (row.state, row.exit, "cluster.clean=true" in row.advice) == ("refused", 3, True)
    assert "process 1 " in row.found
    assert "95.0 GiB" in row.found
    assert "process 2" not in row.found
    assert "process 3" in row.found


def test_open_files_of_a_worker_and_of_the_server(tmp_path: Path) -> None:
    """Each process has the limit for itself; a server that is not ours is not our concern."""
    here = place(tmp_path, 1000, 500)
    assert [row.state for row in descriptor_rows(2000, here, True)] == ["ok"]
    (server,) = descriptor_rows(800, here, True)
    assert (server.state, server.exit, "the server's 1000" in server.needed) == ("refused", 2, True)
    assert [row.state for row in descriptor_rows(800, here, False)] == ["ok"]
    (worker,) = descriptor_rows(500, here, False)
    assert (worker.state, "cluster.workers" in worker.advice) == ("refused", True)
    assert list(descriptor_rows(500, place(tmp_path, None, None), True)) == []


def test_a_real_engine_is_looked_at(tmp_path: Path) -> None:
    """Interpreter and version, model, draft and memory; each that is missing is refused with its exit code."""
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\necho 'packages={"packages": {"sglang": "0.5.23"}}'\n""")
    python.chmod(0o755)
    whole, draft = model(tmp_path / "m", 2**20), model(tmp_path / "d", 2**20)
    args = {"device": "cpu", "speculative_algorithm": "EAGLE3"}
    good = ServerSpec(
        "sglang", "v", args, model_path=str(whole), draft_path=str(draft), version="0.5.23", python=(str(python),)
    )
    rows = look([good], place(tmp_path))
    assert {"sglang", "model", "draft", "memory for weights", "/dev/shm"} <= set(states(rows))
    assert "refused" not in states(rows).values()
    bad = [
        (replace(good, version="0.5.9"), "sglang of v", "0.5.23"),
        (replace(good, python=(str(tmp_path / "nowhere"),)), "sglang of v", "nowhere"),
        (replace(good, model_path=str(tmp_path / "nowhere")), "model", "model.path"),
        (replace(good, draft_path=str(tmp_path / "nowhere")), "draft", "model.draft_path"),
        (replace(good, model_path=str(model(tmp_path / "large", 2**43))), "memory for weights", "smaller"),
    ]
    for spec, check, words in bad:
        (row,) = (row for row in look([spec], place(tmp_path)) if row.state == "refused")
        assert row.check == check
        assert words in row.advice
        assert row.exit == (3 if check == "memory for weights" else 2)


def test_an_interpreter_is_asked_once_for_all_its_variants(tmp_path: Path) -> None:
    """A container takes seconds to start; each variant is still held against the version that it has."""
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh\necho x >> {tmp_path}/asked\necho 'packages={{"packages": {{"sglang": "0.5.12"}}}}'\n"""
    )
    python.chmod(0o755)
    one = ServerSpec("sglang", "a", {"device": "cpu"}, python=(str(python),))
    rows = look([one, replace(one, variant="b"), replace(one, variant="late", since="0.5.14")], place(tmp_path))
    assert [(row.check, row.found) for row in rows if "sglang" in row.check] == [
        ("sglang", "0.5.12"),
        ("sglang of late", "0.5.12"),
    ]
    assert (tmp_path / "asked").read_text() == "x\n"


@pytest.mark.parametrize(
    ("load", "workers", "most"),
    [
        (Load(concurrency=[1, 250]), 1, (250, 250)),
        (Load(concurrency=[1, 250]), 4, (250, 63)),
        (Load(kind="open", concurrency=None, rate=6.0, max_in_flight=3000), 2, (3000, 1500)),
        (Load(kind="open", concurrency=None, rate=6.0), 2, (None, None)),
    ],
)
def test_the_most_requests_at_once(load: Load, workers: int, most: tuple[int | None, int | None]) -> None:
    """Of all levels, altogether and for one worker; in open loop what load.max_in_flight bounds."""
    conf = Config(load=load)
    conf.cluster.workers = workers
    assert in_flight([conf]) == most


def test_r05_results_need_twice_the_room_that_they_are_thought_to_take(tmp_path: Path) -> None:
    """Refused with exit 5, both sizes and what to change; a small run needs little, and not less than that."""
    free = shutil.disk_usage(tmp_path).free
    assert room_for(tmp_path, Volume(1, 1, free // 3))["state"] == "ok"
    row = room_for(tmp_path, Volume(30_000, 15_000_000, free))
    assert (row["state"], row["exit"]) == ("refused", 5)
    assert row["needed"] == f"{shown(2 * free)} (2 times an estimate of 30000 requests, 15000000 tokens: {shown(free)})"
    assert "hydra.run.dir=" in row["advice"]
    assert "load.requests" in row["advice"]
    assert room_for(tmp_path, Volume())["needed"] == shown(ROOM_BYTES_MIN)


def test_the_table_is_for_a_person() -> None:
    """What is refused stands with what to do; a name from outside cannot command the terminal."""
    import sys

    rows = [Row("model", "\x1b[2J/m", "x", "refused", "correct model.path", 2), Row("port", "1", "", "ok")]
    shown = rendered(table([asdict(row) for row in rows]), sys.stdout)
    assert "\x1b" not in shown
    assert "correct model.path" in shown
    assert len(shown.splitlines()) == 3
