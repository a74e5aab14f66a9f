"""`python -m loadgen` as a user runs it: a child process with its own folder, and what it left behind.

It must not know what a test asks. Every wait has a bound.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from server import guard

RUN_S_MAX = 120.0  # a tiny run takes ten seconds on two idle cores
POLL_S = 0.02

# Small and fast, yet every part is real.
TINY = ("engine=sim", "engine.sim_speed=20", "workload.max_tokens=32", "load.concurrency=2", "load.requests=6")
# A level that goes on until somebody ends it; each answer takes half a second.
ENDLESS = ("engine=sim", "engine.sim_speed=20", "workload.max_tokens=512", "load.concurrency=4", "load.window_s=600")


@dataclass(frozen=True)
class Ended:
    """How a run ended: exit code (negative: the signal that killed it), both outputs, its folder."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def results(self) -> Path:
        """The one results folder of the run."""
        (found,) = self.folder.glob("outputs/*/*")
        return found

    def ledger(self) -> list[dict[str, Any]]:
        """The ledger's lines."""
        return lines_of(self.results / "ledger.jsonl")

    def points(self) -> list[dict[str, Any]]:
        """Every point.json, in order of path."""
        return [json.loads(path.read_text()) for path in sorted(self.results.rglob("point.json"))]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


class Run:
    """One command under way."""

    def __init__(self, arguments: tuple[str, ...], folder: Path, env: dict[str, str], program: tuple[str, ...]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        number = len(list(scratch.iterdir()))
        self._out, self._err = scratch / f"{number}.out", scratch / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*program, *arguments],
                cwd=folder,
                # Guards keep their folders in TMPDIR: here they can be told from everybody else's.
                env={**os.environ, "TMPDIR": str(folder.parent), **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                # A shell that runs the tests in the background has SIGINT ignored, and children inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
            )

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return self._err.read_text(errors="replace")

    def await_line(self, text: str, count: int = 1) -> None:
        """Wait until stderr holds `text` so many times."""
        self._await(lambda: self.err.count(text) >= count, f"{text!r} on stderr")

    def await_found(self, pattern: str, top: Path | None = None) -> Path:
        """Wait until a file below `top` (the run's folder) matches; the first one."""
        where = top or self.folder
        self._await(lambda: any(where.glob(pattern)), pattern)
        return next(where.glob(pattern))

    def _await(self, done: Callable[[], Any], what: str) -> None:
        deadline_s = time.monotonic() + RUN_S_MAX
        while not done():
            assert self.process.poll() is None, f"ended before {what}:\n{self.err}"
            assert time.monotonic() < deadline_s, f"no {what} within {RUN_S_MAX:g} s:\n{self.err}"
            time.sleep(POLL_S)

    def ray_folders(self) -> list[Path]:
        """Where this command's Ray keeps its files."""
        return list(Path("/tmp").glob(f"lg-{self.process.pid}-*"))

    def end(self, limit_s: float = RUN_S_MAX) -> Ended:
        """Wait for the end, at most `limit_s`."""
        try:
            code = self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {limit_s:g} s:\n{self.err}") from None
        return Ended(code, self._out.read_text(errors="replace"), self.err, self.folder)

    def kill(self) -> None:
        """End it whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=RUN_S_MAX)


LOADGEN = (sys.executable, "-m", "loadgen")


def eventually(done: Callable[[], Any], limit_s: float, what: str = "it") -> Any:
    """Poll until `done` is true, at most `limit_s`; its value."""
    deadline_s = time.monotonic() + limit_s
    while not (value := done()):
        assert time.monotonic() < deadline_s, f"{what}: not within {limit_s:g} s"
        time.sleep(POLL_S)
    return value


def below_us() -> dict[int, str]:
    """Living processes that descend from this one, orphans included, by pid with their title; reaps the dead orphans.

    Orphans come here because the tests made this process the one that adopts them (see conftest).
    """
    living: dict[int, str] = {}
    for pid in list(guard.descendants(os.getpid())):
        if guard.start_ticks(pid) is None:
            _reap(pid)
            continue
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            living[pid] = " ".join(process.cmdline())[:120] or process.name()
    return living


def servers() -> list[str]:
    """Guards and simulators of ours that live."""
    return [title for title in below_us().values() if "guard.py" in title or "sim" in title or "sglang" in title]


def _reap(pid: int) -> None:
    """Collect an adopted child; one of subprocess's own must be left to it."""
    own = [run.process.pid for run in STARTED]
    if pid not in own:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


STARTED: list[Run] = []  # of the test that runs


def faulty_python(folder: Path) -> str:
    """An "interpreter" for engine.python that adds the faults in the variable FAULTS to the simulator's flags."""
    path = folder / "faulty_python"
    path.write_text(
        "#!/bin/sh\n"
        'for fault in $FAULTS; do [ "$fault" = none ] || set -- "$@" --sim-fault "$fault"; done\n'
        f'exec {sys.executable} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)
