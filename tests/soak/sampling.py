"""What the processes of a run hold, once a second: memory, descriptors, threads, CPU seconds.

It must not know of limits. A process is known by its number and by the title that it gave itself.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PERIOD_S = 1.0
KIB = 1024
IDLE = "idle worker"
# Private and shared memory without the mapped files, which the kernel takes and gives back as it likes.
HELD = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
ROLES = (
    ("guard.py", "guard"),
    ("ray::Wall", "board"),
    ("ray::ServerActor", "server's actor"),
    ("ray::loadgen:", "worker"),
    ("ray::IDLE", IDLE),
    ("/default_worker.py", IDLE),
    ("ray::", "Ray's agent"),
    ("/gcs_server", "Ray's gcs_server"),
    ("/raylet/raylet", "raylet"),
    ("sglang::scheduler", "server: scheduler"),
    ("sglang::detokenizer", "server: detokenizer"),
    ("server.sim", "server: front end"),
    ("leaking.py", "control"),
)


@dataclass
class Held:
    """What one process held at each sample; times in seconds since 1970, memory in bytes."""

    role: str = ""
    times_s: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def take(self, process: psutil.Process) -> None:
        """One more sample. Raises psutil.Error or OSError where the process is gone."""
        status = Path(f"/proc/{process.pid}/status").read_text()
        used, files, threads = process.cpu_times(), process.num_fds(), process.num_threads()
        self.times_s.append(time.time())
        self.memory.append(KIB * sum(map(int, HELD.findall(status))))
        self.descriptors.append(files)
        self.threads.append(threads)
        self.cpu_s.append(used.user + used.system)

    def be(self, role: str) -> None:
        """It is what it was last when it was something: a worker that waits for its end has no title of its own."""
        if not self.role or role != IDLE:
            self.role = role

    def between(self, start_s: float, end_s: float) -> "Held":
        """The samples of a time."""
        kept = [place for place, at in enumerate(self.times_s) if start_s <= at <= end_s]
        series = (self.times_s, self.memory, self.descriptors, self.threads, self.cpu_s)
        return Held(self.role, *([values[place] for place in kept] for values in series))


def role_of(command: str, driver: bool) -> str:
    """What a process is of the run, by its command line; its last word where that is unknown."""
    if driver:
        return "driver"
    return next((role for part, role in ROLES if part in command), command[-40:])


class Watch:
    """Samples all processes that `alive` names until it is closed."""

    def __init__(self, alive: Callable[[], Iterable[psutil.Process]], driver: int, period_s: float = PERIOD_S) -> None:
        self._alive, self._driver, self._period_s = alive, driver, period_s
        self.seen: dict[int, Held] = defaultdict(Held)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            self.sample()

    def sample(self) -> None:
        """One sample of each."""
        for process in self._alive():
            try:
                held = self.seen[process.pid]
                held.take(process)
                held.be(role_of(" ".join(process.cmdline()), process.pid == self._driver))
            except (psutil.Error, OSError):
                continue  # it has ended meanwhile
