"""Whether the machine itself stood still, on which core and for how long, by processes that do nothing but wake up.

What keeps a loop from its turn may be its own work, or a core that others have: processes of this machine, or other
machines, which no process of it sees. A witness on the same core wakes up in time beside the first, and late with the
second. It must not know what a test measures meanwhile.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LATE_S = 0.02  # the turn of a busy neighbour on the same core is shorter
# A line for each late waking: seconds since 1970, and by how many it was late.
PROGRAM = f"""
import os, sys, time
os.sched_setaffinity(0, {{int(sys.argv[1])}})
while True:
    due = time.monotonic() + 0.01
    time.sleep(0.01)
    if (late := time.monotonic() - due) > {LATE_S}: print(time.time(), late, flush=True)
"""


class Witnesses:
    """What the processes on the cores have told so far."""

    def __init__(self, told: list[Path]) -> None:
        self._told = told

    def paused_s(self, begun_s: float, ended_s: float) -> float:
        """For how long the core that stood still the longest did so between two moments (seconds since 1970)."""
        return max(map(sum, ([late for at, late in told(path) if begun_s <= at <= ended_s] for path in self._told)))


def told(path: Path) -> list[tuple[float, float]]:
    """The whole lines of one process."""
    return [(float(at), float(late)) for at, late in map(str.split, whole_lines(path))]


def whole_lines(path: Path) -> list[str]:
    """What a process that may still be writing has written, less a line that is not whole yet."""
    return path.read_text().rpartition("\n")[0].splitlines()


@contextlib.contextmanager
def on_each_core(folder: Path, *program: str) -> Iterator[dict[Path, int]]:
    """A Python program on each core for the length of the block: pids by the files that they write to in the folder."""
    running: dict[Path, int] = {}
    with contextlib.ExitStack() as ends:
        for core in sorted(os.sched_getaffinity(0)):
            file = folder / f"core{core}"
            with file.open("wb") as out:
                process = subprocess.Popen([sys.executable, "-I", "-S", *program, str(core)], stdout=out)
            ends.callback(process.wait)
            ends.callback(process.kill)
            running[file] = process.pid
        yield running


@contextlib.contextmanager
def watching() -> Iterator[Witnesses]:
    """One process on each core for the length of the block."""
    with tempfile.TemporaryDirectory() as folder, on_each_core(Path(folder), "-c", PROGRAM) as running:
        yield Witnesses(list(running))
