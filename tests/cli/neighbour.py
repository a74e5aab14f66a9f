"""What a busy neighbour of the test machine, or a machine that stops for a moment, does to a Point: no fault of ours.

Of rules and their measures only: what was asked of a Point, and what else it must not break, is each test's own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

CLIENT_RULES = {"loop_lag_p99", "loop_lag_max", "refill_p99", "refill_p90", "worker_cpu_p95", "gc_pause_max"}
# Each is a time in which streams stood empty: a client that was kept from refilling them holds fewer in flight.
EMPTY_STREAMS = {"loop_lag_max", "refill_p99", "refill_p90"}
NEXT_EVENT_S = 0.1  # behind a pause: a step of the server's, and the turns of all others that waited


def of_the_server(reasons: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The reasons against one Point that a busy machine does not explain.

    A silence no longer than the client's own pause says nothing of the server, nor do streams that this client left
    empty; without such a pause both count.
    """
    told = list(reasons)
    rules = {one["rule"] for one in told}
    excused = CLIENT_RULES | ({"concurrency_held"} if rules & EMPTY_STREAMS else set())
    pauses_ms = [one["measured"] or 0.0 for one in told if one["rule"] == "loop_lag_max"]
    silent_s = max(pauses_ms) / 1000 + NEXT_EVENT_S if pauses_ms else 0.0
    return [
        one
        for one in told
        if one["rule"] not in excused and not (one["rule"] == "silence" and one["measured"] <= silent_s)
    ]
