"""Whether the Ray that we have started still works: are its own processes alive and going on? And what becomes of it.

Ray's own timers take half a minute for a frozen raylet and for ever for a lost GCS, and calls that wait for one of them
have no bound. So what is left of it is ended here, and every call has an answer at once. It must not know of Ray's
interface, of servers or of Points.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import psutil

from loadgen import footprint
from loadgen.errors import ClusterError

POLL_S = 0.5
FROZEN_S_MAX = 5.0  # five missing beats are lost, here as anywhere else
NAMES = ("raylet", "gcs_server")

_trouble: str | None = None
_watched: list["Watched"] = []


def trouble() -> str | None:
    """What became of the Ray of our own, in words; None while all is well, and of a Ray of others."""
    return _trouble or next(filter(None, (one.look() for one in _watched)), None)


def require_whole() -> None:
    """Raise ClusterError where the Ray of our own is lost: who asked it now might wait for ever."""
    if found := trouble():
        raise ClusterError(found)


@contextlib.contextmanager
def watching(folder: str | None) -> Iterator[None]:
    """Watch the Ray with these files, whose processes descend from us, for the length of the block; None: nothing."""
    global _trouble
    over = threading.Event()
    if folder is None:
        yield
        return
    named = {process: footprint.name_of(process) for process in footprint.processes()}
    _watched[:] = [Watched(process, name) for process, name in named.items() if name in NAMES]
    threading.Thread(target=_watch, args=(folder, over), daemon=True, name="warden").start()
    try:
        yield
    finally:
        over.set()
        _trouble = trouble()  # from here on it ends in order
        _watched.clear()


def forget() -> None:
    """That Ray is gone, and with it what became of it."""
    global _trouble
    _trouble = None


def _watch(folder: str, over: threading.Event) -> None:
    global _trouble
    while not over.wait(POLL_S):
        if found := trouble():
            _trouble = found
            # Guards are none of them: they end the servers. What a dead raylet has left is nobody's child any more.
            footprint.kill([*footprint.processes(), *footprint.writing_to(folder)])
            return


class Watched:
    """One of Ray's own processes."""

    def __init__(self, process: psutil.Process, name: str) -> None:
        self._process, self._words = process, f"Ray's {name} (process {process.pid}) of this machine"
        self._since_s: float | None = None  # that it is frozen

    def look(self) -> str | None:
        """What is wrong with it, in words."""
        try:
            state = self._process.status()
        except psutil.Error:
            state = psutil.STATUS_DEAD
        if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return f"{self._words} has died"
        if state not in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
            self._since_s = None
            return None
        now_s = time.monotonic()
        self._since_s = self._since_s or now_s
        frozen_s = now_s - self._since_s
        return f"{self._words} was frozen for {frozen_s:.0f} s" if frozen_s > FROZEN_S_MAX else None
