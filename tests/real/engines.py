"""`python -m loadgen` on a real engine: a command run to its end, what it left, and what must not be left.

Every wait has a bound; on a busy machine of two cores a start takes minutes, on an idle one half a minute.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prepare
import psutil

from loadgen.dataset import point_files, read_dataset
from server import guard

ROOT = Path(__file__).parent.parent.parent
COMMAND_S_MAX = 2400.0  # a quarter of an hour on idle cores
GONE_S_MAX = 30.0
POLL_S = 0.2
# LOADGEN_REAL_SHORT=1: each study in one block, vLLM's at its first and last level; every check but of a second start.
SHORT = prepare.short()
ONE_BLOCK = ("block=0",) if SHORT else ()


@dataclass(frozen=True)
class Study:
    """A command that has ended: exit code, both outputs, seconds it took, folder of its results."""

    code: int
    out: str
    err: str
    seconds: float
    folder: Path

    def points(self) -> list[dict[str, Any]]:
        """Every point.json."""
        return [json.loads(path.read_text()) for path in point_files(self.folder)]

    def launches(self) -> list[dict[str, Any]]:
        """Every launch.json."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.rglob("launch*.json"))]

    def ledger(self) -> list[dict[str, Any]]:
        """The ledger's lines."""
        return [json.loads(line) for line in (self.folder / "ledger.jsonl").read_text().splitlines()]

    def rows(self) -> list[dict[str, Any]]:
        """Every request of every Point."""
        return list(read_dataset(self.folder).to_pylist())


def unprepared(*parts: str) -> str:
    """Why the real engines cannot be run here; empty where they can."""
    folder = prepare.root()
    missing = [name for name in parts if not prepare.made(folder, name)]
    return f"{', '.join(missing)} not in {folder}: run python tests/real/prepare.py first" if missing else ""


def begin(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command with its outputs in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "loadgen", *arguments],
            cwd=folder,
            env={**os.environ, "LOADGEN_REAL": str(prepare.root()), "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        )


def end(process: subprocess.Popen[bytes], folder: Path, results: Path, began_s: float) -> Study:
    """Wait for a command's end."""
    try:
        code = process.wait(COMMAND_S_MAX)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(COMMAND_S_MAX)
        raise AssertionError(f"not at its end after {COMMAND_S_MAX:g} s:\n{(folder / 'err').read_text()}") from None
    out, err = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
    return Study(code, out, err, time.monotonic() - began_s, results)


def run(folder: Path, *arguments: str) -> Study:
    """A grid from its start to its end, its results in folder/results."""
    began_s, results = time.monotonic(), folder / "results"
    process = begin(folder, *arguments, f"hydra.sweep.dir={results}", f"hydra.run.dir={results}")
    return end(process, folder, results, began_s)


def of_engine(word: str = "") -> list[psutil.Process]:
    """Living processes of the prepared engines whose title has `word`."""
    return [process for process, title in titles() if word in title]


def titles() -> Iterator[tuple[psutil.Process, str]]:
    """Engine processes below this one, with their titles: what others run in the same environments is not ours.

    One that renamed itself is known by the libraries that it has open. Orphans come here (see conftest).
    """
    home = str(prepare.root())
    for pid in guard.descendants(os.getpid()):
        try:
            process = psutil.Process(pid)
            mapped = Path(f"/proc/{pid}/maps").read_text(errors="replace")
            title = " ".join(process.cmdline()) or process.name()
        except (OSError, psutil.Error):
            continue
        if home in title or f"{home}/" in mapped:
            yield process, title


def eventually(done: Callable[[], Any], limit_s: float, what: str) -> Any:
    """Poll until `done` is true; its value."""
    deadline_s = time.monotonic() + limit_s
    while not (value := done()):
        assert time.monotonic() < deadline_s, f"{what}: not within {limit_s:g} s"
        time.sleep(POLL_S)
    return value


def require_nothing_left() -> None:
    """No process of an engine lives on."""
    eventually(lambda: not of_engine(), GONE_S_MAX, f"gone: {[title for _, title in titles()]}")
