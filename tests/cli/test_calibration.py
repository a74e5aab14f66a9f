"""`python -m loadgen.calibrate` as a user runs it; how long it takes and what it finds is tests/accuracy's."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Run

from loadgen.calibrate import main

CALIBRATE = (sys.executable, "-m", "loadgen.calibrate")
SHORT_S_MAX = 60.0


def test_help_and_a_wrong_option(start: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    """Help has examples and exit codes; what it does not know is exit 2, at once."""
    told = start("--help", program=CALIBRATE).end(SHORT_S_MAX)
    assert told.code == 0
    assert "python -m loadgen.calibrate --dry-run" in told.out
    assert "exit codes: 0" in told.out
    with pytest.raises(SystemExit) as wrong:
        main(["--faster"])
    assert wrong.value.code == 2
    said = capsys.readouterr().err
    assert "--faster" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_ctrl_c_in_the_search(start: Callable[..., Run], tmp_path: Path) -> None:
    """130, nothing remembered, and neither the null server nor a worker is left."""
    run = start(program=CALIBRATE, env={"XDG_STATE_HOME": str(tmp_path / "state")})
    run.await_line("events/s: errors p99")
    run.process.send_signal(signal.SIGINT)
    ended = run.end(SHORT_S_MAX)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert not (tmp_path / "state").exists()
