"""The end of a server: TERM, KILL, and the proof that no process, port or device memory is left of it.

It must not know of HTTP, of Ray, or of what is measured. It never kills by name: only processes seen as this server's.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from server import apart, gpu, guard, ports
from server.death import death
from server.process import (
    STATE_PREFIX,
    TAG,
    Member,
    Running,
    environment_of,
    family,
    heard,
    named,
    pids,
    read_json,
    strays,
    title,
)

# What is left of a server whose engine has died has nothing to drain.
DEAD_TERM_S = 5.0
# After KILL: the guard waits up to guard.KILL_S_MAX for processes to vanish, and then says which did not.
GONE_S_MAX = guard.KILL_S_MAX + 5.0
PORT_S_MAX = 10.0
ABANDONED_S_MAX = guard.ABANDONED_S + 3.5  # for a guard whose actor is gone, on a busy machine
LASTING_S = 5.0  # a run that still goes on has ended by then what its server's guard has left
POLL_S = 0.05
# A guard writes down its server within a second; a folder that is older and empty belongs to none.
EMPTY_STATE_S = 120.0


@dataclass(frozen=True)
class StopReport:
    """Whether nothing is left of a server, and what is, in words."""

    clean: bool
    left: tuple[str, ...]


def patience_s(running: Running) -> float:
    """How long after TERM the server may take: as its spec says, less where its engine has died."""
    return running.spec.stop_s_max if death(running) is None else min(DEAD_TERM_S, running.spec.stop_s_max)


def stop(running: Running, term_s: float, memory_held: Callable[[], list[str]] = list) -> StopReport:
    """Stop the server: TERM, KILL after `term_s`, then every process ever seen of it; and say what is still there.

    SGLang drains on TERM without an end of its own: requests under way are better aborted before.
    `memory_held` waits for the devices and names those that keep the server's memory. A second call finds nothing.
    """
    members = {member.pid: member for member in (*running.family, *family(running))}
    # Not the ports that it was given: what it never listened on somebody else may have taken.
    numbers = sorted(running.heard | heard(members.values()))
    _order(running, guard.ORDER_TERM)
    if not _wait(lambda: _is_swept(running), term_s):
        _order(running, guard.ORDER_KILL)
        _wait(lambda: _is_swept(running), GONE_S_MAX)
    _dismiss_guard(running)
    left = _kill(lambda: (*strays(running.state, running.log), *filter(Member.lives, members.values())))
    left += [*_ports_held(running.host, numbers), *memory_held()]
    for port in (running.port, running.nccl_port):
        port.release()
    return StopReport(clean=not left, left=tuple(left))


def _order(running: Running, order: bytes) -> None:
    _signal(running.guard, signal.SIGCONT)  # one that was stopped obeys nobody
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


def bury(
    name: str,
    log: Path,
    known: Sequence[Member],
    host: str,
    numbers: Sequence[int],
    memory_held: Callable[[], list[str]] = list,
) -> StopReport:
    """The end of a launch whose actor is gone; what `stop` says of one whose actor lives.

    Its guard ends the server by itself, unless it was stopped, or the actor was and its pipe is still there: it is
    asked to, then killed. `known` are the server's processes and `numbers` the ports at its readiness.
    """
    states = list(Path(tempfile.gettempdir()).glob(f"{STATE_PREFIX}{name}-*"))

    def living() -> tuple[Member, ...]:
        return (*named(name, log), *filter(Member.lives, known))

    for pid in filter(None, (read_json(state / "server.json").get("guard") for state in states)):
        for number in (signal.SIGTERM, signal.SIGCONT):
            _signal(Member(pid, guard.start_ticks(pid) or 0, "guard"), number)
    _wait(lambda: not living(), ABANDONED_S_MAX)
    left = [*_kill(living), *_ports_held(host, numbers), *memory_held()]
    for state in states:
        shutil.rmtree(state, ignore_errors=True)
    return StopReport(clean=not left, left=tuple(left))


def bury_told(name: str, log: str, endpoint: Mapping[str, Any], host: str) -> tuple[str, ...]:
    """`bury` by what the launch's endpoint tells under `known`, which is nothing before its readiness; what stays."""
    family, numbers, memory = endpoint.get("known", ((), (), {}))
    held = partial(gpu.memory_held, list(memory), memory)
    return bury(name, Path(log), [Member(*one) for one in family], host, numbers, held).left


def _kill(found: Callable[[], Iterable[Member]]) -> list[str]:
    """Kill what survived its guard, and name what does not go.

    Whoever left the family unseen, because the guard was killed, still carries the launch's tag, or writes to its log.
    """
    deadline_s = time.monotonic() + GONE_S_MAX
    while living := {member.pid: member for member in found()}:
        if time.monotonic() > deadline_s:
            return [f"process {pid} ({member.title}) is still alive" for pid, member in sorted(living.items())]
        for member in living.values():
            _signal(member, signal.SIGKILL)
        time.sleep(POLL_S)
    return []


def _signal(member: Member, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if member.lives():
            os.kill(member.pid, number)


def _ports_held(host: str, numbers: Sequence[int]) -> list[str]:
    """Wait for the ports to be free; those that are not, with who holds them."""
    deadline_s = time.monotonic() + PORT_S_MAX
    held = list(numbers)
    while (held := [number for number in held if not ports.can_bind(host, number)]) and (time.monotonic() < deadline_s):
        time.sleep(POLL_S)
    return [f"port {number} is still held by {ports.listener(number)}" for number in held]


def _wait(done: Callable[[], bool], limit_s: float) -> bool:
    """Poll until `done`, for at most `limit_s`; whether it came true."""
    deadline_s = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def leftovers() -> list[str]:
    """Processes of earlier runs' servers that no guard watches, in words; files without a process are removed."""
    return [f"{_of_earlier(member)}; end it with: kill -9 {member.pid}" for member in _left()]


def lasting() -> list[str]:
    """Those that stay: who has just lost its guard may be ended by its own run a moment later."""
    _wait(lambda: not _left(), LASTING_S)
    return leftovers()


def clean() -> list[str]:
    """End those processes; which they were, in words, and which of them do not go."""
    found = _left()
    still = _kill(lambda: filter(Member.lives, found))
    _left()  # their guards' files go too
    return [*(f"ended: {_of_earlier(member)}" for member in found), *still]


def _of_earlier(member: Member) -> str:
    return f"process {member.pid} ({member.title}) is of a server of an earlier run"


def _left() -> list[Member]:
    found = {member.pid: member for member in _unguarded()}
    for state in Path(tempfile.gettempdir()).glob(f"{STATE_PREFIX}*"):
        facts = read_json(state / "server.json")
        if facts and guard.start_ticks(facts["guard"]) is not None:
            continue
        if facts and (left := strays(state, Path(facts["log"]))):
            found |= {member.pid: member for member in left}
        elif facts or _age_s(state) > EMPTY_STATE_S:
            shutil.rmtree(state, ignore_errors=True)
    apart.remove_ownerless()
    return [found[pid] for pid in sorted(found)]


def _unguarded() -> Iterator[Member]:
    """Processes with a launch's tag whose guard is gone: its folder is, or the process that it names."""
    marked: dict[Path, list[int]] = {}
    for pid in pids():
        marks = [entry for entry in environment_of(pid) if entry.startswith(TAG.encode() + b"=")]
        if marks:
            marked.setdefault(Path(os.fsdecode(marks[0].partition(b"=")[2])), []).append(pid)
    for state, found in marked.items():
        facts = read_json(state / "server.json")
        # A guard that starts has written nothing yet, and the folder of one in a container may be out of our sight.
        gone = guard.start_ticks(facts["guard"]) is None if facts else not state.exists()
        if not gone or any(_guards(pid, state) for pid in found):
            continue
        yield from (Member(pid, started, title(pid)) for pid in found if (started := guard.start_ticks(pid)))


def _guards(pid: int, state: Path) -> bool:
    """Whether it is the living guard of the launch with that folder."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(state) in words and any(word.endswith(b"guard.py") for word in words)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
