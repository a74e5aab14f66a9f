"""Cases I of Ray: a cluster that was there before, with an actor of our kind in it, and two runs on it at once."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
RUN_S_MAX = 200.0
BIG_BYTES = 600 * 2**20
TINY = ("engine=sim", "engine.sim_speed=20", "workload.max_tokens=32")

# Ray asks for a token on any address but loopback unless told otherwise.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}

CLUSTER = """
import sys, ray
ray.init(address="local", num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[1], _node_ip_address="127.0.0.1",
         log_to_driver=False, namespace="loadgen")

@ray.remote(num_cpus=0)
class ServerActor:
    def ping(self):
        return "here"

left = ServerActor.options(name="ServerActor", lifetime="detached").remote()
print(ray.get(left.ping.remote()), ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.readline()
print(ray.get(left.ping.remote()), flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Ray that was started by somebody else, with a detached actor named like ours; its address."""
    temp = tempfile.mkdtemp(prefix="lg", dir="/tmp")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", CLUSTER, temp], text=True, env=ENVIRONMENT, **pipes) as process:
        assert process.stdout
        word, address = process.stdout.readline().split()
        assert word == "here"
        yield process, address
        process.kill()
    shutil.rmtree(temp, ignore_errors=True)


def test_i04_i05_i10_a_cluster_of_others(cluster: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    """Two runs at once, one of three loads, join a cluster that holds an actor of the same name: both have their
    results, nothing of the working folder is sent along, and the cluster still runs afterwards."""
    process, address = cluster
    (tmp_path / "multirun").mkdir()
    with (tmp_path / "multirun" / "big").open("wb") as file:
        file.truncate(BIG_BYTES)
    asked = (
        ("-m", "+variant=baseline", *TINY, "load.concurrency=1,2,3", "load.requests=6"),
        ("+variant=baseline", *TINY, "load.concurrency=2", "load.requests=6"),
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "loadgen", *words, f"cluster.address={address}", f"hydra.{kind}.dir={kind}"],
            cwd=tmp_path,
            env=ENVIRONMENT,
        )
        for kind, words in zip(("sweep", "run"), asked, strict=True)
    ]
    assert all(run.wait(timeout=RUN_S_MAX) in (0, 6) for run in runs)
    assert [len(list((tmp_path / kind).rglob("point.json"))) for kind in ("sweep", "run")] == [3, 1]
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "here"
