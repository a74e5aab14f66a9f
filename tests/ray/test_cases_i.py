"""Cases I of Ray: a cluster that was there before, with an actor of our kind in it, joined by one run after another."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from loadgen.dataset import read_ledger, read_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from running import eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
RUN_S_MAX = 200.0
MIB = 2**20
BIG_BYTES = 600 * MIB
UPLOAD_BYTES_MAX = 10 * MIB
STORE_BYTES = 100 * MIB
STORED_BYTES_MAX = 2.5 * MIB  # plans, one for each of four workers; 300,000 token times and counts are more
DRIVER_BYTES_MAX = 500 * MIB  # 240 are its modules
SIM = ("engine=sim", "engine.sim_speed=20")
WORKER = "ray::loadgen:worker"
CPUS = 6  # by Ray's own count, on whatever machine

# Ray asks for a token on any address but loopback unless told otherwise.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}

# For each line that it reads it tells whether its actor answers.
CLUSTER = """
import sys, ray
ray.init(address="local", num_cpus=int(sys.argv[2]), object_store_memory=int(sys.argv[3]), include_dashboard=False,
         _temp_dir=sys.argv[1], _node_ip_address="127.0.0.1", log_to_driver=False, namespace="loadgen")

@ray.remote(num_cpus=0)
class ServerActor:
    def ping(self):
        return "here"

left = ServerActor.options(name="ServerActor", lifetime="detached").remote()
print(ray.get(left.ping.remote()), ray.get_runtime_context().gcs_address, flush=True)
for line in sys.stdin:
    print(ray.get(left.ping.remote()), flush=True)
"""


@dataclass(frozen=True)
class Others:
    """A Ray that was started by somebody else, with a detached actor named like ours, and its folder."""

    process: subprocess.Popen[str]
    address: str
    folder: Path

    def answers(self) -> bool:
        """Whether its actor is still there."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip() == "here"

    def titled(self, word: str) -> dict[int, str]:
        """Its processes with that word in their title, by pid."""
        found = {}
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, IndexError):
                if word in (title := process.cmdline()[0]):
                    found[process.pid] = title
        return found

    def stored(self) -> int:
        """Bytes of its object store that were ever used: pages of a file that has no name any more."""
        (raylet,) = self.titled("/raylet")
        files = [file for file in Path(f"/proc/{raylet}/fd").iterdir() if "plasma" in os.readlink(file)]
        return max(file.stat().st_blocks * 512 for file in files)


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    temp = tempfile.mkdtemp(prefix="lg", dir="/tmp")
    words = [sys.executable, "-c", CLUSTER, temp, str(CPUS), str(STORE_BYTES)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, env=ENVIRONMENT, **pipes) as process:
        assert process.stdout
        word, address = process.stdout.readline().split()
        assert word == "here"
        yield Others(process, address, Path(temp))
        process.kill()
    shutil.rmtree(temp, ignore_errors=True)


@pytest.fixture
def start(others: Others, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `python -m loadgen` on that cluster."""
    started = []

    def begin(*asked: str, log: str = "err") -> subprocess.Popen[bytes]:
        words = [
            sys.executable,
            "-m",
            "loadgen",
            "+variant=baseline",
            *SIM,
            *asked,
            f"cluster.address={others.address}",
        ]
        with (tmp_path / log).open("wb") as err:
            started.append(subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stderr=err))
        return started[-1]

    yield begin
    for run in started:
        run.kill()
        run.wait()


Start = Callable[..., subprocess.Popen[bytes]]


def rows_of(folder: Path) -> Any:
    """One Point's requests."""
    (file,) = folder.rglob("requests.parquet")
    return duckdb.read_parquet(str(file))


def test_r09_r10_i04_i05_i10_a_cluster_of_others(others: Others, start: Start, tmp_path: Path) -> None:
    """Two runs at once, one of three loads, join a cluster that holds an actor of the same name: both have their
    results and are told of that actor, our two packages are all that is sent, and the cluster runs on afterwards."""
    (tmp_path / "multirun").mkdir()
    with (tmp_path / "multirun" / "big").open("wb") as file:
        file.truncate(BIG_BYTES)
    load = ("workload.max_tokens=32", "load.requests=6")
    runs = [
        start("-m", *load, "load.concurrency=1,2,3", "hydra.sweep.dir=sweep"),
        start(*load, "load.concurrency=2", "hydra.run.dir=run", log="other"),
    ]
    assert all(run.wait(timeout=RUN_S_MAX) in (0, 6) for run in runs)
    assert [len(list((tmp_path / kind).rglob("point.json"))) for kind in ("sweep", "run")] == [3, 1]
    assert others.answers()
    for log in ("err", "other"):
        assert "actors of others" in (told := (tmp_path / log).read_text())
        assert "ServerActor (loadgen)" in told
    launches = [json.loads(path.read_text()) for path in tmp_path.rglob("launch*.json")]
    assert len(launches) == 2
    for what in ("url", "pid", "seed"):  # two drivers never share a server
        assert len({launch[what] for launch in launches}) == 2
    resources = others.folder / "session_latest" / "runtime_resources"
    sent = sum(file.stat().st_size for file in resources.rglob("*") if file.is_file())
    assert 0 < sent < UPLOAD_BYTES_MAX, f"{sent} bytes lie below {resources}"
    assert not list(resources.glob("working_dir_files/*"))


def test_i07_one_of_four_workers(others: Others, start: Start, tmp_path: Path) -> None:
    """One of four is killed at half of the way: rows of all four stand, the dead one is named, FAILED, exit 4."""
    asked = ("workload.max_tokens=256", "load.concurrency=8", "load.requests=400", "cluster.workers=4")
    run = start(*asked, "hydra.run.dir=run")

    def done() -> int:
        return sum(len(read_rows(stream)) for stream in (tmp_path / "run").glob("c8/_requests_*.arrows"))

    eventually(lambda: done() >= 200, RUN_S_MAX, "half of the requests")
    (victim,) = [pid for pid, title in others.titled(WORKER).items() if title == f"{WORKER} 2"]
    psutil.Process(victim).kill()
    assert run.wait(timeout=RUN_S_MAX) == 4
    (line,) = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert (line["status"], line["exit_code"]) == ("FAILED", 4)
    assert "worker 2: " in line["reason"]
    rows = rows_of(tmp_path / "run")
    counts = dict(rows.filter("outcome = 'ok'").aggregate("worker, count(*)", "worker").fetchall())
    assert set(counts) == {0, 1, 2, 3}
    assert 200 <= sum(counts.values()) < 400
    assert rows.aggregate("count(*) - count(distinct seq)").fetchall() == [(0,)]


def test_i08_two_thousand_streams(others: Others, start: Start, tmp_path: Path) -> None:
    """Two thousand streams are one process, and all of them are in flight at once."""
    asked = ("workload.max_tokens=16", "load.concurrency=2000", "load.requests=2000", "load.stagger_s=0")
    before = set(others.titled(WORKER))
    run = start(*asked, "hydra.run.dir=run")
    seen: set[int] = set()
    begun_s = time.monotonic()
    while run.poll() is None and time.monotonic() - begun_s < RUN_S_MAX:
        seen |= set(others.titled(WORKER)) - before
        time.sleep(0.2)
    assert run.wait(timeout=1) in (0, 6)
    assert len(seen) <= 2, "the warm-up may have had another process than the Point"
    moments = sorted([(sent, 1) for sent, _ in stamps(tmp_path)] + [(done, -1) for _, done in stamps(tmp_path)])
    flying = peak = 0
    for _, change in moments:
        flying += change
        peak = max(peak, flying)
    assert peak == 2000


def stamps(folder: Path) -> list[tuple[int, int]]:
    """When each request was sent and done."""
    found: list[tuple[int, int]] = rows_of(folder / "run").project("sent_ns, done_ns").fetchall()
    return found


def test_i11_many_token_times(others: Others, start: Start, tmp_path: Path) -> None:
    """300 requests of 1000 token times each: none of them lies in the object store, the driver holds a few of them.

    A seventieth of the case, so that it takes no minute: what would fill the store then shows in it now.
    """
    asked = ("workload.max_tokens=1000", "load.concurrency=100", "load.requests=300")
    run = start(*asked, "hydra.run.dir=run")
    most = 0
    while run.poll() is None:
        with contextlib.suppress(psutil.Error):
            most = max(most, psutil.Process(run.pid).memory_info().rss)
        time.sleep(0.1)
    assert run.wait(timeout=1) in (0, 6)
    assert rows_of(tmp_path / "run").aggregate("sum(len(chunk_ns))").fetchall() == [(300_000,)]
    assert others.stored() < STORED_BYTES_MAX
    assert most < DRIVER_BYTES_MAX
