"""On what a server ran: host, system, processor, memory, packages and GPUs, as far as the machine tells.

It must not know of the server itself, or of what is measured.
"""

import os
import platform
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from server import gpu, packages

CGROUP = Path("/sys/fs/cgroup")
NODES = Path("/sys/devices/system/node")
# What container runtimes leave for their children to find.
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
UNLIMITED_BYTES = 1 << 60  # what cgroups of the first version say where there is no limit


def provenance(gpus: Sequence[str] | None = None) -> dict[str, Any]:
    """The machine in a flat dictionary; None stands where it does not tell. All GPUs where `gpus` is None."""
    return {
        "host": socket.gethostname(),
        "os": _os_name(),
        "kernel": platform.release(),
        "cpu_model": _cpu_model(),
        "cpu_cores": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)),
        "cpu_governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        "cpu_turbo_off": _first_line("/sys/devices/system/cpu/intel_pstate/no_turbo") or None,
        "numa_nodes": numa_nodes(),
        "container": container(),
        "limits": limits(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "packages": packages.ours(),
        **gpu.facts(gpus),
    }


def cores_of(pid: int) -> list[int]:
    """The cores that a process may use; none where it has ended."""
    try:
        return sorted(os.sched_getaffinity(pid))
    except OSError:
        return []


def limits(cgroup: Path = CGROUP) -> dict[str, float | int | None]:
    """What the container, or its cgroup, allows: CPUs and bytes of memory; None where there is no limit."""
    quota, _, period = _first_line(cgroup / "cpu.max").partition(" ")
    if not quota:  # cgroups of the first version
        quota, period = (_first_line(cgroup / f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    memory = _first_line(cgroup / "memory.max") or _first_line(cgroup / "memory/memory.limit_in_bytes")
    bytes_max = int(memory) if memory.isdigit() else None
    return {
        "cpus": int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None,
        "memory_bytes": bytes_max if bytes_max is not None and bytes_max < UNLIMITED_BYTES else None,
    }


def container() -> str | None:
    """The kind of container that this process is in, as far as it shows; None outside one."""
    if any(Path(file).exists() for file in CONTAINER_FILES):
        return "container"
    return "kubernetes" if "KUBERNETES_SERVICE_HOST" in os.environ else None


def numa_nodes(nodes: Path = NODES) -> dict[str, str]:
    """The cores of each memory node, as the kernel lists them: {"0": "0-31"}."""
    found = sorted(nodes.glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    return {node.name[4:]: _first_line(node / "cpulist") for node in found}


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


def _first_line(path: str | Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
