"""What the GPUs of this machine are and do, by NVML: facts for the record, samples for telemetry, memory for the stop.

The only module that knows NVML. Where there is no driver every answer is empty. It must not know what runs on them.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# The driver gives memory back within seconds; after a crash of eight devices it was seen to take most of a minute.
FREED_S_MAX = 60.0
POLL_S = 0.5
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
            return {"driver": None, "gpus": []}
        known = [str(index) for index in range(nvml.nvmlDeviceGetCount())] if gpus is None else gpus
        return {
            "driver": _ask(nvml.nvmlSystemGetDriverVersion),
            "cuda_driver": _ask(nvml.nvmlSystemGetCudaDriverVersion),
            "gpus": [_facts_of(nvml, gpu) for gpu in known],
        }


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
        "persistence": _ask(lambda: nvml.nvmlDeviceGetPersistenceMode(handle)),
        "pcie_generation": _ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "pcie_width": _ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    }


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
        "gpu:utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
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
