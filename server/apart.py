"""A folder for the server's log on a node that has not the driver's disk, named after its owner, and its end.

Its owner takes it away when all of it was fetched. One that was killed with its driver cannot: the next server's start
on that node does, which knows by the name that nobody will come for it.
"""

import os
import shutil
import tempfile
from pathlib import Path

from server import guard

PREFIX = "loadgen-server-"


def new() -> Path:
    """A folder of this process."""
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-{guard.start_ticks(pid)}-"))


def remove_ownerless() -> None:
    """Take away the folders of processes that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*-*"):
        pid, ticks = folder.name.removeprefix(PREFIX).split("-")[:2]
        if pid.isdigit() and str(guard.start_ticks(int(pid))) != ticks:
            shutil.rmtree(folder, ignore_errors=True)
