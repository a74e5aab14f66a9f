"""Whether Ray's own processes live and go on: what is said of one that does not, and what becomes of the others."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fakes import eventually

from loadgen import footprint, warden
from loadgen.errors import ClusterError
from loadgen.warden import FROZEN_S_MAX, Watched


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """A process that only sleeps."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield psutil.Process(process.pid)
        process.kill()


def test_r02_frozen_is_lost_after_five_seconds_dead_at_once(
    sleeper: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that goes on again in time was never lost."""
    now_s = [100.0]
    monkeypatch.setattr(warden.time, "monotonic", lambda: now_s[0])
    watched = Watched(sleeper, "raylet")
    assert watched.look() is None
    for spell_s in (FROZEN_S_MAX, FROZEN_S_MAX - 1):  # twice, together longer than it may
        sleeper.send_signal(signal.SIGSTOP)
        eventually(lambda: sleeper.status() == psutil.STATUS_STOPPED)
        assert watched.look() is None
        now_s[0] += spell_s
        assert watched.look() is None
        sleeper.send_signal(signal.SIGCONT)
        eventually(lambda: sleeper.status() != psutil.STATUS_STOPPED)
        assert watched.look() is None
    sleeper.send_signal(signal.SIGSTOP)
    eventually(lambda: sleeper.status() == psutil.STATUS_STOPPED)
    assert watched.look() is None
    now_s[0] += FROZEN_S_MAX + 1
    assert watched.look() == f"Ray's raylet (process {sleeper.pid}) of this machine was frozen for 6 s"
    sleeper.kill()
    eventually(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE)
    assert watched.look() == f"Ray's raylet (process {sleeper.pid}) of this machine has died"


def test_r02_what_a_dead_raylet_leaves_is_ended(tmp_path: Path) -> None:
    """Whoever writes to a file of that Ray goes, and is nobody's child by now; what asks Ray has its answer."""
    shutil.copy(str(shutil.which("sleep")), tmp_path / "raylet")
    left = subprocess.run(
        ["sh", "-c", f"sleep 600 >/dev/null 2>{tmp_path}/err & echo $!"], capture_output=True, text=True, check=True
    )
    orphan = psutil.Process(int(left.stdout))
    raylet = subprocess.Popen([str(tmp_path / "raylet"), "600"])
    try:
        eventually(lambda: psutil.Process(raylet.pid).name() == "raylet")
        with warden.watching(str(tmp_path)):
            warden.require_whole()
            raylet.kill()
            raylet.wait()
            with pytest.raises(ClusterError, match="has died"):
                warden.require_whole()
            eventually(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)
        assert "has died" in str(warden.trouble())
    finally:
        warden.forget()
        footprint.kill([orphan])
        raylet.kill()
        raylet.wait()
    warden.require_whole()
