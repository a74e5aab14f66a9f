"""The lines below a table of levels that say what the server told beside its answers, where it told it.

Owns wording; makes no numbers of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadgen import shares
from loadgen.config import in_words
from loadgen.words import figure, percent

CACHED_SHOWN_MIN = 0.01
SOURCES = {
    "requests": "each request's own count",
    "counters": "the server's counters",
    "server_average": "the server's average since its cache was emptied",
    "gauge": "the mean of the server's gauge",
    "accept_length": "the accept length",
    "counter": "the GPUs' energy counter",
    "power": "the GPUs' power, once a second",
}
Point = Mapping[str, Any]


def lines(points: Sequence[Point]) -> Iterator[str]:
    """One line for each kind of figure that any of the levels has."""
    told = [(_level(point), point.get("summary") or {}) for point in points]
    sources = dict.fromkeys(_word(numbers["accept_source"]) for _, numbers in told if numbers.get("accept_source"))
    if sources:
        yield f"accept length: tokens a verify step without each request's first, by {', '.join(sources)}"
    late = {level: numbers["censored"] for level, numbers in told if numbers.get("censored")}
    if late:
        shown = _each((level, str(count)) for level, count in late.items())
        yield f"ended by a deadline (load.*_s_max), their times at least that and in no percentile (censored): {shown}"
    cycles = {level: numbers for level, numbers in told if numbers.get("verify_cycle_ms") is not None}
    if cycles:
        by = dict.fromkeys(_word(numbers.get("verify_cycle_source")) for numbers in cycles.values())
        shown = _each((level, f"{figure(numbers['verify_cycle_ms'])} ms") for level, numbers in cycles.items())
        yield f"verify cycle (decode time / verify steps, by {', '.join(by)}): {shown}"
    cached = {level: numbers for level, numbers in told if (numbers.get("cached_share") or 0) >= CACHED_SHOWN_MIN}
    if cached:
        shown = _each((level, percent(numbers["cached_share"])) for level, numbers in cached.items())
        yield f"prompt tokens found in the server's cache: {shown}"
    energy = {level: numbers["gpu"] for level, numbers in told if numbers.get("tokens_per_joule") is not None}
    if energy:
        by = dict.fromkeys(_word(gpu["energy_source"]) for gpu in energy.values())
        each = (
            (level, f"{figure(gpu['tokens_per_joule'])} ({figure(gpu['power_w'])} W)") for level, gpu in energy.items()
        )
        yield f"output tokens a joule of all GPUs, by {', '.join(by)}: {_each(each)}"
    for level, numbers in told:
        if profile := numbers.get("profile"):
            yield from shares.lines(level, profile)


def _level(point: Point) -> str:
    load = point["load"]
    return in_words(load.get("concurrency"), load.get("rate"), load.get("trace"))


def _word(source: str | None) -> str:
    return SOURCES.get(source or "", source or "")


def _each(shown: Iterator[tuple[str, str]]) -> str:
    return ", ".join(f"{value} at {level}" for level, value in shown)
