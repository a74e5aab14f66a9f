"""Cases H of servers' lives: started, ready, dead, stopped, and what is left; with real processes that misbehave."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from fakes import Specs, Start, eventually, is_gone, pids_in, prove, seize

from server import gpu, ports
from server.ask import ask
from server.death import death
from server.process import StartError, launch
from server.stop import bury, leftovers, stop

H06_ROUNDS = 20


def test_h02_children_that_left_the_launcher(spec: Specs, tmp_path: Path) -> None:
    """Double-forked, in a session of its own, deaf to TERM, on the next port: gone with the server, its port free.

    A process that looks the same but is not ours lives on.
    """
    ours = launch(spec(pids=str(tmp_path / "pids"), neighbour=True, ignore_term=True), tmp_path / "out", "127.0.0.1")
    other = launch(spec(escaped=True, pids=str(tmp_path / "others")), tmp_path / "out", "127.0.0.1")
    pids, number = pids_in(tmp_path / "pids"), ours.port.number
    eventually(lambda: ports.answers("127.0.0.1", number + 1))
    report = stop(ours, term_s=0.5)
    assert (report.clean, report.left) == (True, ())
    assert all(is_gone(pid) for pid in pids)
    assert ports.can_bind("127.0.0.1", number)
    assert ports.can_bind("127.0.0.1", number + 1)
    assert not any(is_gone(pid) for pid in pids_in(tmp_path / "others"))
    assert stop(other, term_s=0.5).clean


@pytest.mark.parametrize("nameless", [False, True])
def test_h02_a_child_that_nobody_saw(spec: Specs, tmp_path: Path, nameless: bool) -> None:
    """Forked after readiness, escaped, its guard killed: found by the launch's tag; until then it is a leftover.

    One whose environment is gone, as it is from every process that gave itself a title, by the log that it writes to.
    """
    running = prove(launch(spec(nameless=nameless), tmp_path / "out", "127.0.0.1")).running
    stray = ask(running.url, "/fork", post=True, timeout_s=10).json()["pid"]
    os.kill(running.guard.pid, signal.SIGKILL)
    eventually(lambda: not running.guard.lives() and not running.server.lives())
    assert not is_gone(stray)
    assert any(f"kill -9 {stray}" in told for told in leftovers())
    assert stop(running, term_s=0.5).clean
    assert is_gone(stray)
    assert not any(str(stray) in told for told in leftovers())


def test_h02_a_port_that_stays_is_told(spec: Specs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody else sits on the server's port after its end, the stop is not clean and says who.

    A port that it was given and never listened on is nobody's business.
    """
    monkeypatch.setattr("server.stop.PORT_S_MAX", 0.2)
    running = prove(launch(spec(), tmp_path / "out", "127.0.0.1")).running
    with ThreadPoolExecutor(1) as pool, socket.create_server(("127.0.0.1", running.nccl_port.number)):
        seizing = pool.submit(seize, running.port.number)
        report = stop(running, term_s=0.5)
        seizing.result(timeout=30).close()
    assert report.left == (f"port {running.port.number} is still held by {myself()}",)


def myself() -> str:
    """This process, as a report names it."""
    return f"process {os.getpid()} ({psutil.Process().name()})"


def test_h03_a_predecessor_that_holds_its_port(spec: Specs, tmp_path: Path) -> None:
    """A server that keeps its socket for a while after TERM: the stop waits for it, and the next server runs."""
    first = prove(launch(spec(linger_s=1.5), tmp_path / "out", "127.0.0.1")).running
    begun_s = time.monotonic()
    assert stop(first, term_s=20).clean
    assert time.monotonic() - begun_s >= 1.5
    second = prove(launch(spec(), tmp_path / "out", "127.0.0.1")).running
    assert stop(second, term_s=5).clean


def test_h04_ready_means_proven(spec: Specs, started: Start) -> None:
    """Ready comes only when health is 2xx and a generation yields tokens, and carries what the server tells."""
    began_s = time.monotonic()
    running = started(spec(health_503_s=0.5, generation_503_s=1.2))
    proven = prove(running)
    assert time.monotonic() - began_s > 1.2
    assert proven.server_info["random_seed"] == running.seed
    assert proven.model_id == "fake-model"
    assert death(proven.running) is None


def test_h04_ready_by_its_own_word_only(spec: Specs, started: Start) -> None:
    """A server that calls itself ready and never generates is given up long before the limit of the start."""
    said = ["The server is fired up and ready to roll!"]
    with pytest.raises(
        StartError, match=r"generates nothing for 0\.7 s \(engine\.hang_s_max\).*503.*\(hang\)"
    ) as caught:
        prove(started(spec({"hang_s_max": 0.7}, generation_503_s=600, say=said)), limit_s=600)
    assert caught.value.failure is not None
    assert "py-spy" in str(caught.value)


def test_h05_an_end_while_starting_is_told_at_once(spec: Specs, started: Start) -> None:
    """Exit status, class, advice and the last 50 lines of the log come with the error, long before the limit."""
    last = "torch.OutOfMemoryError: CUDA out of memory"
    running = started(spec(say=[*(f"step {n}" for n in range(100)), last], exit=1))
    begun_s = time.monotonic()
    with pytest.raises(StartError) as caught:
        prove(running, limit_s=600)
    assert time.monotonic() - begun_s < 30
    assert caught.value.exit == 1
    assert caught.value.reason == "the server ended by itself with exit status 1"
    assert "(gpu_memory: torch.OutOfMemoryError: CUDA out of memory); the GPU ran out of memory" in str(caught.value)
    lines = caught.value.log_tail.splitlines()
    assert (len(lines), lines[-1]) == (50, last)


def test_h05_a_death_while_it_is_asked(spec: Specs, started: Start) -> None:
    """A server that dies while the probe waits for its answer is told then, not when the answer is overdue."""
    running = started(spec(slow_generation_s=600))
    eventually(lambda: ports.answers("127.0.0.1", running.port.number))
    begun_s = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        proving = pool.submit(prove, running, 600)
        time.sleep(0.5)
        os.kill(running.server.pid, signal.SIGKILL)
        with pytest.raises(StartError, match="SIGKILL"):
            proving.result(timeout=30)
    assert time.monotonic() - begun_s < 30


def test_r09_h06_launches_at_once_share_nothing(spec: Specs, started: Start) -> None:
    """Launched at the same time on one host, each binds its ports: other ports, other seeds, other logs."""
    with ThreadPoolExecutor(3) as pool:
        launched = list(pool.map(lambda _: started(spec(bind_nccl=True)), range(3)))
    for running in launched:
        assert prove(running).running.port.number == running.port.number
        assert ports.answers("127.0.0.1", running.nccl_port.number)
    numbers = [port.number for running in launched for port in (running.port, running.nccl_port)]
    assert len(set(numbers)) == 6
    assert len({running.seed for running in launched}) == 3
    assert {running.log.name for running in launched} == {"server.log", "server_2.log", "server_3.log"}


@pytest.mark.parametrize("guards", [None, signal.SIGSTOP, signal.SIGKILL])
def test_i01_a_launch_whose_actor_is_gone(
    spec: Specs, tmp_path: Path, guards: signal.Signals | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happened to its guard, which even waits for an actor that was stopped: somebody else ends it by its
    name, with what was forked since, and proves that nothing is left."""
    monkeypatch.setattr("server.stop.ABANDONED_S_MAX", 1.0)  # nobody tells its guard that the actor is gone
    running = prove(launch(spec(ignore_term=True), tmp_path / "out", "127.0.0.1", name="0a1b")).running
    stray = ask(running.url, "/fork", post=True, timeout_s=10).json()["pid"]
    if guards:
        os.kill(running.guard.pid, guards)
    assert bury("0a1b", running.log, running.family, running.host, sorted(running.heard)).left == ()
    assert not any(member.lives() for member in (running.guard, *running.family))
    assert is_gone(stray)
    assert not running.state.exists()
    assert ports.can_bind("127.0.0.1", running.port.number)


def test_r03_a_death_that_the_guard_does_not_tell(spec: Specs, started: Start) -> None:
    """A guard that was stopped reports no status; that its server is gone is seen all the same."""
    running = prove(started(spec())).running
    os.kill(running.guard.pid, signal.SIGSTOP)
    os.kill(running.server.pid, signal.SIGKILL)
    dead = eventually(lambda: death(running))
    assert (dead.exit, dead.reason) == (None, "the server ended, and its guard does not say how")
    os.kill(running.guard.pid, signal.SIGCONT)
    assert eventually(lambda: death(running)).exit == -signal.SIGKILL


def test_h02_one_that_was_stopped_may_go_on_and_end(spec: Specs, tmp_path: Path) -> None:
    """SIGTERM reaches a stopped server only when it goes on, and its guard likewise: they are sent on their way."""
    running = prove(launch(spec(), tmp_path / "out", "127.0.0.1")).running
    os.kill(running.server.pid, signal.SIGSTOP)
    os.kill(running.guard.pid, signal.SIGSTOP)
    begun_s = time.monotonic()
    assert stop(running, term_s=60).clean
    assert time.monotonic() - begun_s < 30


@contextlib.contextmanager
def bound(_: int) -> Iterator[int]:
    """A chosen port with somebody on it."""
    port = ports.free_port("127.0.0.1")
    with socket.create_server(("127.0.0.1", port.number)):
        yield port.number
    port.release()


def test_h06_twenty_rounds_of_ports() -> None:
    """Six at once, twenty times: no port is chosen twice, each can be bound, none lies where clients' ports do."""
    for _ in range(H06_ROUNDS):
        with contextlib.ExitStack() as held, ThreadPoolExecutor(6) as pool:
            numbers = list(pool.map(lambda n: held.enter_context(bound(n)), range(6)))
        assert len(set(numbers)) == 6
        assert all(ports.PORT_FIRST <= number < ports.PORT_LAST for number in numbers)


def test_h08_device_memory_that_comes_back_late(spec: Specs, tmp_path: Path) -> None:
    """The stop lasts until the devices are free; the next start comes after. At its limit it names the device."""
    free_at_s = time.monotonic() + 1.5

    def read(_: object) -> dict[str, int]:
        return {"0": 0 if time.monotonic() > free_at_s else 2**36}

    first = launch(spec(bind=False), tmp_path / "out", "127.0.0.1")
    assert stop(first, 1.0, lambda: gpu.memory_held(["0"], {"0": 0}, read)).clean
    assert time.monotonic() >= free_at_s
    second = launch(spec(bind=False), tmp_path / "out", "127.0.0.1")
    report = stop(second, 1.0, lambda: gpu.memory_held(["0"], {"0": 0}, lambda _: {"0": 2**36}, limit_s=0.1))
    assert report.left == ("GPU 0 still has 64.0 GiB in use",)


def test_i09_a_flood_of_lines(spec: Specs, started: Start) -> None:
    """Fifty thousand lines and a last word: all are in the file, the last ones in the error, nothing waits for them."""
    running = started(spec(flood=50_000, say_last=["FATAL: bad weights"], exit=1))
    with pytest.raises(StartError) as caught:
        prove(running, limit_s=600)
    assert caught.value.log_tail.splitlines()[-2:] == ["step 50000", "FATAL: bad weights"]
    assert len(running.log.read_bytes().splitlines()) == 50_001
