"""How much a command will write: its requests, their tokens and the bytes of both, by its plan.

A guess on the safe side, for the look at a machine before the start. Never part of a result, and not of how files are
written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadgen import prompts, replay, window
from loadgen.arrivals import Replay
from loadgen.config import Config, Level
from loadgen.forecast import Durations, Ladder, in_flight

ROW_BYTES = 4500  # a request without its events: 4 300 in a worker's stream where it is appended alone, 100 in Parquet
TOKEN_BYTES = 20  # an event each: 12 in the stream, 6 in Parquet
TEXT_BYTES = 12  # a token's characters, where answers are kept: in a worker's stream and in text.jsonl
SECOND_BYTES = 4000  # a worker's row of health, the server's metrics and its log
UNKNOWN_TOKEN_S = 0.01  # of a stream, where no profile tells: quicker than most servers, so rather too many requests


@dataclass(frozen=True)
class Volume:
    """What will be written, about."""

    requests: int = 0
    tokens: int = 0
    size: int = 0  # bytes


def together(configs: Sequence[Config], ladders: Iterable[Ladder]) -> Volume:
    """Of all levels that are left to measure."""
    parts = [
        of_level(conf, level, one.known) for conf, one in zip(configs, ladders, strict=True) for level in one.levels
    ]
    return Volume(
        *(sum(column) for column in zip(*((one.requests, one.tokens, one.size) for one in parts), strict=True))
    )


def of_level(conf: Config, asked: Level, known: Durations | None) -> Volume:
    """Of one level; `known` gives a request's duration where a profile tells it."""
    level, each = replay.resolved(conf.load, asked), prompts.output_lengths(conf.workload).typical
    streams = level.concurrency or (in_flight(known, level.rate or 0.0) if known else 1)
    duration_s = known(streams) if known else UNKNOWN_TOKEN_S * each
    seconds = window.level_s(conf.load, level, duration_s)
    requests = level.requests
    if requests is None:
        rate = level.concurrency / duration_s if level.concurrency else level.rate or 0.0
        requests = int(rate * seconds) + streams
    come = replay.arrivals(conf.load, asked, 0)
    tokens = int(sum(come.output_tokens)) if isinstance(come, Replay) else requests * each
    token_bytes = TOKEN_BYTES + (TEXT_BYTES if conf.output.text else 0)
    size = requests * ROW_BYTES + tokens * token_bytes + int(seconds * (conf.cluster.workers or 1) * SECOND_BYTES)
    return Volume(requests, tokens, size)
