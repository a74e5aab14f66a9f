"""What the GPUs of this machine are and do, by NVML: facts for the record, samples for telemetry, memory for the stop.

The only module that knows NVML. Where there is no driver every answer is empty. It must not know what runs on them.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The driver gives memory back within seconds; after a crash of eight devices it was seen to take most of a minute.
FREED_S_MAX = 60.0
POLL_S = 0.5
# nvmlGpuTopologyLevel: where the ways of two devices meet.
MEETING: dict[int | None, str] = {
    0: "same board",
    10: "pcie switch",
    20: "pcie switches",
    30: "pcie host bridge",
    40: "cpu",
    50: "between cpus",
}
# Contexts of monitoring tools come and go; a server holds gigabytes.
SLACK_BYTES = 512 * 1024 * 1024


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """The library, initialised; None where there is no driver or no library. One held open makes others cheap."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        # Missing package, missing driver, forbidden device: all mean that nothing can be said.
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _handle(nvml: Any, gpu: str) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdigit() else nvml.nvmlDeviceGetHandleByUUID(gpu)


def _ask(read: Callable[[], Any]) -> Any:
    """One reading; None where this device or driver does not offer it."""
    try:
        value = read()
    except Exception:
        return None
    return value.decode() if isinstance(value, bytes) else value


def facts(gpus: Sequence[str] | None = None) -> dict[str, Any]:
    """Driver, CUDA version and each device's name, memory, clocks and power cap; all devices where `gpus` is None."""
    with session() as nvml:
        if nvml is None:
            return {"driver": None, "gpus": [], "links": []}
        known = [str(index) for index in range(nvml.nvmlDeviceGetCount())] if gpus is None else gpus
        return {
            "driver": _ask(nvml.nvmlSystemGetDriverVersion),
            "cuda_driver": _ask(nvml.nvmlSystemGetCudaDriverVersion),
            "gpus": [_facts_of(nvml, gpu) for gpu in known],
            "links": _links(nvml, known),
        }


def _links(nvml: Any, gpus: Sequence[str]) -> list[dict[str, Any]]:
    """How each two devices reach each other: NVLink, or the PCI place where their ways meet."""
    handles = {gpu: _ask(functools.partial(_handle, nvml, gpu)) for gpu in gpus}
    return [{"gpus": [a, b], "link": _link(nvml, handles[a], handles[b])} for a, b in itertools.combinations(gpus, 2)]


def _link(nvml: Any, a: Any, b: Any) -> str | None:
    linked = _ask(lambda: nvml.nvmlDeviceGetP2PStatus(a, b, nvml.NVML_P2P_CAPS_INDEX_NVLINK))
    if linked == nvml.NVML_P2P_STATUS_OK:
        return "nvlink"
    return MEETING.get(_ask(lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(a, b)))


def _facts_of(nvml: Any, gpu: str) -> dict[str, Any]:
    handle = _ask(lambda: _handle(nvml, gpu))
    memory = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return {
        "id": gpu,
        "name": _ask(lambda: nvml.nvmlDeviceGetName(handle)),
        "uuid": _ask(lambda: nvml.nvmlDeviceGetUUID(handle)),
        "memory_bytes": memory.total if memory else None,
        "sm_clock_max_mhz": _ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "memory_clock_max_mhz": _ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        "power_limit_mw": _ask(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle)),
        "pci": _ask(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId),
        "numa_node": numa_node(_ask(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)),
        "persistence": _ask(lambda: nvml.nvmlDeviceGetPersistenceMode(handle)),
        "pcie_generation": _ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "pcie_width": _ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    }


def numa_node(bus_id: str | bytes | None) -> int | None:
    """The memory node that a device is near, by the kernel; None where it does not say."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    if not text:
        return None
    domain, _, rest = text.lower().partition(":")
    try:
        told = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return told if told >= 0 else None


def samples(gpus: Sequence[str]) -> list[tuple[str, dict[str, str], float]]:
    """Clocks, power, temperature, use and memory of the devices now: name, labels, value."""
    if not gpus:
        return []
    with session() as nvml:
        if nvml is None:
            return []
        return [(name, {"gpu": gpu}, value) for gpu in gpus for name, value in _samples_of(nvml, gpu)]


def _samples_of(nvml: Any, gpu: str) -> Iterator[tuple[str, float]]:
    handle = _ask(lambda: _handle(nvml, gpu))
    readings: dict[str, Callable[[], float]] = {
        "gpu:sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "gpu:memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "gpu:power_mw": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "gpu:temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "gpu:energy_mj": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),  # since the driver was loaded
        "gpu:clock_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),  # bits
        "gpu:utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "gpu:memory_utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory,
        "gpu:memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
    }
    for name, read in readings.items():
        if (value := _ask(read)) is not None:
            yield name, float(value)


def memory_used(gpus: Sequence[str]) -> dict[str, int]:
    """Bytes in use on each device; devices that cannot be read are missing."""
    return {labels["gpu"]: int(value) for name, labels, value in samples(gpus) if name == "gpu:memory_used_bytes"}


def memory_held(
    gpus: Sequence[str],
    before: dict[str, int],
    read: Callable[[Sequence[str]], dict[str, int]] = memory_used,
    limit_s: float = FREED_S_MAX,
) -> list[str]:
    """Wait until the devices use no more memory than `before` the launch; name those that still do at the limit."""
    deadline_s = time.monotonic() + limit_s
    while held := {gpu: used for gpu, used in read(gpus).items() if used > before.get(gpu, used) + SLACK_BYTES}:
        if time.monotonic() > deadline_s:
            return [f"GPU {gpu} still has {used / 2**30:.1f} GiB in use" for gpu, used in held.items()]
        time.sleep(POLL_S)
    return []


@dataclass(frozen=True)
class Device:
    """One device's memory in bytes, and who uses it: pids with their bytes, None where the driver does not tell."""

    id: str
    free_bytes: int
    total_bytes: int
    processes: tuple[tuple[int, int | None], ...] = ()


def devices(gpus: Sequence[str] | None = None) -> list[Device]:
    """Memory and processes of the devices, of all where `gpus` is None; none where there is no driver."""
    with session() as nvml:
        if nvml is None:
            return []
        known = [str(index) for index in range(nvml.nvmlDeviceGetCount())] if gpus is None else gpus
        found = (_device(nvml, gpu) for gpu in known)
        return [device for device in found if device]


def _device(nvml: Any, gpu: str) -> Device | None:
    handle = _ask(lambda: _handle(nvml, gpu))
    memory = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    if memory is None:
        return None
    users = _ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    return Device(gpu, memory.free, memory.total, tuple((one.pid, one.usedGpuMemory) for one in users))
