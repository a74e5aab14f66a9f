"""The cores of a server: it starts on all that this machine's command has, and keeps to its own once it serves.

A start is minutes of imports in several processes, while nothing is measured and the workers' cores idle.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence

# The cores that a command keeps for its workers on this machine, which what it starts inherits (loadgen/cores.py).
SPARED = "LOADGEN_CORES"
ROUNDS_MAX = 10  # threads that start while others are moved inherit the place of the one that starts them


def at_start(cores: Sequence[int]) -> list[int]:
    """Where a server with these cores of its own may start; none: where whoever starts it runs, and no elsewhere."""
    if not cores:
        return []
    spared = {int(core) for core in os.environ.get(SPARED, "").split(",") if core}
    return sorted(os.sched_getaffinity(0) | spared | set(cores))


def keep_to(cores: Sequence[int], pids: Iterable[int]) -> None:
    """Put every thread of these processes on `cores`; none: they stay. One that ends meanwhile is passed over."""
    wanted, left = set(cores), set(pids) if cores else set()
    for _ in range(ROUNDS_MAX):
        moved = [_move(thread, wanted) for pid in left for thread in _threads(pid)]
        if not any(moved):
            return


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _move(thread: int, wanted: set[int]) -> bool:
    """Whether it had to be moved."""
    with contextlib.suppress(OSError):
        if os.sched_getaffinity(thread) != wanted:
            os.sched_setaffinity(thread, wanted)
            return True
    return False
