"""What a server tells of itself, as far as it can be read, and whether it is the one that answered before.

Pure. For a server of ours its process and seed say it; of another one only what it tells can.
"""

import math
from collections.abc import Mapping
from typing import Any

from server.claims import CAP, DECISIVE, OFF, SHARED
from server.proof import Contradiction

Info = Mapping[str, Any]

# What no running server changes: with another value it is another start, or another server.
LIFE = ("random_seed", "version", "launch_command", "model_path")
# What a server keeps for its life unless somebody reconfigures it.
KEPT = ("mem_fraction_static", "chunked_prefill_size", "max_total_num_tokens", "dp_size", "ep_size", "kv_cache_dtype")


# What is reckoned with, and so has to be a number, at the top level and in `internal_states`.
NUMBERS = (
    CAP,
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "tp_size",
    "sim_speed",
    "effective_max_running_requests_per_dp",
    "avg_spec_accept_length",
)


def readable(info: Info) -> dict[str, Any]:
    """What a server tells without what has not the form that it has in SGLang: that is as good as not told.

    Any program may answer at an address that somebody names.
    """
    told = _with_numbers(info)
    phases = told.get("cuda_graph_config")
    if not isinstance(phases, Mapping) or not isinstance(phases.get("decode"), Mapping | None):
        told.pop("cuda_graph_config", None)
    if "internal_states" in told:
        states = told["internal_states"] if isinstance(told["internal_states"], list) else []
        told["internal_states"] = [_with_numbers(state) for state in states if isinstance(state, Mapping)]
    return told


def _with_numbers(told: Info) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in NUMBERS or value is None or _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def replaced(before: Info | None, now: Info | None) -> str | None:
    """Why what answers now is another start than what answered before, or None."""
    for flag in LIFE:
        was, told = _both(flag, before, now)
        if was != told:
            return f"another server answers than at the start: {flag} was {was}, now {told}"
    return None


def changed(before: Info | None, now: Info | None) -> list[Contradiction]:
    """Flags that tell something else than at the start of the same server."""
    advice = "the server was reconfigured between its start and this Point's end; start it anew and leave it alone"
    found = []
    for flag in dict.fromkeys((*KEPT, CAP, *SHARED, *OFF, *DECISIVE)):
        was, told = _both(flag, before, now)
        if was != told:
            found.append(Contradiction(flag, f"{was} as at the start", told, advice))
    return found


def _both(flag: str, before: Info | None, now: Info | None) -> tuple[Any, Any]:
    """Both values where both tell it; twice the same where one does not."""
    if not before or not now or flag not in before or flag not in now:
        return None, None
    return before[flag], now[flag]
