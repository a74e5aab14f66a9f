"""A fault from outside, at a stated moment of a Point: signals to the run's own processes, undone in the end.

It knows processes by their titles and pids and finds only those of this machine that the run itself has started. What
faults there are, and what becomes of them, is `chaos`'s.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psutil

from loadgen import chaos, footprint
from loadgen.cluster import ACTOR_TITLE
from loadgen.config import Config
from loadgen.crew import WALL_TITLE, WORKER_TITLE
from loadgen.launched import Launched

TITLES = {"worker": WORKER_TITLE, "board": WALL_TITLE, "actor": ACTOR_TITLE}
WHOLE = "whole run"  # the only phase of a Point that has no window

Show = Callable[[Mapping[str, Any]], None]


@contextlib.contextmanager
def beside(conf: Config, launched: Launched, show: Show) -> Iterator[Show]:
    """`show`, which is called some times a second, and with it the fault of the run; what is frozen goes on after."""
    asked = chaos.outside(chaos.fault_of(conf) or chaos.NONE)
    if asked is None:
        yield show
        return
    strike = Strike(*asked, conf.chaos[0].when, launched)

    def both(board: Mapping[str, Any]) -> None:
        show(board)
        strike.look(board["phase"])

    try:
        yield both
    finally:
        strike.undo()


class Strike:
    """Strikes once, when the Point has come to its moment."""

    def __init__(self, kind: str, undone_s: float | None, when: str, launched: Launched) -> None:
        self._number = signal.SIGKILL if kind.startswith("kill_") else signal.SIGSTOP
        self._whom, self._all = kind.partition("_")[2], kind == "freeze_server"
        self._undone_s, self._when, self._launched = undone_s, when, launched
        self._struck_s: float | None = None
        self._struck: list[psutil.Process] = []

    def look(self, phase: str) -> None:
        """Strike where it is time to, and undo it where that is asked for."""
        if self._struck_s is None:
            if phase in (self._when, WHOLE):
                self._struck_s = time.monotonic()
                self._struck = _send(self._found(), self._number)
        elif self._undone_s is not None and time.monotonic() - self._struck_s >= self._undone_s:
            self.undo()

    def undo(self) -> None:
        """Let everything that was frozen go on."""
        if self._number == signal.SIGSTOP:
            _send(self._struck, signal.SIGCONT)
        self._struck = []

    def _found(self) -> list[psutil.Process]:
        if self._whom == "server":
            pids = self._launched.endpoint["pids"] if self._all else [self._launched.endpoint["pid"]]
            return list(filter(None, map(_living, pids)))
        return footprint.titled(TITLES[self._whom])[-1:]


def _living(pid: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid)
    return None


def _send(processes: Sequence[psutil.Process], number: int) -> list[psutil.Process]:
    """The processes that have got the signal."""
    reached = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
            reached.append(process)
    return reached
