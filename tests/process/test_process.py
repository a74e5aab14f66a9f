"""Launch, proof, death and stop of real server processes."""

import dataclasses
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from fakes import Specs, Start, eventually, is_gone, pids_in, prove

from server import log, ports, process, ready
from server.death import death
from server.process import StartError, launch
from server.proof import contradictions
from server.ready import replaced, wait_ready
from server.stop import leftovers, stop


def test_r13_r19_no_process_of_a_server_has_a_secret(
    spec: Specs, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard and server lack the key by its name and all that is named like a secret; the variant's own is there."""
    for name in ("THE_ONE", "HF_TOKEN", "my_secret", "A_KEY_OF_SOME"):
        monkeypatch.setenv(name, "canary-secret")
    running = started(spec({"api_key_env": "THE_ONE"}))
    for member in (running.guard, running.server):
        has = Path(f"/proc/{member.pid}/environ").read_text()
        assert "FAKE=" in has
        assert "canary-secret" not in has


def test_no_token_is_not_ready(spec: Specs, started: Start) -> None:
    """A 200 without a generated token proves nothing."""
    with pytest.raises(StartError, match="without a token"):
        prove(started(spec(tokens=0)), limit_s=4)


def test_r09_a_wrong_seed_is_another_server(spec: Specs, started: Start) -> None:
    """A server that tells another seed than this launch gave is refused at once."""
    with pytest.raises(StartError, match="another server than ours answers: /server_info shows random_seed 5"):
        prove(started(spec(seed=5)))


@pytest.mark.parametrize(
    ("told", "flag"),
    [
        ({"speculative_algorithm": "EAGLE3"}, "speculative_algorithm"),
        ({"max_running_requests": 48}, "max_running_requests"),
        ({"attention_backend": "fa3"}, "attention_backend"),
        ({"version": "0.5.23", "flashinfer_allreduce_fusion_backend": "auto"}, "flashinfer_allreduce_fusion_backend"),
    ],
)
def test_a_server_that_resolved_otherwise_is_found_out(
    spec: Specs, started: Start, told: dict[str, object], flag: str
) -> None:
    """It is ready, for it is ours and generates, and what it tells contradicts its variant."""
    proven = prove(started(spec(info=told)))
    wrong, quiet = contradictions(proven.running.spec, proven.server_info, 100)
    assert [one.flag for one in wrong] == [flag]
    assert quiet


def test_a_port_that_is_taken_over_is_noticed(spec: Specs, started: Start) -> None:
    """A server of ours that lives on while its port is answered by somebody else is not the one that was proven."""
    running = prove(started(spec())).running
    assert replaced(running) is None
    other = started(spec(port=(taken := ports.free_port("127.0.0.1")).number))
    eventually(lambda: ports.answers("127.0.0.1", taken.number))
    moved = dataclasses.replace(running, port=taken)
    assert f"answered by process {other.server.pid}" in (replaced(moved) or "")


def test_r09_an_impostor_on_the_port_is_not_ready(spec: Specs, started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 200 on our port from a process that is not ours ends in an error that names it."""
    monkeypatch.setattr(ready, "STRANGER_S", 0.5)
    running = started(spec(bind=False))
    other = spec(port=running.port.number, seed=running.seed)
    started(other)
    eventually(lambda: ports.answers("127.0.0.1", running.port.number))
    with pytest.raises(StartError, match=rf"port {running.port.number} is answered by process \d+"):
        prove(running)


def test_r03_never_ready_ends_with_the_last_doubt(spec: Specs, started: Start) -> None:
    """At the limit the error says what was missing and which key to raise."""
    with pytest.raises(StartError, match=r"nothing listens on its port yet.*engine\.ready_s_max"):
        prove(started(spec(bind=False)), limit_s=0.5)


def test_a_start_can_be_cancelled(spec: Specs, started: Start) -> None:
    """A start that is not wanted any more ends without waiting for its limit."""
    wanted = threading.Event()
    threading.Timer(0.3, wanted.set).start()
    with pytest.raises(StartError, match="cancelled"):
        wait_ready(started(spec(bind=False)), time.monotonic() + 600, wanted.is_set)


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port on which somebody listens is passed over, whoever it is."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr(ports, "PORT_FIRST", number)
        monkeypatch.setattr(ports, "PORT_LAST", number + 1)
        monkeypatch.setattr(ports, "TRIES", 1)
        with pytest.raises(OSError, match="is free; see what listens there"):
            ports.free_port("127.0.0.1")


def test_r03_a_death_is_told_with_its_cause(spec: Specs, started: Start) -> None:
    """Killed from outside, the server's signal is named within moments."""
    running = prove(started(spec())).running
    os.kill(running.server.pid, signal.SIGKILL)
    dead = eventually(lambda: death(running))
    assert (dead.exit, dead.reason) == (-9, "the server was killed by signal 9 (SIGKILL)")


def test_a_dead_scheduler_is_a_dead_server(spec: Specs, started: Start) -> None:
    """A server that answers on while its engine's process is gone is not alive."""
    running = prove(started(spec(titled=True, grandchild=True))).running
    scheduler = next(member for member in running.family if "scheduler" in member.title)
    os.kill(scheduler.pid, signal.SIGKILL)
    assert "sglang::scheduler_TP0" in eventually(lambda: death(running)).reason


def test_an_unnamed_helper_may_end(spec: Specs, started: Start) -> None:
    """Where the engine's processes carry titles, others (compilers) come and go."""
    running = prove(started(spec(titled=True, grandchild=True))).running
    helper = next(m for m in running.family[1:] if "scheduler" not in m.title)
    os.kill(helper.pid, signal.SIGKILL)
    eventually(lambda: is_gone(helper.pid))
    assert death(running) is None


@pytest.mark.parametrize(
    "fake", [{}, {"ignore_term": True, "grandchild": True, "escaped": True, "titled": True}, {"exit": 0}]
)
def test_stop_leaves_nothing(spec: Specs, tmp_path: Path, fake: dict[str, object]) -> None:
    """After stop no process, port or file of the guard is left, and a second stop is harmless."""
    running = launch(spec(pids=str(tmp_path / "pids"), **fake), tmp_path / "out", "127.0.0.1")
    pids = pids_in(tmp_path / "pids")
    report = stop(running, term_s=0.5)
    assert (report.clean, report.left) == (True, ())
    assert all(is_gone(pid) for pid in [*pids, running.guard.pid])
    assert ports.can_bind("127.0.0.1", running.port.number)
    assert not running.state.exists()
    assert stop(running, term_s=0.5).clean


def test_stop_finds_the_family_without_its_guard(spec: Specs, tmp_path: Path) -> None:
    """With the guard killed -9, stop itself kills the processes it had seen."""
    running = launch(spec(pids=str(tmp_path / "pids"), grandchild=True, escaped=True), tmp_path / "out", "127.0.0.1")
    running = prove(running).running
    os.kill(running.guard.pid, signal.SIGKILL)
    assert eventually(lambda: death(running)).exit is None
    assert stop(running, term_s=0.5).clean
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))


def test_stop_names_what_is_left(spec: Specs, tmp_path: Path) -> None:
    """A device that keeps its memory makes a stop that is not clean, in words."""
    running = launch(spec(), tmp_path / "out", "127.0.0.1")
    report = stop(running, 1.0, memory_held=lambda: ["GPU 0 still has 60.0 GiB in use"])
    assert (report.clean, report.left) == (False, ("GPU 0 still has 60.0 GiB in use",))


def test_r08_leftovers_are_named(spec: Specs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guarded server is none; folders of guards without a process vanish."""
    monkeypatch.setattr(process.tempfile, "tempdir", str(tmp_path))
    running = launch(spec(bind=False), tmp_path / "out", "127.0.0.1")
    assert leftovers() == []
    assert running.state.exists()
    os.kill(running.guard.pid, signal.SIGKILL)
    eventually(lambda: not running.server.lives())
    assert leftovers() == []
    assert not running.state.exists()
    assert stop(running, term_s=0.1).clean


def test_r10_a_guard_whose_folder_is_out_of_sight(spec: Specs, tmp_path: Path) -> None:
    """That of another run in a container, which shares our processes and not our /tmp: its server is no leftover."""
    running = launch(spec(bind=False), tmp_path / "out", "127.0.0.1")
    hidden = running.state.rename(running.state.with_name("hidden"))
    try:
        assert not any(str(running.server.pid) in told for told in leftovers())
    finally:
        hidden.rename(running.state)
    assert stop(running, term_s=0.1).clean


def test_progress_is_the_last_milestone(spec: Specs, started: Start) -> None:
    """The display shows how far the start has come."""
    running = started(spec(bind=False, say=["Load weight begin. avail mem=80 GB", "x", "Load weight end."]))
    assert eventually(lambda: log.progress(running.log) == "weights loaded")


def test_secrets_do_not_reach_the_server(spec: Specs, started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables named like secrets stay with us; the variant's own and the devices get through."""
    monkeypatch.setenv("SOME_API_KEY", "canary")
    running = started(spec(bind=False, env=["SOME_API_KEY", "PATH"], say=["-"]))
    log = eventually(lambda: "PATH=" in (text := running.log.read_text()) and text)
    assert "SOME_API_KEY=None" in log
    assert "canary" not in log
