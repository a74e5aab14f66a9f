"""What a load may ask: its kind, levels, arrivals and bounds.

Pure. Every refusal is one sentence that says what to change.
"""

import math
from collections.abc import Sequence

from loadgen.bounds import choice, number
from loadgen.config import CONCURRENCY_MAX, LEVEL_S_MAX, Config, Level, Load, levels
from loadgen.errors import ConfigError
from loadgen.window import window_s_min

ARRIVALS = ("constant", "poisson", "gamma")
SEARCHES = ("crossover", "slo")
SEARCH_BLOCKS_MIN = 3  # fewer have no interval
CLOCKED = ("rate", "arrival", "burstiness", "trace", "trace_speed", "max_in_flight")


def check_load(config: Config) -> None:
    """Refuse what cannot arrive, or cannot be meant. Raises ConfigError."""
    load = config.load
    choice(config, "load.kind", ("closed", "open"))
    for key in (
        "window_durations",
        "window_min_s",
        "connect_s_max",
        "first_token_s_max",
        "stall_s_max",
        "total_s_max",
        "window_s",
    ):
        number(config, f"load.{key}", 0, LEVEL_S_MAX, above=True)
    number(config, "load.stagger_s", 0, LEVEL_S_MAX)
    number(config, "load.window_requests", 1, 10_000_000)
    number(config, "load.failed_share_max", 0, 1)
    number(config, "load.short_share_max", 0, 1)
    if load.kind == "open":
        _check_open(config)
    else:
        _refuse_given(load, CLOCKED, "closed", "add load=open")
    if load.requests is not None and load.window_s is not None:
        raise ConfigError("load.requests is a fixed count, which has no window: leave it or load.window_s out")
    for level in levels(load):
        _check_due(load, level)
    _check_search(config)


def _check_search(config: Config) -> None:
    """What a search may ask of one run; what it asks of all runs together is `searching`'s to check."""
    load = config.load
    number(config, "load.search_factor", 1, 1000, above=True)
    number(config, "load.search_blocks_max", SEARCH_BLOCKS_MIN, 1000)
    number(config, "load.search_points_max", 2, 1000)
    number(config, "load.search_s_max", 0, math.inf, above=True)
    if load.search is None:
        for name in ("search_factor", "search_blocks_max", "search_points_max", "search_s_max"):
            if getattr(load, name) != getattr(Load(), name):
                raise ConfigError(f"load.{name} is for a search: add load.search=crossover or slo, or leave it out")
        return
    choice(config, "load.search", SEARCHES)
    if load.trace is not None:
        raise ConfigError(f"load.search={load.search} chooses levels, and a trace is one: leave one of the two out")
    if isinstance(load.requests, list):
        raise ConfigError(f"load.search={load.search} chooses levels itself: give one number as load.requests, or null")
    if load.search == "slo":
        if config.slo.ttft_p99_ms is None and config.slo.tpot_p99_ms is None:
            raise ConfigError("load.search=slo needs an objective: add slo.ttft_p99_ms=200 or slo.tpot_p99_ms=20")
        return
    _check_crossover(config)


def _check_crossover(config: Config) -> None:
    load = config.load
    if load.kind == "open":
        raise ConfigError("load.search=crossover looks for a concurrency, and this load is open: use load=search")
    if len(levels(load)) < 2:
        raise ConfigError("load.search=crossover begins with a ladder: give two levels or more as load.concurrency")
    if config.block:
        raise ConfigError(
            "load.search=crossover adds blocks itself: leave block out (load.search_blocks_max bounds them)"
        )
    if config.engine.kind == "external":
        raise ConfigError(
            "load.search=crossover starts every server anew in each block, and engine=external starts none: "
            "let it start them, or leave load.search out"
        )


def _check_due(load: Load, level: Level) -> None:
    """Refuse a window in which no request is due, and a count that nobody waits for."""
    if level.rate is None:
        return
    length_s = window_s_min(load)
    if level.requests is None and level.rate * length_s < 1:
        raise ConfigError(
            f"load.rate={level.rate:g}: not one request is due in a window of {length_s:g} s; "
            "raise the rate, or make the window longer (load.window_s)"
        )
    if level.requests is not None and level.requests > level.rate * LEVEL_S_MAX:
        raise ConfigError(
            f"load.requests={level.requests} at load.rate={level.rate:g} takes longer than a day: "
            "lower load.requests, or raise the rate"
        )


def _check_open(config: Config) -> None:
    """What only a load that arrives by a clock may ask, and what it may not."""
    load = config.load
    _refuse_given(load, ("concurrency", "stagger_s"), "open", "leave it out, as load=open does")
    _refuse_given(load, ("window_durations", "window_requests", "window_min_s"), "open", "use load.window_s")
    choice(config, "load.arrival", ARRIVALS)
    number(config, "load.burstiness", 0.01, 1000)
    number(config, "load.trace_speed", 0, 1_000_000, above=True)
    number(config, "load.max_in_flight", 1, CONCURRENCY_MAX)
    if load.trace is not None and load.rate is not None:
        raise ConfigError("load.trace gives the times already: leave load.rate out (load.trace_speed=2 replays faster)")
    if load.trace is None and load.rate is None:
        raise ConfigError("load=open needs a rate or a trace: add load.rate=6 (requests a second) or load.trace=FILE")
    if load.trace is None and load.trace_speed != 1:
        raise ConfigError("load.trace_speed is for load.trace=FILE: leave it out, or set load.rate itself")
    if (load.arrival == "gamma") != (load.burstiness is not None):
        raise ConfigError(
            "load.burstiness is the shape of load.arrival=gamma: give both, as load.arrival=gamma load.burstiness=0.5"
        )
    if load.trace is not None and config.workload.output_tokens is not None:
        raise ConfigError("load.trace gives the lengths already: leave workload.output_tokens out")
    if load.trace is not None and (load.arrival != "poisson" or load.window_s is not None):
        key = "load.arrival" if load.arrival != "poisson" else "load.window_s"
        raise ConfigError(f"a trace is replayed as it is: leave {key} out (load.requests=N replays its first N only)")


def _refuse_given(load: Load, names: Sequence[str], kind: str, instead: str) -> None:
    for name in names:
        if getattr(load, name) != getattr(Load(), name):
            other = "open" if kind == "closed" else "closed"
            raise ConfigError(f"load.{name} is for {other} loop, and this load is {kind}: {instead}")


def in_flight_max(conf: Config, level: Level) -> int | None:
    """The most requests at once of a level; None where nothing bounds them."""
    return conf.load.max_in_flight if level.open else level.concurrency
