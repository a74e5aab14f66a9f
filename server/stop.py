"""The end of a server: TERM, KILL, and the proof that no process, port or device memory is left of it.

It must not know of HTTP, of Ray, or of what is measured. It never kills by name: only processes seen as this server's.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from server import guard, ports
from server.process import STATE_PREFIX, Member, Running, family, read_json, title

# SGLang drains on TERM without an end of its own; it gets this long before KILL.
TERM_S = 30.0
# After KILL: the guard waits up to guard.KILL_S_MAX for processes to vanish, and then says which did not.
GONE_S_MAX = guard.KILL_S_MAX + 5.0
PORT_S_MAX = 10.0
POLL_S = 0.05
# A guard writes down its server within a second; a folder that is older and empty belongs to none.
EMPTY_STATE_S = 120.0


@dataclass(frozen=True)
class StopReport:
    """Whether nothing is left of a server, and what is, in words."""

    clean: bool
    left: tuple[str, ...]


def stop(running: Running, term_s: float = TERM_S, memory_held: Callable[[], list[str]] = list) -> StopReport:
    """Stop the server: TERM, KILL after `term_s`, then every process ever seen of it; and say what is still there.

    `memory_held` waits for the devices and names those that keep the server's memory. A second call finds nothing.
    """
    members = {member.pid: member for member in (*running.family, *family(running))}.values()
    _order(running, guard.ORDER_TERM)
    if not _wait(lambda: _is_swept(running), term_s):
        _order(running, guard.ORDER_KILL)
        _wait(lambda: _is_swept(running), GONE_S_MAX)
    _dismiss_guard(running)
    left = [*_kill(members), *_port_held(running), *memory_held()]
    for port in (running.port, running.nccl_port):
        port.release()
    return StopReport(clean=not left, left=tuple(left))


def _order(running: Running, order: bytes) -> None:
    # A guard that is gone has nothing to obey: what it left is killed below.
    with contextlib.suppress(OSError, ValueError):
        running.orders.write(order)


def _is_swept(running: Running) -> bool:
    return "left" in read_json(running.state / "exit.json") or not running.guard.lives()


def _dismiss_guard(running: Running) -> None:
    """End the guard, which removes its files unless it was killed."""
    running.orders.close()
    if not _wait(lambda: not running.guard.lives(), GONE_S_MAX):
        _signal(running.guard, signal.SIGKILL)
    shutil.rmtree(running.state, ignore_errors=True)


def _kill(members: Collection[Member]) -> list[str]:
    """Kill what survived its guard, and name what does not go."""
    for member in members:
        _signal(member, signal.SIGKILL)
    _wait(lambda: not any(member.lives() for member in members), GONE_S_MAX)
    return [f"process {member.pid} ({member.title}) is still alive" for member in members if member.lives()]


def _signal(member: Member, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if member.lives():
            os.kill(member.pid, number)


def _port_held(running: Running) -> list[str]:
    number = running.port.number
    if _wait(lambda: ports.can_bind(running.host, number), PORT_S_MAX):
        return []
    return [f"port {number} is still held by {ports.listener(number)}"]


def _wait(done: Callable[[], bool], limit_s: float) -> bool:
    """Poll until `done`, for at most `limit_s`; whether it came true."""
    deadline_s = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def leftovers() -> list[str]:
    """Servers of earlier runs on this machine that no guard watches, in words; files without a process are removed."""
    found = []
    for state in Path(tempfile.gettempdir()).glob(f"{STATE_PREFIX}*"):
        facts = read_json(state / "server.json")
        if facts and guard.start_ticks(facts["guard"]) is not None:
            continue
        if facts and Member(facts["pid"], facts["started"] or 0, "").lives():
            pid = facts["pid"]
            found.append(f"process {pid} ({title(pid)}) is a server of an earlier run; end it with: kill -9 {pid}")
        elif facts or _age_s(state) > EMPTY_STATE_S:
            shutil.rmtree(state, ignore_errors=True)
    return sorted(found)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
