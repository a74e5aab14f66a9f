"""From what was sampled and what the files say to the lines of the table. Pure; judging says what counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from figures import Told
from judging import BLOCKS, Trend, counts_grow, drift, growth
from machine import LATE, WORK
from sampling import Held

MIB = 1024 * 1024
SAMPLES_MIN = 3 * BLOCKS
GROWTH_MIB_PER_MIN_MAX = 0.05  # so much a minute is no leak: 70 MiB a day
# Kept until the Point is whole, in MiB a minute, with room for noise: all of it by second, nothing by request.
BY_DESIGN_MIB_PER_MIN = {
    "driver": 0.25,  # 0.14: Health's row of each worker and second, 2.3 KiB
    "server's actor": 0.5,  # 0.3: samples of /metrics; it drops the oldest beyond an hour of a large server's
    "Ray's gcs_server": 0.5,  # Ray's own books, on an idle cluster too: 0.4 in its first minutes, ever less
    "raylet": 0.5,  # the same
    "board": 0.2,  # the same: 0.17 in its first minutes, 0.03 over twenty
}
BLIND_MIB_PER_MIN = 1.0  # where chance alone makes so much of it, nothing is known
# What may change over the window, as a share of the median: these two either way, of all others less is no fault.
EITHER_WAY = {"events/s", "chunk gap p50, ms"}
DRIFT_MAX = {
    "events/s": 0.02,
    "TTFT p50, ms": 0.1,
    "TTFT p90, ms": 0.4,  # of a server of even steps, whose streams bunch: 0.3 in half an hour, lag and CPU falling
    "chunk gap p50, ms": 0.05,
    "chunk gap p99, ms": 0.2,
    "loop lag p50, ms": 0.25,
    "loop lag p99, ms": 0.25,
    "worker CPU, cores": 0.05,
}
CPU_DRIFT_MAX, CPU_CORES_MAX = 0.1, 0.01  # of a process: a share of it, and of a core, which small ones need not keep
EVENTS, WORKER_CPU = "events/s", "worker CPU, cores"
CONTROL = "control"
BLIND = "too noisy to tell"


@dataclass(frozen=True)
class Finding:
    """One series: its word is `flat`, `grows`, `drifts` or `too noisy to tell`, and what it is said of."""

    what: str
    level: str
    change: str
    word: str

    @property
    def bad(self) -> bool:
        return self.word != "flat"

    @property
    def blind(self) -> bool:
        """Nothing is known of it."""
        return self.word == BLIND


def of_processes(told: Told, seen: Sequence[Held]) -> list[Finding]:
    """What the processes that lived through the window held; of those that came and went, how many there were."""
    inside = [held.between(told.start_s, told.end_s) for held in seen]
    longest = max(len(held.times_s) for held in inside)
    whole = sorted(
        (one for one in inside if len(one.times_s) >= 0.9 * longest >= SAMPLES_MIN), key=lambda one: one.role
    )
    found = [finding for held in whole for finding in of_process(told, held)]
    return [*found, _counted("processes", *_together([held for held in inside if held.role != CONTROL]))]


def of_process(told: Told, held: Held) -> list[Finding]:
    """Memory, descriptors, threads and CPU of one process."""
    return [
        _memory(told, held),
        _counted(f"{held.role}: descriptors", held.times_s, held.descriptors),
        _counted(f"{held.role}: threads", held.times_s, held.threads),
        _cpu(told, held),
    ]


def _memory(told: Told, held: Held) -> Finding:
    trend = growth(held.times_s, [size / MIB for size in held.memory])
    allowed = BY_DESIGN_MIB_PER_MIN.get(held.role, GROWTH_MIB_PER_MIN_MAX)
    a_request = trend.per_min * MIB / 60 / told.sent_per_s
    change = f"{trend.per_min:+8.3f} +- {trend.noise:.3f} a minute ({a_request:+.0f} bytes a request)"
    blind = not trend.noise <= BLIND_MIB_PER_MIN  # also where a block has no sample and nothing is a number
    word = "grows" if trend.above(allowed) else BLIND if blind else "flat"
    return Finding(f"{held.role}: memory, MiB", f"{trend.median:.1f}", change, word)


def _counted(what: str, times_s: Sequence[float], values: Sequence[float]) -> Finding:
    word = "grows" if counts_grow(times_s, values) else "flat"
    return Finding(what, f"{np.median(values):.0f}", f"{min(values):.0f} to {max(values):.0f}", word)


def _cpu(told: Told, held: Held) -> Finding:
    times_s = np.asarray(held.times_s)
    used = np.diff(held.cpu_s) / np.diff(times_s)
    number = np.minimum((times_s[1:] - times_s[0]) / (times_s[-1] - times_s[0]) * BLOCKS, BLOCKS - 1).astype(int)
    parts = [used[number == one] for one in range(BLOCKS)]
    level = [float(part.mean()) if len(part) else np.nan for part in parts]
    minutes = (times_s[-1] - times_s[0]) / BLOCKS / 60
    return _drifting(f"{held.role}: CPU, cores", level, minutes, CPU_DRIFT_MAX, CPU_CORES_MAX, _of_cpu(told))


def of_figures(told: Told) -> list[Finding]:
    """What the Point's own files say of the same time."""
    return [
        _drifting(name, told.by_block[name], told.block_min, share, beside=_beside(told, name))
        for name, share in DRIFT_MAX.items()
    ]


def _beside(told: Told, name: str) -> list[np.ndarray]:
    """What a figure follows: all but CPU, how long the machine lets anybody wait and how fast it is."""
    if name == WORKER_CPU:
        return _of_cpu(told)
    return [told.machine[name] for name in (LATE, WORK) if name in told.machine]


def _of_cpu(told: Told) -> list[np.ndarray]:
    """What CPU follows: how fast the machine is, and how much there is to do."""
    return [*(told.machine[name] for name in (WORK,) if name in told.machine), told.by_block[EVENTS]]


def _drifting(
    what: str,
    level: Sequence[float],
    block_min: float,
    share_max: float,
    least: float = 0.0,
    beside: Sequence[np.ndarray] = (),
) -> Finding:
    trend, minutes = drift(level, block_min, beside), block_min * BLOCKS
    allowed = max(share_max * abs(trend.median), least) / minutes
    falls = what in EITHER_WAY and Trend(-trend.per_min, trend.noise, trend.median).above(allowed)
    change = f"{trend.per_min * minutes:+.3f} +- {trend.noise * minutes:.3f} over the window"
    return Finding(what, f"{trend.median:.3f}", change, "drifts" if falls or trend.above(allowed) else "flat")


def _together(seen: Sequence[Held]) -> tuple[list[float], list[float]]:
    """How many processes there were at each second."""
    seconds, counts = np.unique(np.concatenate([np.floor(held.times_s) for held in seen]), return_counts=True)
    return list(seconds), list(counts)


def control_found(found: Sequence[Finding]) -> bool:
    """Whether the process that leaks on purpose was called a leak."""
    return any(one.bad for one in found if one.what.startswith(f"{CONTROL}: memory"))


def without_control(found: Sequence[Finding]) -> list[Finding]:
    """What is said of the program."""
    return [one for one in found if not one.what.startswith(f"{CONTROL}:")]
