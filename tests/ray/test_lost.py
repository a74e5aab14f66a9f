"""A worker that is lost in a Point, while the command runs in this process."""

import os
import signal
import threading
from pathlib import Path

import pytest
from running import ENDLESS, RUN_S_MAX, below_us, eventually

from loadgen.__main__ import main
from loadgen.dataset import point_files, read_json, read_ledger, read_rows

pytestmark = pytest.mark.usefixtures("one_ray")


def kill_the_worker(folder: Path) -> None:
    """With -9, once the window is there and a finished request is on the disk."""

    def finished() -> bool:
        streams = folder.glob("**/_requests_*.arrows")
        return any("ok" in read_rows(stream)["outcome"].to_pylist() for stream in streams)

    eventually(finished, RUN_S_MAX, "a row")
    (worker,) = [pid for pid, title in below_us().items() if title.startswith("ray::loadgen:worker")]
    os.kill(worker, signal.SIGKILL)


def test_r01_i07_a_killed_worker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its Point is FAILED with its rows marked, exit 4; what Ray says of it is no result and stays off stdout."""
    run = tmp_path / "run"
    killer = threading.Thread(target=kill_the_worker, args=(run,))
    killer.start()
    assert main(["+variant=baseline", *ENDLESS, f"hydra.run.dir={run}"]) == 4
    killer.join()
    told = capfd.readouterr()
    assert [(line["status"], line["exit_code"]) for line in read_ledger(run / "ledger.jsonl")] == [("FAILED", 4)]
    (point,) = map(read_json, point_files(run))
    assert (point["verdict"]["reasons"][0]["rule"], point["summary"]) == ("worker_lost", None)
    assert "raylet" not in told.out
    assert "Traceback" not in told.err
