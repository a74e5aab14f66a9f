"""A server that misbehaves while it lives: the Point's verdict names it, and nobody waits for hours."""

from collections.abc import Callable
from pathlib import Path

import pytest
from running import TINY, Ended, faulty_python

pytestmark = pytest.mark.slow


def test_r04_a_server_that_stands_still_or_hangs(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """Standing still for half of the time is INVALID for its silence; answering nothing more is FAILED, soon."""
    faults = "variant.env.FAULTS=stall:1:2,hang:0:30"
    limits = (
        "load.first_token_s_max=1.5",
        "load.stall_s_max=1.5",
        "load.window_s=2",
        "load.concurrency=4",
        "engine.hang_s_max=3",
    )
    python = f"engine.python={faulty_python(tmp_path)}"
    ended = cli("-m", "+variant=baseline", python, faults, *TINY[:2], "workload.max_tokens=128", *limits)
    assert ended.code == 3, ended.err
    still, hung = ended.ledger()
    assert still["status"] == "INVALID"
    assert "silence" in still["reason"]
    assert (hung["status"], hung["exit_code"]) == ("FAILED", 3)
    assert "Traceback" not in ended.err
