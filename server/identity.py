"""Whether the server that answers now is the one that answered before, by what both told of themselves.

Pure. For a server of ours its process and seed say it; of another one only what it tells can.
"""

from collections.abc import Mapping
from typing import Any

from server.claims import CAP, DECISIVE, OFF, SHARED
from server.proof import Contradiction

Info = Mapping[str, Any]

# What no running server changes: with another value it is another start, or another server.
LIFE = ("random_seed", "version", "launch_command", "model_path")
# What a server keeps for its life unless somebody reconfigures it.
KEPT = ("mem_fraction_static", "chunked_prefill_size", "max_total_num_tokens", "dp_size", "ep_size", "kv_cache_dtype")


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
