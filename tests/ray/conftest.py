"""One Ray for the tests of whole runs, and the command in this process on it."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadgen import cluster
from loadgen.__main__ import main

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from running import Ended

API_KEY_ENV = "LOADGEN_TEST_KEY"
API_KEY = "a-key-of-the-tests"


@pytest.fixture(scope="session")
def one_ray() -> Iterator[None]:
    """A Ray that all runs join, those of tests/test_configs.py too; its processes know the tests' key.

    As for a run of two workers: where there are two cores, none is kept for one worker alone.
    """
    os.environ[API_KEY_ENV] = API_KEY
    with cluster.opened(None, 2):
        yield
    del os.environ[API_KEY_ENV]


@pytest.fixture
def cli(
    one_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the command to its end as `cli` of tests/cli does, but here and without a Ray of its own."""

    def whole(*arguments: str, folder: Path | None = None) -> Ended:
        here = folder or tmp_path / "work"
        here.mkdir(exist_ok=True)
        monkeypatch.chdir(here)
        code = main(list(arguments))
        told = capsys.readouterr()
        return Ended(code, told.out, told.err, here)

    return whole


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The controls come first: their Ray keeps a core for the worker, and the one that all others share stays."""
    items.sort(key=lambda item: item.path.name != "test_controls.py")
