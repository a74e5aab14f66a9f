"""Helpers of the tests of real processes: the fake server as an interpreter, its pids, and polling."""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server import apart, guard
from server.process import Running
from server.ready import Ready, wait_ready
from server.spec import ServerSpec

Specs = Callable[..., ServerSpec]
Start = Callable[..., Running]

FAKE_SERVER = Path(__file__).with_name("fake_server.py")


def eventually(done: Callable[[], Any], limit_s: float = 30.0) -> Any:
    """Poll until `done` is true; its value."""
    deadline_s = time.monotonic() + limit_s
    while not (value := done()):
        assert time.monotonic() < deadline_s, f"not within {limit_s} s"
        time.sleep(0.02)
    return value


def prove(running: Running, limit_s: float = 60.0) -> Ready:
    """Wait until it is proven ready."""
    return wait_ready(running, time.monotonic() + limit_s, lambda: False)


def is_gone(pid: int) -> bool:
    """No such process, or only its zombie."""
    return guard.start_ticks(pid) is None


def pids_in(path: Path) -> list[int]:
    """The pids that a fake server wrote, once it has."""
    eventually(path.exists)
    return list(json.loads(path.read_text()))


def fake_python(folder: Path) -> str:
    """An "interpreter" that runs the fake server whatever module it is asked for, and has the version that it tells."""
    path = folder / "fake_python"
    told = """echo 'packages={"packages": {"sglang": "0.5.9"}}' """
    path.write_text(f'#!/bin/sh\ntest "$1" = -c && {told} && exit\nexec {sys.executable} {FAKE_SERVER} "$@"\n')
    path.chmod(0o755)
    return str(path)


def seize(number: int) -> socket.socket:
    """Listen on a port as soon as it is free, before anybody else does."""
    while True:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", number))
        time.sleep(0.001)


def age(*paths: Path) -> None:
    """Let a day pass since something was written there."""
    for path in paths:
        os.utime(path, (time.time() - apart.KEPT_S - 1,) * 2)
