"""What the value of a flag may be, for the flags that are read here: one of the wrong kind is refused by its name.

Pure. What a flag does is not its business; one that only the server reads passes if it fits a command line.
"""

import math
from typing import Any

# flag -> the least whole number that it may be
WHOLE: dict[str, int] = {
    "speculative_num_steps": 0,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 1,
    **dict.fromkeys(("max_running_requests", "max_num_seqs", "cuda_graph_max_bs", "cuda_graph_max_bs_decode"), 1),
    **dict.fromkeys(("page_size", "stream_interval", "decode_log_interval", "context_length", "max_model_len"), 1),
    **dict.fromkeys(("dp_size", "data_parallel_size", "pp_size", "pipeline_parallel_size"), 1),
    **dict.fromkeys(("ep_size", "expert_parallel_size", "ep"), 1),
}
# flag -> what its number must lie between, the lower end excluded
REAL: dict[str, tuple[float, float]] = {
    "mem_fraction_static": (0, 1),
    "hicache_ratio": (0, math.inf),
    "hicache_size": (-1, math.inf),  # 0 means by hicache_ratio
}
TEXTS = (
    *("speculative_algorithm", "speculative_draft_model_path", "speculative_draft_model", "load_format", "device"),
    *("moe_a2a_backend", "attention_backend", "prefill_attention_backend", "decode_attention_backend"),
)


def refused(name: str, value: Any) -> str | None:
    """Why the flag cannot have this value, and what to give instead; None where it can."""
    if value is None:
        return None
    if value == "" or (isinstance(value, list | tuple) and not value):
        return "is empty; give a value, or null to leave the flag out"
    for item in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(item, str | int | float | None) or (isinstance(item, float) and not math.isfinite(item)):
            return "fits no command line; give a text, a finite number, true, false or null"
        if "\0" in str(item):
            return "holds a NUL character, which no command line can carry; remove it"
    wanted = _wanted(name, value)
    return f"is no value for it; give {wanted}, or null to leave the flag out" if wanted else None


def _wanted(name: str, value: Any) -> str | None:
    """What it would have to be; None where it is."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in WHOLE and not (number and value == int(value) and value >= WHOLE[name]):
        return f"a whole number of {WHOLE[name]} or more"
    if name in REAL and not (number and REAL[name][0] < value <= REAL[name][1]):
        low, high = REAL[name]
        return f"a number above {low:g}" + (f" and up to {high:g}" if high < math.inf else "")
    if name in TEXTS and not isinstance(value, str) and value is not False:
        return "a text"
    return None
