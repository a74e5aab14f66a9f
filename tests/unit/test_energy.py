"""Energy and clocks of GPUs from rows made by hand: counter or power, edges, devices that are missing."""

from typing import Any

import pytest
from test_counters import S, samples

from loadgen.counters import by_series
from loadgen.energy import caveats, devices, joules, slowed


def energy(rows: list[dict[str, Any]], start_s: float, end_s: float) -> tuple[float, str] | None:
    return joules(by_series(rows), (start_s * S, end_s * S))


def test_the_energy_counter_wins() -> None:
    """Millijoules since the driver was loaded: the rise over the span, evenly between samples."""
    rows = samples("gpu:energy_mj", {0: 10_000, 2: 20_000, 4: 50_000}, gpu="0")
    rows += samples("gpu:power_mw", {0: 1, 4: 1}, gpu="0")
    assert energy(rows, 1, 3) == (5 + 15, "counter")


def test_the_integral_of_power() -> None:
    """Devices without the counter: trapezoids between samples, the edges on the line between their neighbours."""
    rows = samples("gpu:power_mw", {0: 100_000, 2: 300_000, 3: 300_000}, gpu="0")
    assert energy(rows, 0, 3) == (pytest.approx(400 + 300), "power")
    assert energy(rows, 1, 2.5) == (pytest.approx(250 + 150), "power")
    both = rows + samples("gpu:energy_mj", {0: 0, 3: 9000}, gpu="1")
    assert energy(both, 0, 3) == (pytest.approx(709), "counter and power")


def test_what_is_not_covered_is_not_known() -> None:
    """Samples that begin late or end early, of one device of two: no total."""
    rows = samples("gpu:power_mw", {0: 100_000, 4: 100_000}, gpu="0")
    assert energy(rows, 0, 4) == (400, "power")
    assert energy(rows + samples("gpu:power_mw", {1: 1, 4: 1}, gpu="1"), 0, 4) is None
    assert energy(rows, 0, 5) is None
    assert energy(rows, 2, 2) is None
    assert energy([], 0, 1) is None
    assert devices(by_series(samples("sglang:token_usage", {0: 1, 4: 1})), (0, 4 * S), 10) is None


def test_figures_of_a_span() -> None:
    """Tokens a joule are the span's tokens over the energy of all devices."""
    rows = []
    for gpu in ("0", "1"):
        rows += samples("gpu:power_mw", {0: 200_000, 4: 200_000}, gpu=gpu)
        rows += samples("gpu:sm_clock_mhz", {0: 1000, 1: 1980, 2: 1000, 4: 5}, gpu=gpu)
        rows += samples("gpu:memory_used_bytes", {1: 7e10}, gpu=gpu)
        rows += samples("gpu:clock_reasons", {1: 0x44, 2: 1, 3: 0x4, 3.5: 0}, gpu=gpu)
    found = devices(by_series(rows), (1 * S, 4 * S), 3600)
    assert found is not None
    assert (found["energy_j"], found["power_w"], found["gpus"]) == (1200, 400, 2)
    assert found["tokens_per_joule"] == pytest.approx(3)
    assert (found["sm_clock_mhz"], found["sm_clock_mhz_min"], found["memory_used_bytes_max"]) == (1490, 1000, 7e10)
    assert found["utilization_percent"] is None
    assert found["slowed"] == {"power_cap": 0.5, "hardware_thermal": 0.25}
    assert caveats(found) == [
        "the GPUs' clocks were held back (hardware thermal in 25 % of the samples): look at cooling and power"
    ]


def test_a_power_cap_alone_is_the_gpus_speed() -> None:
    """Idle and clocks set by hand hold nothing back; a GPU at its power cap runs as its owner wants."""
    assert slowed([0x1, 0x2, 0x0]) == {}
    assert slowed([]) == {}
    assert caveats({"slowed": {"power_cap": 1.0, "power_brake": 0.05}}) == []
    assert caveats(None) == []
