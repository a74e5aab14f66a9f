"""Trace files: who came when, and how long questions and answers were.

Reads Mooncake's JSON lines and BurstGPT's CSV, gives a Replay and warnings. Knows nothing of prompts and clocks.
"""

import csv
import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from loadgen.arrivals import NS_PER_S, Process, Replay
from loadgen.config import LEVEL_S_MAX, Level, Load, levels
from loadgen.errors import ConfigError

TOKENS_MAX = 1_000_000  # of one question or answer; more is no length but a broken line
ROW = np.dtype([("at_s", "f8"), ("input_tokens", "i4"), ("output_tokens", "i4")])  # a Came
COLUMNS = {
    "json": ("timestamp", "input_length", "output_length"),  # milliseconds, tokens, tokens
    "csv": ("Timestamp", "Request tokens", "Response tokens"),  # seconds, tokens, tokens
}


class Came(NamedTuple):
    """One request of a trace."""

    at_s: float
    input_tokens: int
    output_tokens: int


@functools.cache
def load(name: str) -> tuple[Replay, tuple[str, ...]]:
    """The trace in a file, times since its first request, and warnings. Raises ConfigError where it cannot be used."""
    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as file:
            came = np.fromiter(_read(file, name), dtype=ROW)  # a month of requests fits
    except csv.Error as error:
        raise ConfigError(f"load.trace={name} is no CSV ({error}); correct the file") from None
    except OSError as error:
        raise ConfigError(f"load.trace={name} cannot be read ({error.strerror}); name a readable file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"load.trace={name} is not UTF-8 text; unpack or convert it") from None
    kept = came[came["output_tokens"] > 0]
    if not len(kept):
        raise ConfigError(
            f"load.trace={name} holds no request with an answer; give a trace with output lengths above 0"
        )
    left_out = len(came) - len(kept)
    warnings = [f"load.trace={name}: {left_out} requests without an answer were left out"] if left_out else []
    # Floats until they are known to be no longer than LEVEL_S_MAX.
    at_ns = np.rint((kept["at_s"] - kept["at_s"][0]) * NS_PER_S)
    return Replay(at_ns, kept["input_tokens"], kept["output_tokens"]), tuple(warnings)


def resolved(asked: Load, level: Level) -> Level:
    """The level with what a trace says of it: how many requests, and their mean rate."""
    if asked.trace is None:
        return level
    replay = _chosen(asked, level)
    return dataclasses.replace(level, requests=len(replay.at_ns), rate=replay.rate)


def arrivals(asked: Load, level: Level, seed: int) -> Process | Replay | None:
    """When the level's requests come; None in closed loop. Raises ConfigError where the trace cannot be used."""
    if asked.trace is not None:
        return _chosen(asked, level)
    return None if level.rate is None else Process(level.rate, asked.arrival, asked.burstiness, seed)


def trace_warnings(asked: Load) -> tuple[str, ...]:
    """Warnings about the trace, if one is asked for. Raises ConfigError where it cannot be used."""
    if asked.trace is None:
        return ()
    replay, warnings = load(asked.trace)
    for level in levels(asked):
        if level.requests is not None and level.requests > len(replay.at_ns):
            there = f"the trace holds {len(replay.at_ns)}"
            raise ConfigError(f"load.requests={level.requests}: {there}; ask for at most so many, or leave it out")
        _check_span(asked, level)
    return warnings


def _check_span(asked: Load, level: Level) -> None:
    """Refuse what lasts no time, or longer than anybody waits (and than stamps in nanoseconds can tell)."""
    chosen = load(str(asked.trace))[0].at_ns[: level.requests]
    span_s = float(chosen[-1]) / NS_PER_S / asked.trace_speed
    if span_s * NS_PER_S < 1:
        raise ConfigError(
            f"load.trace={asked.trace}: all its requests come at once, which is no rate; replay more of them, or slower"
        )
    if span_s > LEVEL_S_MAX:
        raise ConfigError(
            f"load.trace={asked.trace} takes {span_s / 3600:.3g} hours, at most {LEVEL_S_MAX / 3600:.0f} can be "
            "replayed: ask for its first ones by load.requests=N, or raise load.trace_speed"
        )


def _chosen(asked: Load, level: Level) -> Replay:
    assert asked.trace is not None
    return load(asked.trace)[0].first(level.requests, asked.trace_speed)


def digest(name: str) -> str:
    """A hash of the lengths in a trace: they decide what is asked."""
    replay, _ = load(name)
    return hashlib.sha256(replay.input_tokens.tobytes() + replay.output_tokens.tobytes()).hexdigest()


def _read(file: TextIO, name: str) -> Iterator[Came]:
    """The requests in order of the file, which must be the order of their times."""
    first = file.readline()
    file.seek(0)
    parse = _json if first.lstrip().startswith("{") else _csv
    before_s = 0.0
    for number, came in parse(file, name):
        where = f"load.trace={name}, line {number}"
        if not math.isfinite(came.at_s) or came.at_s < 0:
            raise ConfigError(f"{where}: the time {came.at_s:g} is no time since a start; correct the line")
        if not (0 <= came.input_tokens <= TOKENS_MAX and 0 <= came.output_tokens <= TOKENS_MAX):
            raise ConfigError(f"{where}: lengths are 0 to {TOKENS_MAX} tokens; correct the line")
        if came.at_s < before_s:
            raise ConfigError(f"{where}: it came before the line above it; sort the file by time")
        before_s = came.at_s
        yield came


def _json(lines: Iterable[str], name: str) -> Iterator[tuple[int, Came]]:
    at, asked, answered = COLUMNS["json"]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            yield number, Came(float(record[at]) / 1000, int(record[asked]), int(record[answered]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise _unlike(name, number, COLUMNS["json"]) from None


def _csv(lines: Iterable[str], name: str) -> Iterator[tuple[int, Came]]:
    at, asked, answered = COLUMNS["csv"]
    rows = csv.DictReader(lines)
    if not {at, asked, answered} <= set(rows.fieldnames or ()):
        raise _unlike(name, 1, COLUMNS["csv"])
    for row in rows:
        number = rows.line_num
        try:
            yield number, Came(float(row[at]), int(float(row[asked])), int(float(row[answered])))
        except (ValueError, TypeError, OverflowError):
            raise _unlike(name, number, COLUMNS["csv"]) from None


def _unlike(name: str, number: int, columns: tuple[str, ...]) -> ConfigError:
    if columns is COLUMNS["csv"] and number == 1:
        shapes = f"JSON lines with {', '.join(COLUMNS['json'])} or CSV with {', '.join(columns)}"
        return ConfigError(f"load.trace={name} is no trace that is known: give {shapes}")
    return ConfigError(f"load.trace={name}, line {number}: {', '.join(columns)} must be numbers; correct the line")
