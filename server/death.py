"""How a server ended, or whether it has: its exit status, the child that died, the class that its log tells.

Cheap while it lives: some reads of /proc. It must not know of HTTP or of Ray.
"""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server import failures, guard, oom
from server.failures import Failure
from server.log import end_of, tail
from server.process import Member, Running, family, read_json

# What follows a crash in the log is long: a traceback of every rank.
SEARCHED_BYTES = 256 * 1024
LAST_LINES = 10
TOLD_S_MAX = 1.0  # a guard tells within moments
POLL_S = 0.02
CHILD_ADVICE = "a process of the engine died without a word: see dmesg, and who else works here"
HANG_ADVICE = "the engine lives and answers nothing: look at its processes (py-spy dump), then start it again"


@dataclass(frozen=True)
class Death:
    """How a server ended: `exit` is its status (negative: the signal), None where a child died or nobody could see."""

    exit: int | None
    reason: str
    failure: Failure | None = None

    @property
    def words(self) -> str:
        """The reason with the class of the failure."""
        return failures.in_words(self.reason, self.failure)


def death(running: Running) -> Death | None:
    """How the server ended, or None while it and the children it had at readiness live."""
    ended = _ended(running)
    if ended is None:
        return None
    failure = failure_of(running, ended[0])
    if failure is None and ended[0] is None:
        failure = Failure("child_died", "", CHILD_ADVICE)
    return Death(*ended, failure)


def failure_of(running: Running, exit_status: int | None) -> Failure | None:
    """The class of what the server's log, its status and the kernel tell."""
    return failures.classify(end_of(running.log, SEARCHED_BYTES), exit_status, oom.since(running.oom_kills))


def hang_of(running: Running) -> Failure:
    """The class of a server that lives and does nothing: what its log tells of it, or that it says nothing."""
    return failure_of(running, None) or Failure("hang", "", HANG_ADVICE)


def failed_with(running: Running, failure: Failure | None) -> dict[str, Any]:
    """The class of a failure with its advice, and the end of the log."""
    return {
        "kind": failure.kind if failure else None,
        "advice": failure.advice if failure else None,
        "log_tail": tail(running.log, LAST_LINES),
    }


def stopped(running: Running) -> list[str]:
    """Processes of the server that somebody has stopped, in words."""
    states = {member: guard.stat_fields(member.pid)[:1] for member in family(running)}
    return [f"process {member.pid} ({member.title}) is stopped" for member, state in states.items() if state == ["T"]]


def _ended(running: Running) -> tuple[int | None, str] | None:
    """Exit status and reason, as far as they can be seen."""
    gone = [member for member in _watched(running.family) if not member.lives()]
    # A server that ends takes its children along; its own end is the better reason, and is told within moments.
    if not running.server.lives():
        return _told(running)
    if not running.guard.lives():
        return None, "the server's guard was killed, and the server with it"
    return (None, f"the server's process {gone[0].pid} ({gone[0].title}) died") if gone else None


def _told(running: Running) -> tuple[int | None, str]:
    """What the guard says of a server that has ended; it may be gone itself, or stopped, or wait for its turn."""
    deadline_s = time.monotonic() + TOLD_S_MAX
    while (status := read_json(running.state / "exit.json").get("exit")) is None and running.guard.lives():
        if time.monotonic() > deadline_s:
            return None, "the server ended, and its guard does not say how"
        time.sleep(POLL_S)
    if status is None:
        return None, "the server's guard was killed, and the server with it"
    return status, _exit_words(status)


def _watched(members: Sequence[Member]) -> list[Member]:
    """The engine's own children where they carry titles (`sglang::scheduler_TP0`); else all, for want of names."""
    titled = [member for member in members if "::" in member.title]
    return titled or [member for member in members if member.title != "server"]


def _exit_words(status: int) -> str:
    if status >= 0:
        return f"the server ended by itself with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"the server was killed by signal {-status} ({name})"
