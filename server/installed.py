"""Which packages an engine's interpreter has, above all the engine's version, read before a server is started with it.

It runs the interpreter (or the container command) with the standard library only: nothing of the engine is imported,
no device is touched. It must not know of Ray or of what is measured.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from server import variant
from server.rules import check
from server.spec import ServerSpec, SpecError, parse_version

PACKAGES = {"sglang": "sglang", "vllm": "vllm"}  # engine -> the distribution whose version is the engine's
READ_S_MAX = 60.0  # an interpreter answers within 0.1 s, a container within seconds; a cold network disk takes longer

THREADS_VARIABLE = "OMP_NUM_THREADS"

PROGRAM = """
import json, platform, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print("packages=" + json.dumps({"python": platform.python_version(), "packages": found}))
"""
MARK = "packages="
# It ends with whoever asked, even by SIGKILL, since its own input ends then, and takes with it all that was started.
WATCHED = """
import json, os, signal, subprocess, sys, threading
environment = json.loads(sys.stdin.readline())
def give_up():
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=give_up, daemon=True).start()
try:
    how = subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL, env=environment)
except OSError as error:
    how = f"0 {error.strerror}"
print(f"\\nended={how}", flush=True)
os.killpg(0, signal.SIGKILL)
"""
ENDED = "\nended="
ADVICE = "install it there, or name another interpreter by variant.python or engine.python (engine=sim needs none)"


def settled(spec: ServerSpec, base: Mapping[str, str]) -> ServerSpec:
    """The spec with the version that is installed; unchanged for an engine that is no package.

    SpecError where it is not installed, cannot be told, is not the version that was asked for, or lacks the variant.
    """
    return agreed(spec, version(spec, base)) if spec.engine in PACKAGES else spec


def agreed(spec: ServerSpec, found: str) -> ServerSpec:
    """The spec with the version that was found. SpecError where another one was asked for, or it lacks the variant."""
    if spec.version is not None and parse_version(found) != parse_version(spec.version):
        raise SpecError(
            f"engine.version={spec.version} was asked for, but {_named(spec)} has {spec.engine} {found}; set "
            f"engine.version={found} or leave it out, or name another interpreter by variant.python or engine.python"
        )
    meant = replace(spec, version=found)
    check(meant)
    return meant


def version(spec: ServerSpec, base: Mapping[str, str]) -> str:
    """The version of the spec's engine that its interpreter has. SpecError where it has none, or cannot tell."""
    package = PACKAGES[spec.engine]
    found = told(spec, base, [package])["packages"]
    if package not in found:
        raise SpecError(f"engine {spec.engine} is not installed in {_named(spec)}; {ADVICE}")
    return str(found[package])


def told(spec: ServerSpec, base: Mapping[str, str], names: Sequence[str]) -> dict[str, Any]:
    """Python's version and, under `packages`, those of the `names` that the interpreter has installed. SpecError."""
    status, said, complained = _ended([*variant.interpreter(spec), "-c", PROGRAM, *names], spec, base)
    try:
        lines = [line.removeprefix(MARK) for line in said.splitlines() if line.startswith(MARK)]
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = (complained.strip().splitlines() or ["it said nothing"])[-1]
        ended = f"{_named(spec)} ended with {status} when asked for {names[0]}"
        raise SpecError(f"{ended}: {last[:300]}; {ADVICE}") from None
    return found


def _ended(words: list[str], spec: ServerSpec, base: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit status and output of a command, which leaves no process, whatever it started. SpecError."""
    environment = variant.environment(spec, base, gpus=())
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WATCHED, *words],
        stdin=read_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    os.close(read_end)
    with process:
        try:
            os.write(write_end, (json.dumps(environment) + "\n").encode())
            said, complained = process.communicate(timeout=READ_S_MAX)
        except subprocess.TimeoutExpired:
            late = f"{_named(spec)} did not tell what it has installed within {READ_S_MAX:g} s"
            raise SpecError(f"{late}; {ADVICE}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody else's process is in it
            os.close(write_end)
    said, _, how = said.rpartition(ENDED)
    status, _, trouble = how.strip().partition(" ")
    if trouble:
        raise SpecError(f"{_named(spec)} cannot be run ({trouble}); {ADVICE}")
    return int(status or process.returncode), said, complained


def _named(spec: ServerSpec) -> str:
    return shlex.join(spec.python) if spec.python else f"this interpreter ({variant.interpreter(spec)[0]})"


def base_environment() -> dict[str, str]:
    """This actor's environment without the number of threads that Ray sets for its workers, which slows a server."""
    base = dict(os.environ)
    with contextlib.suppress(OSError):
        raylet = Path(f"/proc/{os.getppid()}/environ").read_bytes()
        if not any(entry.startswith(THREADS_VARIABLE.encode() + b"=") for entry in raylet.split(b"\0")):
            base.pop(THREADS_VARIABLE, None)
    return base
