"""The cores that workers have to themselves on this machine: an exact clock needs a loop that nobody else delays.

On a core shared with the server a burst is read only when all of it was written; on one shared with Ray's own processes
a stamp waits for their turns. Everything that a run starts inherits its cores, so the run leaves some before it starts.
"""

import contextlib
import os
from collections.abc import Iterator

# Inherited by the processes of a Ray that we start, and by no others.
VARIABLE = "LOADGEN_CORES"


@contextlib.contextmanager
def spared(workers: int) -> Iterator[None]:
    """What is started in the block leaves the last `workers` cores to workers, where that leaves it any."""
    before = os.sched_getaffinity(0)
    own = sorted(before)[-workers:] if 0 < workers < len(before) else []
    os.sched_setaffinity(0, before - set(own))
    os.environ[VARIABLE] = ",".join(map(str, reversed(own)))
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def alone(worker: int) -> Iterator[None]:
    """This process has the core that was spared for this worker, if one was; all its threads.

    A thread of Ray's that waits for its turn on a busy core may hold the interpreter meanwhile, and the loop with it.
    """
    own, before = of(worker), os.sched_getaffinity(0)
    if own is not None:
        _move({own})
    try:
        yield
    finally:
        if own is not None:
            _move(before)


def of(worker: int) -> int | None:
    """The core that was spared for this worker, None where none was."""
    own = [int(core) for core in os.environ.get(VARIABLE, "").split(",") if core]
    return own[worker] if worker < len(own) else None


def _move(where: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), where)
