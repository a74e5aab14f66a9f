"""The simulator's life as a process tree: start, log, death of any part, signals, ports and faults."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

WAIT_S_MAX = 30.0
READY = "The server is fired up and ready to roll!"
EAGLE = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk"
PREFIX = r"^\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<ranks>(?: [A-Z_]+\d+)*)\]\s"
DECODE = PREFIX + (
    r"Decode batch(?: \[(?P<it>\d+)\])?, #running-req: (?P<run>\d+), .*?token usage: (?P<tu>[\d.]+), "
    r"(?:.*?accept len: (?P<al>[\d.]+), accept rate: (?P<ar>[\d.]+), )?.*?(?P<gb>[a-z]+) graph: (?P<cg>\w+), "
    r"gen throughput \(token/s\): (?P<tput>[\d.]+), #queue-req: (?P<q>\d+)"
)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def ask(port: int, method: str, path: str, body: object = None, wait_s: float = WAIT_S_MAX) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=wait_s)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def chat(port: int, tokens: int, wait_s: float = WAIT_S_MAX) -> tuple[int, bytes]:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "ignore_eos": True, "stream": True}
    return ask(port, "POST", "/v1/chat/completions", body, wait_s)


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def name_of(pid: int) -> str:
    """The process's title as it set it; empty before that, and once it has ended."""
    with contextlib.suppress(psutil.Error, IndexError):
        return psutil.Process(pid).cmdline()[0]
    return ""


class Simulator:
    """One started simulator and its log."""

    def __init__(self, folder: Path, flags: str, env: dict[str, str] | None = None, port: int | None = None) -> None:
        self.port = port or free_port()
        self.log = folder / f"{self.port}.{time.monotonic_ns()}.log"
        argv = [sys.executable, "-m", "server.sim", "--port", str(self.port), *flags.split()]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(argv, stderr=file, env={**os.environ, **(env or {})})
        self.children: list[int] = []

    def text(self) -> str:
        return self.log.read_text()

    def ready(self) -> "Simulator":
        """Wait until it is ready, and note its children."""
        wait_for(lambda: READY in self.text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.text()
        self.children = self.below()
        return self

    def below(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def child(self, title: str) -> int:
        (pid,) = (pid for pid in self.children if name_of(pid) == title)
        return pid


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Simulator]]:
    """Start simulators that are gone after the test."""
    started: list[Simulator] = []

    def run(flags: str = "", **more: Any) -> Simulator:
        started.append(Simulator(tmp_path, flags, **more))
        return started[-1]

    yield run
    for one in started:
        for pid in [one.process.pid, *one.children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        one.process.wait(WAIT_S_MAX)


def test_start_in_sglang_s_order(start: Callable[..., Simulator]) -> None:
    """The first line says it is a simulation and how fast; milestones follow in order, the port and readiness last."""
    log = start("--sim-speed 20").ready().text()
    assert "SIMULATION" in log.splitlines()[0]
    assert "x20" in log.splitlines()[0]
    milestones = [
        "server_args=",
        "Init torch distributed begin.",
        "Init torch distributed ends. elapsed=",
        "Load weight begin. avail mem=",
        "Load weight end.",
        "KV Cache is allocated. #tokens:",
        "Capture cuda graph begin",
        "max_total_num_tokens=",
        "Uvicorn running on",
        READY,
    ]
    places = [log.index(milestone) for milestone in milestones]
    assert places == sorted(places)


def test_children_have_sglang_s_titles(start: Callable[..., Simulator]) -> None:
    """A scheduler and a detokenizer stand beside the launcher."""
    one = start().ready()
    titles = sorted(map(name_of, one.children))
    assert titles == ["sglang::detokenizer", "sglang::scheduler_TP0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_end_leaves_nothing(start: Callable[..., Simulator], number: int) -> None:
    """SIGTERM and SIGINT end launcher and children, and the port is free."""
    one = start().ready()
    one.process.send_signal(number)
    assert one.process.wait(WAIT_S_MAX) == 0
    assert not any(map(alive, one.children))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", one.port), timeout=1)


def test_sigterm_lets_short_answers_end_and_does_not_wait_for_long_ones(start: Callable[..., Simulator]) -> None:
    """A stream that would take minutes does not hold the end up."""
    one = start("--sim-speed 1").ready()
    with socket.create_connection(("127.0.0.1", one.port), timeout=WAIT_S_MAX) as sock:
        body = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":90000,"ignore_eos":true,"stream":true}'
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        sock.recv(1)
        one.process.terminate()
        assert one.process.wait(WAIT_S_MAX) == 0
    assert not any(map(alive, one.children))


def test_children_die_with_a_killed_launcher(start: Callable[..., Simulator]) -> None:
    """SIGKILL of the launcher ends both children at once."""
    one = start().ready()
    one.process.kill()
    one.process.wait(WAIT_S_MAX)
    wait_for(lambda: not any(map(alive, one.children)))


def test_without_its_scheduler_the_front_end_answers_and_never_generates(start: Callable[..., Simulator]) -> None:
    """As in 0.5.9: the tree's head lives, /server_info answers, /health is 503 after its wait, no token ever comes."""
    one = start("--sim-speed 100 --enable-metrics").ready()
    os.kill(one.child("sglang::scheduler_TP0"), signal.SIGKILL)
    assert ask(one.port, "GET", "/server_info")[0] == 200
    assert ask(one.port, "GET", "/health")[0] == 503
    with pytest.raises(TimeoutError):
        chat(one.port, 1, wait_s=0.5)
    assert one.process.poll() is None
    one.process.terminate()
    assert one.process.wait(WAIT_S_MAX) == 0


def test_a_taken_port_is_the_trap_it_is_in_sglang(start: Callable[..., Simulator]) -> None:
    """The second server on a port calls itself ready, then dies of the address; the first goes on answering."""
    first = start("--random-seed 1").ready()
    second = start("--random-seed 2", port=first.port)
    assert second.process.wait(WAIT_S_MAX) == 1
    log = second.text()
    assert log.index(READY) < log.index("error while attempting to bind on address")
    assert json.loads(ask(first.port, "GET", "/server_info")[1])["random_seed"] == 1


@pytest.mark.parametrize(
    ("flags", "env", "status", "line"),
    [
        ("--no-such-flag", {}, 2, "unrecognized arguments: --no-such-flag"),
        ("--sim-fault explode", {}, 2, "there is no fault 'explode'"),
        ("--sim-profile /nowhere.yaml", {}, 2, "/nowhere.yaml"),
        (f"{EAGLE} 4", {"SGLANG_ENABLE_SPEC_V2": "1"}, 1, "ValueError: Spec v2 currently only supports topk = 1"),
        ("--sim-fault die_at_start:3", {}, 3, "Received sigquit from a child process."),
    ],
)
def test_starts_that_fail(
    start: Callable[..., Simulator], flags: str, env: dict[str, str], status: int, line: str
) -> None:
    """A start that cannot be ends with its status and a line that says why, before the port opens."""
    one = start(flags, env=env)
    assert one.process.wait(WAIT_S_MAX) == status
    assert line in one.text()
    assert READY not in one.text()


@pytest.mark.parametrize(
    ("topk", "env", "line", "sync"),
    [
        ("4", {"SGLANG_ENABLE_SPEC_V2": "0"}, "Overlap scheduler is disabled when spec v2 is off", True),
        ("1", {"SGLANG_ENABLE_SPEC_V2": "1"}, "Spec v2 is enabled for eagle/eagle3 speculative decoding", False),
    ],
)
def test_the_environment_decides_the_worker(
    start: Callable[..., Simulator], topk: str, env: dict[str, str], line: str, sync: bool
) -> None:
    """The log names the worker that runs, and /server_info the overlap."""
    one = start(f"{EAGLE} {topk}", env=env).ready()
    assert line in one.text()
    assert json.loads(ask(one.port, "GET", "/server_info")[1])["disable_overlap_schedule"] is sync


def test_decode_lines_are_sglang_s(start: Callable[..., Simulator]) -> None:
    """Every decode-log-interval steps one line with running, queued, acceptance and throughput."""
    one = start(f"{EAGLE} 4 --decode-log-interval 5 --sim-speed 200").ready()
    chat(one.port, 200)
    lines = [m for m in (re.match(DECODE, line) for line in one.text().splitlines()) if m]
    assert len(lines) >= 5
    assert {(m["run"], m["q"], m["cg"], m["ranks"]) for m in lines} == {("1", "0", "True", " TP0")}
    assert all(1 <= float(m["al"]) <= 4 for m in lines)
    assert float(lines[-1]["tput"]) > 0
    assert "Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 0, " in one.text()


def test_never_ready_never_opens_its_port(start: Callable[..., Simulator]) -> None:
    """It goes on loading; only a signal ends it."""
    one = start("--sim-fault never_ready")
    wait_for(lambda: "Load weight begin" in one.text())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", one.port), timeout=1)
    children = psutil.Process(one.process.pid).children()
    one.process.terminate()
    one.process.wait(WAIT_S_MAX)
    wait_for(lambda: not any(alive(child.pid) for child in children))


def test_slow_start_takes_its_time(start: Callable[..., Simulator]) -> None:
    """Readiness comes no earlier than asked."""
    began = time.monotonic()
    start("--sim-fault slow_start:0.7").ready()
    assert time.monotonic() - began >= 0.7


def test_die_after_kills_the_launcher(start: Callable[..., Simulator]) -> None:
    """It ends by SIGKILL of its own, as SGLang does when a child has failed."""
    one = start("--sim-fault die_after:0.1")  # and not ready(): who looks late finds it dead
    assert one.process.wait(WAIT_S_MAX) == -signal.SIGKILL
    log = one.text()
    assert log.index(READY) < log.index("SIGQUIT received.")


def test_a_fault_can_wait_for_a_request(start: Callable[..., Simulator]) -> None:
    """What is counted from a request spares those before it, however long the server has been there."""
    one = start("--sim-fault die_after:0:3").ready()
    assert [chat(one.port, 3)[0] for _ in range(2)] == [200, 200]
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        chat(one.port, 90000)
    assert one.process.wait(WAIT_S_MAX) == -signal.SIGKILL


@pytest.mark.parametrize("counted", ["kill_scheduler:1", "kill_scheduler:0:1"])
def test_kill_scheduler_leaves_the_front_end(start: Callable[..., Simulator], counted: str) -> None:
    """The scheduler dies by itself, a time after its start or at a request, and the launcher lives on."""
    one = start(f"--sim-speed 100 --sim-fault {counted}").ready()
    if counted.endswith(":0:1"):
        with pytest.raises(TimeoutError):
            chat(one.port, 1, wait_s=0.5)
    wait_for(lambda: ask(one.port, "GET", "/health")[0] == 503)
    assert [name_of(pid) for pid in one.children if alive(pid)] == ["sglang::detokenizer"]
    assert ask(one.port, "GET", "/v1/models")[0] == 200


def test_ignore_sigterm_needs_sigkill(start: Callable[..., Simulator]) -> None:
    """SIGTERM changes nothing: it still answers."""
    one = start("--sim-fault ignore_sigterm").ready()
    one.process.terminate()
    assert chat(one.port, 3)[0] == 200
    assert one.process.poll() is None


def test_orphan_outlives_the_server(start: Callable[..., Simulator]) -> None:
    """A grandchild in a session of its own is still there when launcher and children are gone."""
    one = start("--sim-fault orphan")
    wait_for(lambda: READY in one.text())
    wait_for(lambda: "sglang::orphan" in map(name_of, one.below()))
    one.ready()
    orphan = one.child("sglang::orphan")
    one.process.terminate()
    one.process.wait(WAIT_S_MAX)
    assert alive(orphan)
    assert os.getsid(orphan) == orphan
    os.kill(orphan, signal.SIGKILL)
    wait_for(lambda: not alive(orphan))
