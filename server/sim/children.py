"""SGLang's process tree: children that die with their parent, and the one that does not.

It must not know what children do.
"""

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

from setproctitle import setproctitle

PR_SET_PDEATHSIG = 1
ORPHAN_LIFE_S = 600  # A forgotten orphan ends itself, so that a failed test does not leave one for ever.


def spawn(title: str, work: Callable[[], None]) -> int:
    """Fork a child that runs `work` under this title and is SIGKILLed when this process ends. Returns its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _die_with(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the launcher decides.
        setproctitle(title)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def leave_orphan() -> None:
    """Leave a process in a session of its own that ignores SIGTERM and outlives this one by up to ORPHAN_LIFE_S."""
    if os.fork():
        return
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    setproctitle("sglang::orphan")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    time.sleep(ORPHAN_LIFE_S)
    os._exit(0)


def end(pids: list[int]) -> None:
    """SIGKILL these children and reap them."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
