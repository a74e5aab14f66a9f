"""What Ray leaves on this machine, where nobody collects the dead: in a container whose first process does not."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loadgen import footprint

PATIENCE_S = 30.0


@pytest.fixture
def family() -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """A process, and a child of its that has ended and that it never collects."""
    parent = subprocess.Popen(["sh", "-c", "true & exec sleep 600"])
    deadline_s = time.monotonic() + PATIENCE_S
    while not any(child.status() == psutil.STATUS_ZOMBIE for child in psutil.Process(parent.pid).children()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    yield psutil.Process(parent.pid), psutil.Process(parent.pid).children()[0]
    parent.kill()
    parent.wait()


def test_the_dead_are_not_waited_for(family: tuple[psutil.Process, psutil.Process]) -> None:
    """A process that has ended counts as gone, collected or not; one that lives is ended after the patience."""
    parent, dead = family
    begun_s = time.monotonic()
    footprint.await_gone([dead], PATIENCE_S)
    footprint.await_gone([dead, parent], 0.0)
    assert time.monotonic() - begun_s < PATIENCE_S
    assert not parent.is_running() or parent.status() == psutil.STATUS_ZOMBIE


def test_files_of_the_dead_are_removed(family: tuple[psutil.Process, psutil.Process]) -> None:
    """Ray's files of a run that was killed go with the next start, also while its process is not collected."""
    parent, dead = family
    top = Path("/tmp")
    used, stale = (top / f"{footprint.PREFIX}{process.pid}-x" for process in (parent, dead))
    for folder in (used, stale):
        folder.mkdir()
    mine = Path(footprint.temporary())
    try:
        assert [folder.exists() for folder in (used, stale, mine)] == [True, False, True]
    finally:
        used.rmdir()
        mine.rmdir()
