"""A node that is lost, here the driver's own: Ray's processes killed, or frozen, which no timer of Ray's tells soon."""

import contextlib
import os
import signal
from collections.abc import Callable

import psutil
import pytest
from running import ENDLESS, Run, below_us
from test_signals import BASELINE, await_rows

from loadgen.footprint import name_of, processes

pytestmark = pytest.mark.slow

END_S_MAX = 40.0  # 7 to 13 on idle cores: five seconds of silence, the rows, the server's end, Ray's


def one_of(name: str) -> psutil.Process:
    """The one process of Ray's with this name."""
    (found,) = [process for process in processes() if name_of(process) == name]
    return found


@pytest.mark.parametrize(
    ("name", "number"),
    [("raylet", signal.SIGKILL), ("raylet", signal.SIGSTOP), ("gcs_server", signal.SIGKILL)],
)
def test_r02_a_lost_node(start: Callable[..., Run], name: str, number: signal.Signals) -> None:
    """FAILED by node_lost with the rows until then, the next level begun by nobody, exit 4, nothing left of Ray."""
    run = start(BASELINE, *ENDLESS, "load.concurrency=[4,5]")
    await_rows(run)
    target = one_of(name)
    try:
        target.send_signal(number)
        ended = run.end(END_S_MAX)
    finally:
        with contextlib.suppress(psutil.Error):
            target.send_signal(signal.SIGCONT)
    assert ended.code == 4, ended.err
    lines = ended.ledger()
    assert [(line["status"], line["exit_code"], line["rules"]) for line in lines] == [
        ("FAILED", 4, ["node_lost"]),
        ("FAILED", 4, ["cluster"]),
    ]
    assert f"Ray's {name}" in lines[0]["reason"]
    (point,) = ended.points()
    assert (point["verdict"]["reasons"][0]["rule"], point["summary"]) == ("node_lost", None)
    assert "Traceback" not in ended.err
    assert not [pid for pid, title in below_us().items() if "ray::" in title], "Ray's processes are left"
    assert os.path.exists(ended.results / "c4" / "requests.parquet")
