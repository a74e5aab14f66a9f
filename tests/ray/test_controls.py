"""Negative controls: the meter must be able to fail. Each fault is real, and makes its Point INVALID by its own rule.

Real programs outside the worker do what a busy loop, a hog, a limit of connections and a sick server do to it. A lost
worker is test_lost.py's, a server that stands still test_faults.py's.
"""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from neighbour import of_the_server
from running import faulty_python

import server
from loadgen import cluster
from loadgen.__main__ import main
from loadgen.crew import WORKER_TITLE
from loadgen.dataset import point_files, read_json
from loadgen.footprint import titled

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_ray")]
FAST = ("workload.max_tokens=128", "load.window_s=3", "output.quiet=true")
SIM = ("+variant=baseline", "engine=sim", "engine.sim_speed=20", *FAST)
PAUSE_S, PAUSE_EVERY_S = 0.05, 0.5
HOGS = 4  # one alone gets its half between the worker's short turns, and delays nothing
CONNECTIONS = 4
STREAMS, SPARE_FILES = 200, 255  # more than so many streams and a worker need, by less than a quarter


@pytest.fixture(scope="module")
def one_ray() -> Iterator[None]:
    """One of these tests' own, which keeps a core for the worker: a hog elsewhere would not be beside it."""
    assert not ray.is_initialized(), "it has to come before the modules that share one"
    with cluster.opened(None):
        yield


def broken(folder: Path, *asked: str) -> list[dict[str, Any]]:
    """What speaks against the one Point of a run."""
    code = main([*asked, f"hydra.run.dir={folder}/run"])
    (point,) = map(read_json, point_files(folder))
    reasons = list(point["verdict"]["reasons"])
    print(reasons)
    assert code == (6 if reasons else 0)
    return reasons


def rules_of(reasons: Iterable[Mapping[str, Any]]) -> set[str]:
    """The rules that were broken."""
    return {reason["rule"] for reason in reasons}


def workers() -> list[psutil.Process]:
    """The processes that drive, or have driven."""
    return titled(WORKER_TITLE)


@contextlib.contextmanager
def meanwhile(what: object) -> Iterator[None]:
    """Calls `what` again and again in a thread of its own for the length of the block."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            what()  # type: ignore[operator]

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def pause_workers() -> None:
    """What a busy loop of 50 ms does: nothing else of the process runs meanwhile."""
    for process in workers():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            process.send_signal(signal.SIGCONT)
    time.sleep(PAUSE_EVERY_S)


def test_a_busy_loop_in_the_worker(tmp_path: Path) -> None:
    """50 ms, twice a second: less than a tenth of the time, and every p99 is wrong."""
    with meanwhile(pause_workers):
        assert "loop_lag_p99" in rules_of(broken(tmp_path, *SIM, "load.concurrency=4"))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only: hogs there would stop the whole run")
def test_a_hog_on_the_workers_core(tmp_path: Path) -> None:
    """Other programs on the one core that the worker has."""
    core = max(range(os.cpu_count() or 1))
    spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(HOGS)]
    try:
        assert "loop_lag_p99" in rules_of(broken(tmp_path, *SIM, "load.concurrency=4"))
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_a_limit_of_open_files(tmp_path: Path) -> None:
    """Enough for this level, not for the next."""
    limited: dict[int, int] = {}

    def lower() -> None:
        for process in workers():
            with contextlib.suppress(psutil.Error, OSError):
                # Less of it when the warm-up's connections, among which it may have been counted first, are closed.
                limit = process.num_fds() + SPARE_FILES
                if limit < limited.get(process.pid, limit + 1):
                    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
                    limited[process.pid] = limit
        time.sleep(0.05)

    with meanwhile(lower):
        assert "descriptors" in rules_of(broken(tmp_path, *SIM, f"load.concurrency={STREAMS}"))
    assert limited


def relay(source: socket.socket, target: socket.socket, over: threading.Event) -> None:
    """Hands on what comes until it ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
    over.set()


@contextlib.contextmanager
def pool_of(connections: int, port: int) -> Iterator[int]:
    """The port of a proxy to `port` that serves so many connections at once and lets all others wait."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    over = threading.Event()
                    to = socket.create_connection(("127.0.0.1", port))
                    for ends in ((client, to), (to, client)):
                        threading.Thread(target=relay, args=(*ends, over), daemon=True).start()
                    over.wait()

        for _ in range(connections):
            threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_limit_of_connections(tmp_path: Path) -> None:
    """Eight streams, of which a pool lets four through: the others stand empty, and the level is not what was asked."""
    null = [sys.executable, "-I", "-S", str(Path(server.__file__ or "").parent / "null.py")]
    with subprocess.Popen(null, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with pool_of(CONNECTIONS, int(process.stdout.readline())) as port:
            asked = ("engine=external", f"engine.url=http://127.0.0.1:{port}", "load.connect_s_max=1")
            reasons = broken(
                tmp_path, "+variant=baseline", *asked, *FAST, "load.first_token_s_max=2", "load.concurrency=8"
            )
        process.kill()
    assert "concurrency_held" in rules_of(reasons)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [("short:0.25", "short_share"), ("slow_down:0.5", "steady")],
)
def test_a_sick_server(fault: str, rule: str, tmp_path: Path) -> None:
    """One that answers shorter, or becomes slower and slower; nothing else is said of it."""
    python = (f"engine.python={faulty_python(tmp_path)}", f"variant.env.FAULTS={fault}")
    assert rules_of(of_the_server(broken(tmp_path, *SIM, *python, "load.concurrency=4"))) == {rule}


def test_streams_in_step(tmp_path: Path) -> None:
    """Eight streams that begin together, with answers of one length."""
    reasons = broken(tmp_path, *SIM, "load.concurrency=8", "load.stagger_s=0", "workload.max_tokens=512")
    assert rules_of(of_the_server(reasons)) == {"in_step"}
