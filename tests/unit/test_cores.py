"""Cores of their own: what a run starts leaves them, a worker's thread has one, and all is as before afterwards."""

import os
import subprocess
import sys

import pytest

from loadgen import cores

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only: there is none to spare")


def test_what_is_started_leaves_the_workers_cores() -> None:
    """Children inherit all cores but the last; a worker's thread has that one, and gives it back."""
    before = os.sched_getaffinity(0)
    shown = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    with cores.spared(1):
        child = subprocess.run(shown, capture_output=True, text=True, check=True)
        assert child.stdout.strip() == str(sorted(before)[:-1])
        with cores.alone(0):
            assert os.sched_getaffinity(0) == {max(before)}
        with cores.alone(1):
            assert max(before) not in os.sched_getaffinity(0)
    assert os.sched_getaffinity(0) == before
    with cores.alone(0):
        assert os.sched_getaffinity(0) == before


def test_nothing_is_spared_where_nothing_would_be_left() -> None:
    """As many workers as cores share all of them with everything else."""
    before = os.sched_getaffinity(0)
    with cores.spared(len(before)), cores.alone(0):
        assert os.sched_getaffinity(0) == before
