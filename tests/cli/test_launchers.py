"""Servers that go wrong in every way that a launcher can: each ends as designed within its bound, nothing is left.

The files of one command share its Ray; what was started and survived is found by the fixtures of this folder.
"""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import psutil
import pytest
from running import TINY, Ended, Run, below_us, eventually

pytestmark = pytest.mark.slow

SIM = ("engine=sim", "engine.sim_speed=20", "workload.max_tokens=32")
START_S_MAX = 60.0
CRASH_S_MAX = 30.0  # two seconds on a machine that is not busy with other tests
GRID_S_MAX = 240.0  # eight starts
READY_S_MAX = 20.0  # what a server that is never ready gets

# In FAULTS: faults of the simulator joined by +; or `seed`: it tells another one, `cap`: it runs at most 48 requests,
# `taken`: somebody else gets its port before it does.
LAUNCHER = """#!/bin/sh
port=; before=
for word in "$@"; do [ "$before" = --port ] && port=$word; before=$word; done
case "$FAULTS" in
  seed) set -- "$@" --random-seed 5 ;;
  cap) set -- "$@" --max-running-requests 48 ;;
  taken) echo "$port" > "$0.part"; mv "$0.part" "$0.port"; while ! [ -e "$0.taken" ]; do sleep 0.1; done ;;
  none) ;;
  *) for fault in $(echo "$FAULTS" | tr + ' '); do set -- "$@" --sim-fault "$fault"; done ;;
esac
exec PYTHON "$@"
"""


class Yes(BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def stranger(launcher: Path) -> Iterator[None]:
    """Takes the port that the launcher was given, as soon as it is told, and answers there."""
    servers: list[ThreadingHTTPServer] = []

    def take() -> None:
        told = Path(f"{launcher}.port")
        eventually(told.exists, 4 * START_S_MAX, "the launcher's port")
        servers.append(ThreadingHTTPServer(("127.0.0.1", int(told.read_text())), Yes))
        Path(f"{launcher}.taken").touch()
        servers[0].serve_forever()

    threading.Thread(target=take, daemon=True).start()
    yield
    for server in servers:
        server.shutdown()
        server.server_close()


EXPECTED = {
    "die_at_start:7": ("FAILED", 3, "exit status 7 (engine_crashed: "),
    "never_ready": ("FAILED", 3, "not ready: nothing listens on its port yet"),
    "seed": ("FAILED", 3, "another server than ours answers: /server_info shows random_seed 5"),
    "taken": ("FAILED", 3, "exit status 1 (port_taken: "),
    "other_variant": ("INVALID", 6, "speculative_algorithm"),
    "cap": ("INVALID", 6, "max_running_requests"),
    "orphan+ignore_sigterm": (None, None, ""),
    "none": (None, None, ""),
}


def test_every_way_to_go_wrong(start: Callable[..., Run], tmp_path: Path) -> None:
    """Dead at start, never ready, another's seed, a port that a stranger answers on, other flags, a cap of 48: each is
    told in its ledger line, and the next server is well; one that ignores SIGTERM and has an orphan is ended."""
    launcher = tmp_path / "launcher"
    launcher.write_text(LAUNCHER.replace("PYTHON", sys.executable))
    launcher.chmod(0o755)
    limits = (f"engine.ready_s_max={READY_S_MAX:g}", "engine.stop_s_max=2")
    load = ("load.concurrency=64", "load.requests=64", *limits)
    with stranger(launcher):
        faults = f"variant.env.FAULTS={','.join(EXPECTED)}"
        ended = start("-m", "+variant=baseline", *SIM, *load, f"engine.python={launcher}", faults).end(GRID_S_MAX)
    lines = ended.ledger()
    assert ended.code == 3, ended.err
    assert len(lines) == len(EXPECTED)
    for line, (fault, (status, code, words)) in zip(lines, EXPECTED.items(), strict=True):
        assert line["status"] in ({status} if status else {"VALID", "INVALID"}), (fault, line)
        assert code in (None, line["exit_code"]), (fault, line)
        assert words in (line["reason"] or ""), (fault, line)
    assert lines[0]["log_tail"]
    assert "read the traceback" in lines[0]["reason"], "the advice comes with the reason"
    assert "server" not in (lines[-1]["reason"] or "")


def scheduler() -> psutil.Process:
    """The engine's process of the one simulator that runs."""

    def found() -> list[int]:
        return [pid for pid, title in below_us().items() if title.startswith("sglang::scheduler")]

    return psutil.Process(eventually(found, START_S_MAX, "the scheduler")[0])


def test_r03_h07_crashes_in_a_point(start: Callable[..., Run]) -> None:
    """Killed in a Point, then stopped in the next: both FAILED at once with their rows; a third start is not tried.

    The front end of each lives on and answers; no stream floods it with requests.
    """
    load = ("load.concurrency=[4,3,2]", "load.window_s=600", "workload.max_tokens=512", "engine.hang_s_max=4")
    run = start("+variant=baseline", *SIM[:2], *load)
    waits = []
    for number, signum in enumerate((signal.SIGKILL, signal.SIGSTOP), 1):
        run.await_line("· window ·", number)
        folder = run.await_found(f"outputs/*/*/c{5 - number}")
        victim = scheduler()
        killed_s = time.time()
        victim.send_signal(signum)
        eventually((folder / "point.json").exists, START_S_MAX, "the Point's end")
        waits.append((folder / "point.json").stat().st_mtime - killed_s)
    ended = run.end()
    assert ended.code == 3
    assert waits[0] < CRASH_S_MAX
    assert waits[1] < 4 + 2 * CRASH_S_MAX
    died, hung, refused = ended.ledger()
    assert [line["status"] for line in (died, hung, refused)] == ["FAILED"] * 3
    assert "(sglang::scheduler_TP0) died (child_died)" in died["reason"]
    assert re.search("hang; /health (answers 503|does not answer within 3 s)", hung["reason"]), hung
    assert "(sglang::scheduler_TP0) is stopped" in hung["reason"]
    assert "not started again: this server has failed in 2 Points of block 0" in refused["reason"]
    assert "Decode batch" in died["log_tail"]
    assert "Decode batch" in ended.err
    outcomes = duckdb.sql(
        f"select concurrency, outcome, count(*) from '{ended.results}/**/requests.parquet' group by all"
    ).fetchall()
    for level in (4, 3):
        counts = {outcome: count for streams, outcome, count in outcomes if streams == level}
        assert counts["ok"] >= 1
        assert sum(counts.values()) - counts["ok"] <= 4 * level
        assert (counts.get("server_gone", 0) > 0) == (level == 4)  # in flight when it died; a frozen one is not gone
    reasons = [point["verdict"]["reasons"][0] for point in ended.points()]
    assert {reason["rule"] for reason in reasons} == {"server_died", "server_hung"}
    assert all(reason["log_tail"] and reason["advice"] for reason in reasons)


def test_h02_a_node_that_is_not_clean(start: Callable[..., Run]) -> None:
    """Somebody sits on a port of the first server when it ends: named, exit 3, and the next server is not started."""
    run = start("-m", "+variant=baseline,eagle_topk1_v2", *TINY[:2], "load.concurrency=2", "load.requests=60")
    told = json.loads(run.await_found("outputs/*/*/*/launch.json").read_text())
    number = int(told["argv"][told["argv"].index("--port") + 1])
    with seized(number):
        ended = run.end()
    first, second = ended.ledger()
    assert ended.code == 3
    assert first["status"] in ("VALID", "INVALID")
    assert (second["status"], second["exit_code"]) == ("FAILED", 3)
    held = f"port {number} is still held by process {os.getpid()}"
    assert "not started: the node is not clean" in second["reason"]
    assert held in second["reason"]
    assert f"left behind by {first['variant']}: {held}" in ended.err
    assert len(list(ended.results.rglob("server.log"))) == 1


@contextmanager
def seized(number: int) -> Iterator[None]:
    """Listens on a port as soon as it is free, before anybody else does."""
    over, held = threading.Event(), []

    def take() -> None:
        while not held and not over.is_set():
            with suppress(OSError):
                held.append(socket.create_server(("127.0.0.1", number)))
            time.sleep(0.001)

    thread = threading.Thread(target=take)
    thread.start()
    yield
    over.set()
    thread.join()
    held[0].close()


def test_i09_a_server_that_floods(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """Fifty thousand lines and a last word before the end: the driver shows few of them, and the word."""
    flood = tmp_path / "flood"
    program = "for n in range(50_000): print('step', n + 1)\nprint('FATAL: bad weights')\nraise SystemExit(1)"
    flood.write_text(f"#!{sys.executable}\n{program}\n")
    flood.chmod(0o755)
    ended = cli("+variant=baseline", *TINY, f"engine.python={flood}")
    assert ended.code == 3
    assert len(ended.err.splitlines()) < 200
    assert "FATAL: bad weights" in ended.err
    (log,) = ended.results.rglob("server.log")
    assert len(log.read_bytes().splitlines()) == 50_001
