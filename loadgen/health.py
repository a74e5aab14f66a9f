"""What the worker's process did meanwhile: loop lag, CPU, memory, descriptors and collector pauses, a row a second.

It watches its own process and loop only. It must not know of requests: their counts are handed in.
"""

import array
import asyncio
import gc
import os
import resource
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns, perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

import psutil

from loadgen.record import PROBE_S

NS = 1_000_000_000
SCHEDULED = Path("/proc/thread-self/schedstat")  # of this thread: ns it ran, ns it waited for a core, how often


class Health:
    """The state behind the health rows; start() and stop() bracket it, row() closes one interval."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._process = psutil.Process()
        self._descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._lag_ms = array.array("f")  # some 190 a second: as objects they are the most that a driver keeps
        self._gc_began = self._gc_max = 0
        self._last_ns, self._last_cpu_ns = monotonic_ns(), process_time_ns()
        self._last_waited_ns = waited_ns()
        self._probe: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to sample; call it in the loop that is to be watched."""
        gc.callbacks.append(self._collecting)
        self._probe = asyncio.get_running_loop().create_task(self._sample())

    def stop(self) -> None:
        """Ends sampling."""
        if self._probe is not None:
            self._probe.cancel()
            gc.callbacks.remove(self._collecting)
            self._probe = None

    def row(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """The row of the interval that ends now; `counts` are in_flight, sent, finished, failed and reads."""
        now, cpu = monotonic_ns(), process_time_ns()
        duration = max(1, now - self._last_ns)
        lags, self._lag_ms = self._lag_ms, array.array("f")
        pause, self._gc_max = self._gc_max, 0
        used, self._last_ns, self._last_cpu_ns = cpu - self._last_cpu_ns, now, cpu
        waited, self._last_waited_ns = self._last_waited_ns, waited_ns()
        return {
            "t_ns": now - self._start_ns,
            "utc": datetime.now(UTC),
            "duration_ns": duration,
            "loop_lag_ms": lags,
            "cpu_share": used / duration,
            "waited_share": None if waited is None else max(0, (self._last_waited_ns or 0) - waited) / duration,
            "rss_bytes": self._process.memory_info().rss,
            "descriptors": descriptors(),
            "descriptors_max": self._descriptors_max,
            "gc_pause_max_ms": pause / 1e6,
            **counts,
        }

    async def _sample(self) -> None:
        expected = int(PROBE_S * NS)
        while True:
            before = monotonic_ns()
            await asyncio.sleep(PROBE_S)
            # A timer may fire early by its resolution; that is no lag.
            self._lag_ms.append(max(0, monotonic_ns() - before - expected) / 1e6)

    def _collecting(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._gc_began = perf_counter_ns()
        else:
            self._gc_max = max(self._gc_max, perf_counter_ns() - self._gc_began)


def descriptors() -> int:
    """Open file descriptors of this process."""
    # The size of the folder is their number since Linux 6.2; listing thousands of them takes milliseconds.
    return os.stat("/proc/self/fd").st_size or psutil.Process().num_fds()


def waited_ns() -> int | None:
    """How long this thread has waited for its core while others had it; None where the system does not tell.

    Other threads of this process may have run meanwhile, on a core that is the process's own: theirs is no waiting.
    """
    try:
        waited = int(SCHEDULED.read_text().split()[1])
    except (OSError, LookupError, ValueError):
        return None
    return waited - (process_time_ns() - thread_time_ns())
