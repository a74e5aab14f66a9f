"""The network between client and server is cut: two networks of their own, a cable between them, and its end pulled."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb
import pytest
from running import RUN_S_MAX, Run, eventually
from test_signals import BASELINE, await_rows

pytestmark = pytest.mark.slow

CLIENT, SERVER, PORT = "10.77.9.1", "10.77.9.2", 30000
WINDOW_S, DEADLINE_S = 6.0, 3.0
DRAIN_SPARE_S = 5.0  # beyond window and deadlines
LIMITS = (
    *("load.concurrency=4", "workload.max_tokens=512", f"load.window_s={WINDOW_S}", "load.connect_s_max=2"),
    *(f"load.first_token_s_max={DEADLINE_S}", "load.stall_s_max=2"),
)


@dataclass(frozen=True)
class Cable:
    """Two networks with a cable between them, named by their namespaces; `program` runs the command at one end."""

    client: str
    server: str

    @property
    def program(self) -> tuple[str, ...]:
        """How loadgen is started at the client's end."""
        return ("ip", "netns", "exec", self.client, sys.executable, "-m", "loadgen")

    def cut(self) -> None:
        """Nothing goes through any more, and nobody is told."""
        ip("-n", self.server, "link", "set", "far", "down")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    """A cable with a simulator at its far end."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("networks of their own want root and iproute2")
    names = [f"lg{secrets.token_hex(3)}" for _ in range(2)]
    with contextlib.ExitStack() as ends:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network of its own can be made here: {error.stderr}")
            ends.callback(ip, "netns", "del", name)
        near, far = names
        ip("-n", near, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", far)
        for name, end, address in ((near, "near", CLIENT), (far, "far", SERVER)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        words = ["ip", "netns", "exec", far, sys.executable, "-m", "server.sim", "--host", SERVER, "--port", str(PORT)]
        with subprocess.Popen([*words, "--sim-speed", "20"], stderr=subprocess.DEVNULL) as simulator:
            try:
                asked = f"http://{SERVER}:{PORT}/health"
                probe = [
                    "ip",
                    "netns",
                    "exec",
                    near,
                    sys.executable,
                    "-c",
                    f"import urllib.request as u; u.urlopen({asked!r})",
                ]
                eventually(lambda: not subprocess.run(probe, check=False, capture_output=True).returncode, RUN_S_MAX)
                yield Cable(near, far)
            finally:
                simulator.terminate()
                simulator.wait(timeout=RUN_S_MAX)


def test_r04_a_network_that_is_cut(start: Callable[..., Run], cable: Cable) -> None:
    """What is in flight ends by its own deadlines and the Point soon after: INVALID, each request asked once."""
    run = start(BASELINE, "engine=external", f"engine.url=http://{SERVER}:{PORT}", *LIMITS, program=cable.program)
    await_rows(run)
    cable.cut()
    ended = run.end()
    assert ended.code == 6, ended.err
    (line,) = ended.ledger()
    assert line["status"] == "INVALID"
    assert {"failed_share", "silence"} <= set(line["rules"])
    (point,) = ended.points()
    asked = "select outcome, count(*), count(distinct seq), max(done_ns) / 1e9"
    rows = duckdb.sql(f"{asked} from '{ended.results}/**/requests.parquet' group by all").fetchall()
    assert all(count == seqs for _, count, seqs, _ in rows)
    assert max(done_s for *_, done_s in rows) < point["window"]["end_s"] + DEADLINE_S + DRAIN_SPARE_S
    lost = {outcome for outcome, *_ in rows} - {"ok", "cut"}
    assert "timeout_stall" in lost
    assert lost <= {"timeout_stall", "timeout_first_token", "timeout_connect", "connect", "connection_lost"}
