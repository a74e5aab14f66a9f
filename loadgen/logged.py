"""What the batches that a server logged say against a Point: requests that waited, steps without a graph.

Pure. Owns the limits and the sentences; the counts come from server.batches.
"""

from collections.abc import Mapping
from typing import Any

QUEUED_SHARE_MAX = 0.25  # a request waits for a moment before each prefill; beyond, it waits for a place
EAGER_SHARE_MAX = 0.05
KV_FULL = 0.9  # of the KV cache; SGLang admits no more when what is running may need the rest


def caveats(told: Mapping[str, Any] | None, concurrency: int | None) -> list[str]:
    """What the log shows that the level's numbers do not. `told` is summary.server_log of point.json."""
    if told is None:
        return []
    return [text for text in (_queue(told, concurrency), _eager(told), _retracted(told)) if text]


def _queue(told: Mapping[str, Any], concurrency: int | None) -> str | None:
    most, cap = told["running_max"], told["running_cap"]
    if concurrency is None or told["queued_share"] <= QUEUED_SHARE_MAX or most >= concurrency:
        return None
    usage = told["token_usage_max"]
    if cap is not None and most >= cap:
        why = f"its limit is {cap}: raise max_running_requests"
    elif told["retracted"] or (usage or 0) > KV_FULL:
        full = "its KV cache is full" if usage is None else f"its KV cache is {100 * usage:.0f} % full"
        why = f"{full}: lower the concurrency or the lengths, or give it more memory (mem_fraction_static)"
    else:
        why = "read server.log for what held the others back (chunked prefill, schedule_conservativeness)"
    return (
        f"the server ran at most {most} of {concurrency} requests at once, others waited in "
        f"{100 * told['queued_share']:.0f} % of its decode lines; {why}"
    )


def _eager(told: Mapping[str, Any]) -> str | None:
    if not told["eager_share"] or told["eager_share"] <= EAGER_SHARE_MAX:
        return None
    return (
        f"the server decoded without its CUDA graph in {100 * told['eager_share']:.0f} % of its decode lines, from "
        f"{told['eager_running_min']} running requests on: raise cuda_graph_max_bs to the concurrency"
    )


def _retracted(told: Mapping[str, Any]) -> str | None:
    if not told["retracted"]:
        return None
    return (
        f"the server took back {told['retracted']} running requests because its KV cache was full, and computed them "
        "again later: lower the concurrency or the lengths, or give it more memory (mem_fraction_static)"
    )
