"""Fixtures of the slow suite: truthd built by gcc, and the program run as a user runs it."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import wait_for

sys.path.append(str(Path(__file__).parent.parent / "cli"))

from neighbour import of_the_server

HERE = Path(__file__).parent
Truthd = Callable[..., str]


@pytest.fixture(scope="session")
def truthd_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """truthd, built from its source beside this file."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing: truthd cannot be built")
    binary = tmp_path_factory.mktemp("truthd") / "truthd"
    subprocess.run(["gcc", "-O2", "-w", "-o", str(binary), str(HERE / "truthd.c"), "-lm"], check=True)
    return binary


@pytest.fixture
def truthd(truthd_binary: Path) -> Iterator[Truthd]:
    """Starts truthd with the given flags on a free port; its URL."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*flags: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        running.append(subprocess.Popen([truthd_binary, "--port", str(port), *flags], stderr=subprocess.DEVNULL))
        wait_for(port)
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.terminate()
        process.wait(10)


def server_reasons(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reasons against Points that a busy test machine does not explain."""
    return [dict(reason) for point in points for reason in of_the_server(point["verdict"]["reasons"])]


def measured(folder: Path, *overrides: str, limit_s: float) -> tuple[int, list[dict[str, Any]], str]:
    """Run the program in `folder`; exit code, every point.json, and all it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "loadgen", *overrides], cwd=folder, capture_output=True, text=True, timeout=limit_s
    )
    points = [json.loads(path.read_text()) for path in sorted(folder.glob("outputs/**/point.json"))]
    return done.returncode, points, done.stdout + done.stderr
