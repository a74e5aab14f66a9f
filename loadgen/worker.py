"""One worker's share of a Point: it reports ready, drives its streams, tells the board once a second, and obeys.

It must not know of Ray, files or verdicts: it is given `tell` (to the board) and `write` (finished rows).
"""

import asyncio
import dataclasses
import gc
import os
import resource
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from loadgen.clocks import Offset, Reading, offset
from loadgen.config import CONCURRENCY_MAX
from loadgen.errors import ConfigError
from loadgen.health import descriptors
from loadgen.plan import slots
from loadgen.run import BOARD_SILENCE_S_MAX, Run, Tell, Write, call, result
from loadgen.shard import Shard, api_key, poll_s, url
from loadgen.stream import exchange, session
from loadgen.trace import Limits, Trace
from server import dumps

__all__ = ["BOARD_SILENCE_S_MAX", "Limits", "Shard", "drive"]

# Exchanges that go well leave no cycles behind, and one look at all that is in flight takes tens of milliseconds; a
# million objects more than there were are some hundred megabytes of those that did not.
COLLECT_AT = (1_000_000, 1000, 1000)
DESCRIPTORS_SPARE = 32  # for what a worker opens beside its connections: names looked up, rows, /proc
DESCRIPTORS_USED_MAX = 0.75  # of the limit, where nobody bounds the requests in flight: above 80 % it is not believed
NS = 1_000_000_000
READINGS = 8  # of another host's clock before the start, the last ones READING_PAUSE_S apart
READING_PAUSE_S = 0.01


async def drive(shard: Shard, tell: Tell, write: Write, clock: Callable[[], int] = time.monotonic_ns) -> dict[str, Any]:
    """Drives one worker's streams until the board says stop; returns the counts and the reason of the end.

    `tell` is called with one dict a second and answers {"go", "window"}; `write` is handed rows with every column of
    IDENTITY and REQUEST. `clock` is the monotonic clock of the stamps (ns). Raises ConfigError before anything is sent
    where the key or descriptors are missing, and what `write` raises.
    """
    dumps.none_of_us()
    key = api_key(shard.api_key_env)
    addresses = [url(base_url, shard.api) for base_url in shard.base_urls]
    shard = dataclasses.replace(shard, in_flight_max=_in_flight_max(shard))
    collecting = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is here now lives as long as the worker: no collection needs to look at it
    gc.set_threshold(*COLLECT_AT)
    try:
        async with session(shard.limits, shard.tls, key) as http:
            await http.find(addresses)
            start_utc_ns, apart, reason = await _ready(shard, tell)
            if start_utc_ns is None:
                return result(shard, reason)
            start_ns = start_utc_ns - apart.ahead_ns - (time.time_ns() - clock())
            begun = {**shard.identity, "started_at": datetime.fromtimestamp(start_utc_ns / NS, UTC)}
            shard = dataclasses.replace(shard, identity=begun)

            async def ask(place: int, headers: dict[str, str], body: bytes, trace: Trace) -> Trace:
                return await exchange(http, addresses[place], headers, body, shard.limits, shard.api, trace)

            done = await Run(shard, ask, tell, write, clock, start_ns, key).whole()
            return {**done, "clock_ahead_ns": apart.ahead_ns, "clock_rtt_ns": apart.rtt_ns}
    finally:
        gc.set_threshold(*collecting)
        gc.unfreeze()


def _in_flight_max(shard: Shard) -> int:
    """How many requests of the shard may be in flight at once; as many files may be open then."""
    if shard.concurrency is not None:
        streams = len(slots(shard.concurrency, shard.workers, shard.worker))
        _allow_files(streams)
        return streams
    _, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (high, high))
    if high == resource.RLIM_INFINITY:
        return CONCURRENCY_MAX
    spare = int(DESCRIPTORS_USED_MAX * high) - descriptors() - DESCRIPTORS_SPARE
    return max(1, min(spare, CONCURRENCY_MAX))


def _allow_files(streams: int) -> None:
    """Raises the process's limit of open files where `streams` connections need it. ConfigError where it may not."""
    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = descriptors() + streams + DESCRIPTORS_SPARE
    if need > high != resource.RLIM_INFINITY:
        raise ConfigError(
            f"{streams} streams of one worker need {need} open files, of which {socket.gethostname()} allows {high}; "
            "raise ulimit -n, or use more workers (cluster.workers) or a lower load.concurrency or load.max_in_flight"
        )
    if 2 * need > low != resource.RLIM_INFINITY:  # a process near its limit is not believed
        resource.setrlimit(resource.RLIMIT_NOFILE, (high, high))


async def _ready(shard: Shard, tell: Tell) -> tuple[int | None, Offset, str]:
    """The start on the board's wall clock (ns) and how far that is ahead of ours; or None and why there is none."""
    here = socket.gethostname()
    beat = {"worker": shard.worker, "phase": "ready", "host": here, "pid": os.getpid()}
    readings: list[Reading] = []
    while True:
        before_ns = time.time_ns()
        answer, trouble = await call(tell, beat)
        if answer is None:
            return None, Offset(), trouble
        if answer.get("go") is False:
            return None, Offset(), "stopped before the start"
        readings.append(Reading(before_ns, answer.get("now_utc_ns", before_ns), time.time_ns()))
        start_utc_ns, same = answer.get("start_utc_ns"), answer.get("host", here) == here
        if start_utc_ns is not None and (same or len(readings) >= READINGS):
            return start_utc_ns, offset(readings, same), ""
        await asyncio.sleep(poll_s(shard.workers) if start_utc_ns is None else READING_PAUSE_S)
