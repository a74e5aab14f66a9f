"""Orphans of the program become children of the test process, so that none goes unseen and none but ours is ended."""

from collections.abc import Iterator

import pytest

from server import guard


@pytest.fixture(scope="session", autouse=True)
def adopting() -> Iterator[None]:
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    yield
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 0)
