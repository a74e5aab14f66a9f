"""A program that is killed between two of its steps: a fork of this process that ends itself by SIGKILL.

A step is a call to the operating system that changes what is on the disk. A write has two places to die at: before it,
and when half of it was written.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

CHILD_S_MAX = 30  # it takes hundredths of a second
PLAIN = ("fsync", "replace", "unlink", "mkdir", "rmdir")


def killed_at(place: int, story: Callable[[], Any]) -> int | None:
    """Tell `story` in a fork that dies at the place of this number; None, or how many places it has if it lived."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(CHILD_S_MAX)
            tell, counted = os.write, _armed(place)
            story()
            tell(theirs, str(counted()).encode())
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours, "rb") as told:
        places = told.read()
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    assert ended == (0 if places else -signal.SIGKILL), f"the story ended by itself: {ended}"
    return int(places) if places else None


def _armed(place: int) -> Callable[[], int]:
    """From now on this process dies there; how many places it has passed is told by what is returned."""
    passed = 0

    def here() -> None:
        nonlocal passed
        if passed == place:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    def before(holder: Any, name: str, counts: Callable[..., bool] = lambda *_: True) -> None:
        real = getattr(holder, name)

        def step(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments):
                here()
            return real(*arguments, **options)

        setattr(holder, name, step)

    def halved(holder: Any, name: str, half: Callable[..., Any]) -> None:
        real = getattr(holder, name)

        def step(*arguments: Any, **options: Any) -> Any:
            here()
            if passed == place:
                half(real, *arguments, **options)
            here()
            return real(*arguments, **options)

        setattr(holder, name, step)

    for name in PLAIN:
        before(os, name)
    before(os, "open", lambda _path, flags, *_: bool(flags & os.O_CREAT))
    before(Path, "open", lambda _path, mode="r", *_: mode != "r" and mode != "rb")
    halved(os, "write", lambda real, descriptor, data: real(descriptor, memoryview(data)[: len(data) // 2]))
    halved(Path, "write_bytes", lambda real, path, data: real(path, data[: len(data) // 2]))
    halved(pq, "write_table", _half_a_table)
    return lambda: passed


def _half_a_table(real: Callable[..., Any], table: Any, path: Path, **options: Any) -> None:
    real(table, path, **options)
    os.truncate(path, path.stat().st_size // 2)
