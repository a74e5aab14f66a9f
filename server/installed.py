"""Which version of an engine an interpreter has, read before a server is started with it.

It runs the interpreter (or the container command) with the standard library only: nothing of the engine is imported,
no device is touched. It must not know of Ray or of what is measured.
"""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from server import variant
from server.rules import check
from server.spec import ServerSpec, SpecError, parse_version

PACKAGES = {"sglang": "sglang", "vllm": "vllm"}  # engine -> the distribution whose version is the engine's
READ_S_MAX = 60.0  # an interpreter answers within 0.1 s, a container within seconds; a cold network disk takes longer

# Ends with 3 where there is no such distribution, so that it cannot be taken for an interpreter's own failure.
PROGRAM = """
import sys
from importlib.metadata import PackageNotFoundError, version
try:
    print("version=" + version(sys.argv[1]))
except PackageNotFoundError:
    sys.exit(3)
"""
ABSENT = 3


def settled(spec: ServerSpec, base: Mapping[str, str]) -> ServerSpec:
    """The spec with the version that is installed; unchanged for an engine that is no package.

    SpecError where it is not installed, cannot be told, is not the version that was asked for, or lacks the variant.
    """
    if spec.engine not in PACKAGES:
        return spec
    found = read(spec, base)
    if spec.version is not None and parse_version(found) != parse_version(spec.version):
        raise SpecError(
            f"engine.version={spec.version} was asked for, but {_named(spec)} has {spec.engine} {found}; set "
            f"engine.version={found} or leave it out, or name another interpreter by variant.python or engine.python"
        )
    meant = replace(spec, version=found)
    check(meant)
    return meant


def read(spec: ServerSpec, base: Mapping[str, str]) -> str:
    """The installed version of the spec's engine. SpecError as in `settled`."""
    package = PACKAGES[spec.engine]
    status, said, complained = _ended([*variant.interpreter(spec), "-c", PROGRAM, package], spec, base)
    told = [line for line in said.splitlines() if line.startswith("version=")]
    if told:
        return told[-1].removeprefix("version=")
    if status == ABSENT:
        raise SpecError(f"engine {spec.engine} is not installed in {_named(spec)}; {ADVICE}")
    last = (complained.strip().splitlines() or ["it said nothing"])[-1]
    raise SpecError(f"{_named(spec)} ended with {status} when asked for {package}: {last[:300]}; {ADVICE}")


def _ended(words: list[str], spec: ServerSpec, base: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit status and output of a command, which leaves no process, whatever it started. SpecError."""
    environment = variant.environment(spec, base, gpus=())
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    try:
        process = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            **pipes,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise SpecError(f"{_named(spec)} cannot be run ({error.strerror}); {ADVICE}") from None
    with process:
        try:
            said, complained = process.communicate(timeout=READ_S_MAX)
        except subprocess.TimeoutExpired:
            late = f"{_named(spec)} did not tell its version of {spec.engine} within {READ_S_MAX:g} s"
            raise SpecError(f"{late}; {ADVICE}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody else's process is in it
    return process.returncode, said, complained


ADVICE = "install it there, or name another interpreter by variant.python or engine.python (engine=sim needs none)"


def _named(spec: ServerSpec) -> str:
    return shlex.join(spec.python) if spec.python else f"this interpreter ({variant.interpreter(spec)[0]})"
