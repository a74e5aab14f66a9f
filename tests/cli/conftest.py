"""Runs of the program for the tests of its command line; after each test nothing of ours may be left."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import LOADGEN, STARTED, Ended, Run, below_us, eventually

from server import guard
from server.process import STATE_PREFIX

GONE_S_MAX = 15.0  # what was started is gone when the program has ended; reaping by the system takes moments
RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # need a minute to see that their node was killed


@pytest.fixture(scope="module", autouse=True)
def adopting() -> Iterator[None]:
    """Orphans of the program become children of the test process, so that none goes unseen."""
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    yield
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 0)


@pytest.fixture(autouse=True)
def nothing_left(adopting: None, tmp_path: Path) -> Iterator[None]:
    """After the test: no process that was not there before, no folder of a guard or of Ray."""
    before = set(below_us())
    yield
    killed = [run for run in STARTED if run.process.poll() == -9]
    for run in STARTED:
        run.kill()
    if killed:
        end_agents()
    eventually(lambda: not set(below_us()) - before, GONE_S_MAX, f"gone: {below_us()}")
    folders = [folder for run in STARTED if run not in killed for folder in run.ray_folders()]
    STARTED.clear()
    assert folders == []
    assert list(tmp_path.glob(f"{STATE_PREFIX}*")) == []


def end_agents() -> None:
    """Spare the tests the minute after a kill -9 of the driver."""
    for pid, title in below_us().items():
        if title.startswith(RAY_AGENTS):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Run]:
    """Start `python -m loadgen ARGUMENTS...` in a folder of this test's own."""

    def begin(
        *arguments: str,
        env: dict[str, str] | None = None,
        folder: Path | None = None,
        program: tuple[str, ...] = LOADGEN,
    ) -> Run:
        run = Run(arguments, folder or tmp_path / "work", env or {}, program)
        STARTED.append(run)
        return run

    return begin


@pytest.fixture
def cli(start: Callable[..., Run]) -> Callable[..., Ended]:
    """Run the command to its end."""

    def whole(*arguments: str, env: dict[str, str] | None = None, folder: Path | None = None) -> Ended:
        return start(*arguments, env=env, folder=folder).end()

    return whole


@pytest.fixture(autouse=True)
def no_cluster_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster named in the developer's environment is not meant."""
    for name in [name for name in os.environ if name.startswith("RAY_") or name == "NO_COLOR"]:
        monkeypatch.delenv(name)
