"""For all tests: what this user's machine was calibrated to does not judge the tests' Points."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def not_calibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of what programs remember is an empty one of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home
