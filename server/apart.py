"""A folder on a node that has not the driver's disk, for a server's log or a worker's rows, and its end.

It is named after its owner, who takes it away when all of it was fetched. One that was killed cannot, and it may be all
that tells how its server ended: the next on that node takes it away when it is a day old and nobody will come for it.
"""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from server import guard

PREFIX = "loadgen-apart-"
KEPT_S = 86_400.0  # since something was written there; also for owners in containers, whose numbers say nothing here


def new() -> Path:
    """A folder of this process."""
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-{guard.start_ticks(pid)}-"))


def remove_ownerless() -> None:
    """Take away the folders of processes that are gone, a day after their last words."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*-*"):
        pid, ticks = folder.name.removeprefix(PREFIX).split("-")[:2]
        if pid.isdigit() and str(guard.start_ticks(int(pid))) != ticks and _written_s(folder) < time.time() - KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)


def _written_s(folder: Path) -> float:
    """When something in it was written last, seconds since 1970; now for one that goes meanwhile."""
    with contextlib.suppress(OSError):
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    return time.time()
