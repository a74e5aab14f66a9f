"""SIGINT and SIGTERM: the first is remembered and ends the run in order, the second ends it at once.

It must not know what is running: whoever waits asks `Stop.check`.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loadgen.errors import Interrupted


@dataclass
class Stop:
    """The signals heard so far; `check` turns the first into Interrupted."""

    signum: int | None = None
    at_once: list[Callable[[], None]] = field(default_factory=list)

    def check(self) -> None:
        """Raise Interrupted if a signal came."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    def hear(self, signum: int, _frame: Any) -> None:
        """First signal: remembered. Second: end at once; what was started ends with the cluster and its guards."""
        if self.signum is not None:
            for act in self.at_once:
                act()
            os._exit(128 + signum)
        self.signum = signum
        print(
            f"{signal.Signals(signum).name}: stopping; what was measured is kept (again: exit at once)",
            file=sys.stderr,
            flush=True,
        )


@contextlib.contextmanager
def signals() -> Iterator[Stop]:
    """Hear SIGINT and SIGTERM for the length of the block; inside another such block it is that one's Stop.

    Enter it again after ray.init, which replaces SIGTERM's handler.
    """
    heard_by = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    stop = heard_by if isinstance(heard_by, Stop) else Stop()
    before = {signum: signal.signal(signum, stop.hear) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
