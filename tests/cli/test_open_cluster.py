"""R18: a Ray of others that is joined, started as its manual says, on loopback: whether it asks for a token is told."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from ray._private.utils import get_dashboard_dependency_error, get_ray_client_dependency_error
from running import RUN_S_MAX, TINY, Ended, eventually

from loadgen import surface
from server import ports

sys.path.insert(0, str(Path(__file__).parent.parent / "http"))

from recorded import HOST, JOBS, OPEN, REFUSED, SETTINGS, STATUS, UNAUTHENTICATED, answering

pytestmark = pytest.mark.slow

RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()")
# Ray takes the host's address in the network for 127.0.0.1, and listens there, unless it knows of no clusters.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
WITHOUT = {**LOOPBACK, "RAY_AUTH_MODE": "disabled"}
WITH = {**LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "d3b07384d113edec49eaa6238ad5ff00" * 2}


@contextlib.contextmanager
def cluster(env: dict[str, str]) -> Iterator[str]:
    """The address of a Ray that is started for the block by its own command."""
    folder = tempfile.mkdtemp(prefix="lg", dir="/tmp")  # Ray's sockets allow 107 bytes of path
    port = ports.free_port(HOST)
    words = ["--head", "--block", f"--node-ip-address={HOST}", f"--port={port.number}", "--num-cpus=2"]
    words += ["--disable-usage-stats", f"--object-store-memory={100 * 1024 * 1024}", f"--temp-dir={folder}"]
    words += [f"--include-dashboard={str(get_dashboard_dependency_error() is None).lower()}"]
    port.release()
    told = Path(folder) / "told"
    with told.open("wb") as out:
        head = subprocess.Popen([*RAY, "start", *words], env={**os.environ, **env, "RAY_TMPDIR": folder}, stdout=out)
    try:
        eventually(lambda: "Ray runtime started" in told.read_text(), RUN_S_MAX, "Ray")
        yield f"{HOST}:{port.number}"
    finally:
        below = psutil.Process(head.pid).children(recursive=True)
        head.send_signal(signal.SIGTERM)
        head.wait(RUN_S_MAX)
        for one in below:
            with contextlib.suppress(psutil.Error):
                one.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def its_ports(dashboard: bytes, status: bytes) -> Iterator[None]:
    """Ray's own two where they are installed (ray[default], ray[client]); else what they were recorded to answer."""
    with contextlib.ExitStack() as both:
        if get_dashboard_dependency_error():
            both.enter_context(answering(dashboard, port=surface.DASHBOARD_PORT))
        if get_ray_client_dependency_error():
            both.enter_context(answering(SETTINGS, STATUS + status, port=surface.CLIENT_PORT))
        yield


def joined(cli: Callable[..., Ended], env: dict[str, str]) -> list[str]:
    """What is said of the cluster by a run that joins it, and measures there as anywhere."""
    with cluster(env) as address:
        ended = cli("+variant=baseline", *TINY, "cluster=ray", f"cluster.address={address}", env=env)
    assert ended.code in (0, 6), ended.err
    return [line for line in ended.err.splitlines() if "without a token" in line]


def test_r18_a_cluster_without_tokens_is_warned_of(cli: Callable[..., Ended]) -> None:
    """Once for each port that answers anybody, with what to do; the run goes on."""
    with its_ports(JOBS, OPEN):
        told = joined(cli, WITHOUT)
    assert [line.partition(" answers")[0] for line in told] == [
        f"loadgen: warning: the cluster's dashboard at {HOST}:{surface.DASHBOARD_PORT}",
        f"loadgen: warning: the cluster's client port at {HOST}:{surface.CLIENT_PORT}",
    ]
    assert all(surface.ADVICE in line for line in told)


def test_r18_a_cluster_with_tokens_is_not(cli: Callable[..., Ended]) -> None:
    """Its ports refuse who has none."""
    with its_ports(REFUSED, UNAUTHENTICATED):
        assert joined(cli, WITH) == []
