"""A Ray of our own that does not come up is started once more; what its first start left is gone by then."""

import signal
import subprocess
from collections.abc import Callable

import psutil
import pytest

from loadgen import cluster
from loadgen.errors import ClusterError, Interrupted
from loadgen.interrupt import Stop

Told = list[subprocess.Popen[bytes]]


def failing(times: int, left: Told) -> Callable[..., None]:
    """A start that fails so many times and leaves a process each time."""

    def start(*_: object) -> None:
        assert not [one for one in left if psutil.Process(one.pid).status() != psutil.STATUS_ZOMBIE]
        if len(left) < times:
            left.append(subprocess.Popen(["sleep", "600"]))
            raise RuntimeError("Timed out waiting for file /tmp/x")

    return start


@pytest.mark.parametrize(("times", "address", "starts"), [(1, None, 1), (2, None, 2), (1, "10.0.0.1:6379", 1)])
def test_a_start_that_fails(times: int, address: str | None, starts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice is a failure, told in one sentence; a cluster of others is asked once."""
    left: Told = []
    monkeypatch.setattr(cluster, "_init", failing(times, left))
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)  # other tests may have a Ray
    try:
        if times == 1 and address is None:
            cluster._start(address, "/tmp/none", 1, Stop())
        else:
            with pytest.raises(ClusterError, match="Ray did not start \\(Timed out waiting for file"):
                cluster._start(address, "/tmp/none", 1, Stop())
        assert len(left) == starts
    finally:
        for one in left:
            one.kill()
            one.wait()


def test_a_start_that_fails_after_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has been asked to end starts once more."""
    left: Told = []
    monkeypatch.setattr(cluster, "_init", failing(2, left))
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    with pytest.raises(Interrupted):
        cluster._start(None, "/tmp/none", 1, Stop(signal.SIGINT))
    assert [one.wait() for one in left] == [-signal.SIGKILL]
