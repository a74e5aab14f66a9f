"""One Ray for the tests of whole runs, and the command in this process on it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadgen import cluster
from loadgen.__main__ import main

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from running import Ended


@pytest.fixture(scope="module")
def one_ray() -> Iterator[None]:
    """A Ray that all runs of a module join."""
    with cluster.opened(None):
        yield


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
