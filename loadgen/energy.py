"""What the GPUs of a server did over a span: energy, power, clocks, use, and what held their clocks back.

Pure. Reads the `gpu:` rows of server_metrics.parquet; times are nanoseconds on the clock of the rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadgen.counters import Series, Span, gauge, rise

NS_PER_S = 1e9
ENERGY, POWER, REASONS = "gpu:energy_mj", "gpu:power_mw", "gpu:clock_reasons"
# Bits of NVML's clock event reasons that mean a slower GPU than it could be; idle and clocks set by hand are none.
SLOWED_BY = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
}
SLOWED_SHARE_MAX = 0.1


def joules(series: Sequence[Series], span_ns: Span) -> tuple[float, str] | None:
    """Energy of all GPUs over the span and its source: their energy `counter`, or the integral of their `power`.

    Between samples energy rises and power changes evenly. None where the samples of a device do not cover the span, or
    there is none.
    """
    found = [_joules_of(series, gpu, span_ns) for gpu in _gpus(series)]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    sources = sorted({source for _, source in known})
    return sum(energy for energy, _ in known), " and ".join(sources)


def _gpus(series: Sequence[Series]) -> list[str]:
    return sorted({one.labels["gpu"] for one in series if one.name.startswith("gpu:") and "gpu" in one.labels})


def _joules_of(series: Sequence[Series], gpu: str, span_ns: Span) -> tuple[float, str] | None:
    own = {one.name: one for one in series if one.labels.get("gpu") == gpu}
    if (counter := own.get(ENERGY)) and _covers(counter, span_ns):
        return rise(counter, span_ns) / 1000, "counter"
    if (power := own.get(POWER)) and _covers(power, span_ns):
        return _integral(power, span_ns) / 1000, "power"
    return None


def _covers(one: Series, span_ns: Span) -> bool:
    return bool(one.times[0] <= span_ns[0] < span_ns[1] <= one.times[-1])


def _integral(one: Series, span_ns: Span) -> float:
    """The area under a gauge over the span, in its unit times seconds, by trapezoids."""
    inside = (one.times > span_ns[0]) & (one.times < span_ns[1])
    times = np.concatenate(([span_ns[0]], one.times[inside], [span_ns[1]]))
    return float(np.trapezoid(np.interp(times, one.times, one.values), times)) / NS_PER_S


def devices(series: Sequence[Series], span_ns: Span, tokens: float) -> dict[str, Any] | None:
    """Figures of all GPUs together over the span; `tokens` are the output tokens in it. None without GPUs."""
    gpus = _gpus(series)
    if not gpus:
        return None
    used = joules(series, span_ns)
    length_s = (span_ns[1] - span_ns[0]) / NS_PER_S
    clocks = gauge(series, "gpu:sm_clock_mhz", span_ns)
    memory = gauge(series, "gpu:memory_used_bytes", span_ns)
    return {
        "gpus": len(gpus),
        "energy_j": used[0] if used else None,
        "energy_source": used[1] if used else None,
        "power_w": used[0] / length_s if used else None,
        "tokens_per_joule": tokens / used[0] if used and used[0] else None,
        "sm_clock_mhz": _mean(clocks),
        "sm_clock_mhz_min": min(clocks, default=None),
        "utilization_percent": _mean(gauge(series, "gpu:utilization_percent", span_ns)),
        "memory_utilization_percent": _mean(gauge(series, "gpu:memory_utilization_percent", span_ns)),
        "memory_used_bytes_max": max(memory, default=None),
        "temperature_c_max": max(gauge(series, "gpu:temperature_c", span_ns), default=None),
        "slowed": slowed(gauge(series, REASONS, span_ns)),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def slowed(masks: Sequence[float]) -> dict[str, float]:
    """What held the clocks back, each with its share of the samples; only what did."""
    counts = {name: sum(bool(int(mask) & bit) for mask in masks) for bit, name in SLOWED_BY.items()}
    return {name: count / len(masks) for name, count in counts.items() if count}


def caveats(found: dict[str, Any] | None) -> list[str]:
    """A GPU that was held back measures its cooling or its power supply."""
    told = ", ".join(
        f"{name.replace('_', ' ')} in {100 * share:.0f} %"
        for name, share in (found or {}).get("slowed", {}).items()
        # At full load many GPUs run at their power cap all the time: that is their speed.
        if share > SLOWED_SHARE_MAX and name != "power_cap"
    )
    return [f"the GPUs' clocks were held back ({told} of the samples): look at cooling and power"] if told else []
