"""What can end a run, each with its exit code.

LoadgenError
├── ConfigError     2   the question was wrong: nothing was started
├── ServerError     3   the server did not start, was not the one asked for, or died
├── ClusterError    4   a worker or a node was lost or could not be had
├── StorageError    5   results could not be written
├── Refused     2, 3, 5   the machine has not what a start needs: nothing was started
├── Bug             1   a mistake of our own in a worker
└── Interrupted   130 / 143   SIGINT / SIGTERM

6 is a Point that may not be believed; anything else that escapes is our own bug: exit code 1.
"""

import errno
import signal
from collections.abc import Iterable, Sequence


class LoadgenError(Exception):
    """An end that is not our bug; its text is one sentence that says what to change."""

    exit_code = 1


class ConfigError(LoadgenError):
    exit_code = 2


class ServerError(LoadgenError):
    """`log_tail`: the last lines of the server's log, where there are some; `left`: what it left on its node."""

    exit_code = 3

    def __init__(self, text: str, log_tail: str = "", left: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.log_tail, self.left = log_tail, tuple(left)


class ClusterError(LoadgenError):
    """`left`: what a server whose actor was lost has left on its node."""

    exit_code = 4
    left: tuple[str, ...] = ()


class StorageError(LoadgenError):
    exit_code = 5


class Refused(LoadgenError):
    """A look at the machine found that it cannot be done; by the code, question, machine or disk is at fault."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Bug(LoadgenError):
    """A mistake of our own in another process, told by its last line."""


class Interrupted(LoadgenError):
    """SIGINT or SIGTERM arrived; `signum` decides between 130 and 143."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.exit_code = 128 + signum


INVALID_POINTS = 6
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of an OSError: there is no room
SIGNALLED = (130, 143)
# Several reasons at once: the one that explains most of the others comes first.
PRECEDENCE = (130, 143, 1, 2, 5, 4, 3, 6, 0)


def worst(codes: Iterable[int]) -> int:
    """The exit code of a run that collected `codes` (0 when there are none)."""
    return min(codes, key=PRECEDENCE.index, default=0)


def last_line(error: BaseException) -> str:
    """The last line of Ray's story is the cause, before all that it might have been."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].partition(" Some common causes")[0][:300] if lines else type(error).__name__


def of_worker(error: BaseException) -> LoadgenError:
    """What ended a worker: our own error (its disk was full), a bug of ours, else that the worker is lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, LoadgenError):
        return cause
    if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
        more = "raise the limit of open files (ulimit -n), or use more workers (cluster.workers)"
        return ClusterError(f"{cause.strerror}; {more}")
    return ClusterError(last_line(error)) if cause is None else Bug(last_line(error))
