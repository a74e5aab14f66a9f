"""What a local Ray leaves on this machine while it runs, its folder and its processes, and how both go.

It must not know of Ray's interface, or of servers: those are their guards' business.
"""

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from loadgen.interrupt import Stop

PREFIX = "lg-"  # short, since Ray puts socket paths of at most 107 bytes below it
GONE_S_MAX = 8.0  # Ray's own processes after shutdown
POLL_S = 0.02


@contextlib.contextmanager
def folder(stop: Stop) -> Iterator[str]:
    """A folder for Ray's files, removed in the end; a second signal removes it at once, with Ray's processes."""
    made = temporary()
    stop.at_once += [_kill, lambda: _remove(made)]
    try:
        yield made
    finally:
        _remove(made)


def temporary() -> str:
    """A short folder for Ray's files, named after this process; those of our processes that were killed are removed."""
    top = Path("/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir())  # noqa: S108
    for stale in top.glob(f"{PREFIX}[0-9]*-*"):
        pid = stale.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not _pid_lives(int(pid)) and stale.stat().st_uid == os.getuid():
            print(f"removing Ray's files of an earlier run that was killed: {stale}", file=sys.stderr)
            shutil.rmtree(stale, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=top)


def processes() -> list[psutil.Process]:
    """Everything that descends from us; servers do not, since their guards leave the family."""
    return psutil.Process().children(recursive=True)


def name_of(process: psutil.Process) -> str:
    """Its program's name; empty for one that has ended."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def titles(root: psutil.Process | None = None) -> Iterator[tuple[psutil.Process, str]]:
    """What lives below us, or below `root`, with its title: one may end, or be a zombie, between the two looks."""
    for process in (root or psutil.Process()).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            yield process, " ".join(process.cmdline())


def titled(title: str, root: psutil.Process | None = None) -> list[psutil.Process]:
    """Those of them whose title begins so, with whole words: a class of another's may begin like one of ours."""
    begins = re.compile(rf"{re.escape(title)}(?!\w)")
    return [process for process, whole in titles(root) if begins.match(whole)]


def kill_frozen(title: str) -> None:
    """End those of them that somebody has stopped: they do not hear who asks them to end, as Ray does."""
    for process in titled(title):
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_STOPPED:
                process.kill()


def writing_to(folder: str) -> list[psutil.Process]:
    """Processes of ours or of nobody's whose output goes to a file in the folder: Ray's, whoever adopted them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.readlink(f"/proc/{process.pid}/fd/2").startswith(f"{folder}/"):
                found.append(process)
    return found


def await_gone(ours: Sequence[psutil.Process], wait_s: float) -> None:
    """Give the processes `wait_s` seconds to end by themselves, then end them."""
    _await_end(ours, wait_s)
    kill(list(filter(_lives, ours)))
    _await_end(ours, GONE_S_MAX)


def _await_end(ours: Sequence[psutil.Process], wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    while any(map(_lives, ours)) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)


def _lives(process: psutil.Process) -> bool:
    # Orphans go to whoever adopts them, in a container often a process that never collects its dead.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _pid_lives(pid: int) -> bool:
    try:
        return _lives(psutil.Process(pid))
    except psutil.Error:
        return False


def _kill() -> None:
    # Without us Ray's agents would take a minute to see that nobody needs them.
    kill(processes())


def kill(found: Sequence[psutil.Process]) -> int:
    """End these processes at once, frozen ones too; how many they were."""
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return len(found)


def _remove(made: str) -> None:
    shutil.rmtree(made, ignore_errors=True)
    if os.path.exists(made):
        print(f"Ray's files stay in {made}; the next run removes them", file=sys.stderr)
