"""The calibration as a user runs it, what later runs make of it, and that a clean run stays clean."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import CLIENT_RULES, measured

from loadgen import capacity

pytestmark = pytest.mark.slow
CALIBRATION_S_MAX = 90.0
TIMES = 10
DISTURBED_SHARE = 0.01  # others had the worker's core for so much of the time: a p99 shows it


class Stolen:
    """What the hypervisor took from this machine meanwhile, which no process of it sees: read twice a second."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int, int]] = []  # seconds since 1970; ticks stolen, all ticks since the boot
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Stolen":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            counts = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
            self._seen.append((time.time(), counts[7], sum(counts)))

    def share(self, begun_s: float, ended_s: float) -> float:
        """The share of all cores' time between two moments."""
        first, *_, last = [one for one in self._seen if begun_s <= one[0] <= ended_s]
        return (last[1] - first[1]) / (last[2] - first[2])


def others_share(point_file: Path, stolen: Stolen) -> float:
    """The share of a Point's time in which others had a worker's core: processes of this machine, other machines."""
    health = pq.read_table(point_file.parent / "health.parquet")
    seen_s = [moment.timestamp() for moment in health["utc"].to_pylist()]
    return float(health["waited_share"].to_numpy().mean()) + stolen.share(min(seen_s), max(seen_s))


def explained(point: dict[str, Any], others: float) -> bool:
    """Whether a Point is VALID, or INVALID only for what a busy neighbour does to a client."""
    rules = {reason["rule"] for reason in point["verdict"]["reasons"]}
    return not rules or (rules <= CLIENT_RULES and others > DISTURBED_SHARE)


def test_calibrate_and_use_it(not_calibrated: Path, tmp_path: Path) -> None:
    """Within 90 s there is a figure, and a run's verdict names its share of it."""
    began = time.monotonic()
    command = [sys.executable, "-m", "loadgen.calibrate"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * CALIBRATION_S_MAX, env=os.environ)
    took_s = time.monotonic() - began
    print(done.stdout, f"took {took_s:.0f} s")
    assert done.returncode == 0, done.stderr
    assert took_s <= CALIBRATION_S_MAX
    assert "events/s a worker" in done.stdout
    kept = json.loads(capacity.path().read_text())
    assert not_calibrated in capacity.path().parents
    assert kept["events_per_s"] > 0
    asked = ["+variant=baseline", "engine=sim", "engine.sim_speed=20", "load.concurrency=8", "workload.max_tokens=128"]
    code, (point,), said = measured(tmp_path, *asked, limit_s=120)
    assert code in (0, 6), said
    findings = point["verdict"]["margins"] + point["verdict"]["reasons"]
    (share,) = [finding for finding in findings if finding["rule"] == "capacity_share"]
    print(share)
    assert 0 < share["measured"] < 1.5
    assert kept["calibrated_at"][:10] in share["note"]


def test_a_clean_run_is_valid_ten_times_in_a_row(tmp_path: Path) -> None:
    """The same question ten times: nothing of ours makes one of them INVALID."""
    runs = f"tags.run={','.join(map(str, range(TIMES)))}"
    # Requests of more than a second: a pause of the server herds few of their streams.
    asked = ["-m", runs, "+variant=baseline", "engine=sim", "load.concurrency=16"]
    with Stolen() as stolen:
        code, points, said = measured(tmp_path, *asked, limit_s=300)
    assert code in (0, 6), said
    assert len(points) == TIMES
    files = sorted(tmp_path.glob("outputs/**/point.json"))
    shares = [others_share(file, stolen) for file in files]
    for point, others in zip(points, shares, strict=True):
        shown = {one["rule"]: one["measured"] for one in point["verdict"]["margins"] + point["verdict"]["reasons"]}
        names = (
            "loop_lag_p99",
            "loop_lag_max",
            "refill_p99",
            "concurrency_held",
            "steady",
            "in_step",
            "worker_cpu_p95",
        )
        print(point["verdict"]["status"], f"others {others:.3f}", {name: shown.get(name) for name in names})
    assert all(map(explained, points, shares)), said
