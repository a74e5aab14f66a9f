"""Exit codes: which one stands when several apply."""

import signal

import pytest

from loadgen.errors import Interrupted, worst


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 6], 6),
        ([6, 3], 3),
        ([3, 4], 4),
        ([4, 5], 5),
        ([5, 2], 2),
        ([2, 1], 1),
        ([1, 143], 143),
        ([143, 130], 130),
    ],
)
def test_precedence(codes: list[int], code: int) -> None:
    """130/143, 1, 2, 5, 4, 3, 6, in that order."""
    assert worst(codes) == code


def test_interrupted_codes() -> None:
    """128 plus the signal's number."""
    assert (Interrupted(signal.SIGINT).exit_code, Interrupted(signal.SIGTERM).exit_code) == (130, 143)
