"""`python -m loadgen` that kills itself at a place that no signal from outside meets: the first argument names it.

Its Points are VALID however busy the machine is: whether a client was quick enough is not what is asked here.
"""

import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from loadgen import dataset, store, verdict
from loadgen.__main__ import main


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_the_commit() -> None:
    """When requests.parquet has its name and health.parquet has not."""
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        if target.name == dataset.HEALTH_FILE:
            die()
        real(source, target)

    store.os.replace = replace  # type: ignore[attr-defined]


def before_the_line() -> None:
    """When point.json is there and the ledger does not say so."""
    store.append_line = lambda *_: die()


def after_the_line() -> None:
    """Between two Points."""
    real = store.append_line

    def append_line(path: Any, value: Any) -> None:
        real(path, value)
        if value.get("log_tail", "") is None:  # a line of this command's, not one that was made up for an earlier one
            die()

    store.append_line = append_line


LIMITS = ("REFILL_P99_MS_MAX", "LOOP_LAG_P99_MS_MAX", "LOOP_LAG_MAX_MS_MAX", "WORKER_CPU_P95_MAX", "GC_PAUSE_MS_MAX")
LIMITS += ("CHUNKS_PER_READ_MAX",)
PLACES: dict[str, Callable[[], None]] = {
    "nowhere": lambda: None,
    "commit": in_the_commit,
    "before the line": before_the_line,
    "after the line": after_the_line,
}

if __name__ == "__main__":
    for limit in LIMITS:
        setattr(verdict, limit, math.inf)
    PLACES[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
