"""On what a server ran: host, system, processor, memory, packages and GPUs, as far as the machine tells.

It must not know of the server itself, or of what is measured.
"""

import os
import platform
import socket
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from server import gpu

PACKAGES = (
    "loadgen",
    "ray",
    "aiohttp",
    "numpy",
    "pyarrow",
    "uvloop",
    "hydra-core",
    "orjson",
    "torch",
    "transformers",
    "sglang",
    "sgl-kernel",
    "sglang-kernel",
    "flashinfer-python",
    "vllm",
)


def provenance(gpus: Sequence[str] | None = None) -> dict[str, Any]:
    """The machine in a flat dictionary; None stands where it does not tell. All GPUs where `gpus` is None."""
    return {
        "host": socket.gethostname(),
        "os": _os_name(),
        "kernel": platform.release(),
        "cpu_model": _cpu_model(),
        "cpu_cores": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)),
        "cpu_governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpu_turbo_off": _first_line("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "packages": packages(),
        **gpu.facts(gpus),
    }


def cores_of(pid: int) -> list[int]:
    """The cores that a process may use; none where it has ended."""
    try:
        return sorted(os.sched_getaffinity(pid))
    except OSError:
        return []


def packages() -> dict[str, str]:
    """Versions of the packages that can change a result, those that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _cpu_model() -> str | None:
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _first_line(path: str) -> str | None:
    return _text(path).partition("\n")[0].strip() or None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
