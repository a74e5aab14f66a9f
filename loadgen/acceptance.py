"""How many tokens a verify step gave, how long one took, and how far the two ways of knowing it agree.

Pure. Owns which source an accept length is taken from; knows nothing of files. The definition is everywhere tokens
over verify steps, without the token that the prefill gives.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadgen.counters import Counted, accept_length
from loadgen.record import Outcome
from loadgen.series import Columns

NS_PER_MS = 1e6
DISAGREEMENT_MAX = 0.01  # beyond, requests and counters do not count the same
UNDRAFTED_SHARE_MIN = 0.05  # the gauge shows the level before until the first decode log
ROUNDING = 1e-6
AVERAGES = ("server_average", "gauge")  # sources that tell of no number of steps


@dataclass(frozen=True)
class Speculation:
    """What the server tells of its speculation beside the requests' own counts."""

    counted: Counted = field(default_factory=Counted)
    server_average: float | None = None  # of all since the cache was emptied before the Point
    length_max: float | None = None  # draft steps + 1: no verify step can give more


def length_max(info: Mapping[str, Any], args: Mapping[str, Any], counted: Counted) -> float | None:
    """The most tokens that one verify step can give, by what the server tells or was started with; None if unknown."""
    steps = [info.get("speculative_num_steps"), counted.draft_steps_max]
    known = [float(step) for step in steps if step]
    if known:
        return max(known) + 1
    if drafts := info.get("speculative_num_draft_tokens"):  # NGRAM has no steps; its root is the last token
        return float(drafts)
    asked = args.get("speculative_config")
    asked = json.loads(asked) if isinstance(asked, str) and asked.startswith("{") else asked
    drafts = asked.get("num_speculative_tokens") if isinstance(asked, Mapping) else None
    return float(drafts) + 1 if drafts else None


def acceptance(cols: Columns, good: np.ndarray, span_ns: tuple[float, float], told: Speculation) -> dict[str, Any]:
    """Accept length with its source, the counters' beside it, and the verify cycle; None where nothing tells it.

    The order of sources: each request's own verify steps; the counters' rise; the server's average since the flush; the
    mean of its gauge. Where adaptive speculation drafted nothing at all there is no accept length to speak of.
    """
    finished = cols["outcome"] == Outcome.OK
    by_counters = accept_length(told.counted.span)
    sources = {
        "requests": accept_of(cols, good),
        "counters": by_counters,
        "server_average": told.server_average,
        "gauge": told.counted.accept_gauge,
    }
    idle = told.counted.zero_steps_share
    source = None if idle == 1 else next((name for name, value in sources.items() if value is not None), None)
    length = sources[source] if source else None
    return {
        "accept_length": length,
        "accept_source": source,
        "accept_length_counters": by_counters,
        "accept_length_max": told.length_max,
        "accept_zero_steps_share": idle,
        "accept_of_the_point": {"requests": accept_of(cols, finished), "counters": accept_length(told.counted.point)},
        **_cycle(cols, good, finished, span_ns, told.counted, length if source in AVERAGES else None),
        "server_counters": {
            "how": told.counted.how,
            "measured": dict(told.counted.span),
            "point": dict(told.counted.point),
        },
    }


def accept_of(cols: Columns, rows: np.ndarray) -> float | None:
    """Accept length by the rows that tell their verify steps: (tokens - requests) / steps; prefill gives one each."""
    told = rows & (cols["spec_verify_steps"] > 0) & ~np.isnan(cols["output_tokens"].astype(np.float64))
    steps = float(cols["spec_verify_steps"][told].sum())
    return float(cols["output_tokens"][told].sum() - told.sum()) / steps if steps else None


def verify_cycle_ms(cols: Columns, rows: np.ndarray) -> float | None:
    """Mean time of one verify step of the chosen rows that tell their steps: decode time over steps."""
    told = rows & (cols["spec_verify_steps"] > 0)
    steps = float(cols["spec_verify_steps"][told].sum())
    return _decode_ms(cols, told) / steps if steps else None


def _decode_ms(cols: Columns, rows: np.ndarray) -> float:
    return float(np.nansum((cols["last_token_ns"] - cols["first_token_ns"])[rows])) / NS_PER_MS


def _cycle(
    cols: Columns,
    good: np.ndarray,
    finished: np.ndarray,
    span_ns: tuple[float, float],
    counted: Counted,
    average: float | None,
) -> dict[str, Any]:
    """The verify cycle and what its steps were taken from.

    The counter of verify steps holds a request's when it has ended: so are the rows chosen that it is held against. An
    average accept length stands for as many steps as give the tokens after each request's first.
    """
    ended = finished & (cols["done_ns"] >= span_ns[0]) & (cols["done_ns"] <= span_ns[1])
    tokens = float(np.nansum(cols["output_tokens"][good]) - good.sum())
    found = {
        "requests": verify_cycle_ms(cols, good),
        "counters": _per(_decode_ms(cols, ended), counted.span.get("verify_steps")),
        "accept_length": _per(_decode_ms(cols, good), tokens / average if average else None),
    }
    source = next((name for name, value in found.items() if value is not None), None)
    return {"verify_cycle_ms": found[source] if source else None, "verify_cycle_source": source}


def _per(time_ms: float, steps: float | None) -> float | None:
    return time_ms / steps if steps and time_ms else None


def by_kind(cols: Columns, rows: np.ndarray, tokens_per_chunk: float | None, speculates: bool) -> dict[str, Any]:
    """One kind's accept length and verify cycle; where requests do not tell, its tokens per chunk, so labelled."""
    own = accept_of(cols, rows)
    if own is not None:
        return {"accept_length": own, "accept_source": "requests", "verify_cycle_ms": verify_cycle_ms(cols, rows)}
    stand_in = tokens_per_chunk if speculates else None
    return {
        "accept_length": stand_in,
        "accept_source": "tokens_per_chunk" if stand_in is not None else None,
        "verify_cycle_ms": None,
    }


def caveats(numbers: Mapping[str, Any]) -> Sequence[str]:
    """What speaks against an accept length, in sentences."""
    return [text for text in (_range(numbers), _agreement(numbers), _undrafted(numbers)) if text]


def _range(numbers: Mapping[str, Any]) -> str | None:
    length, most = numbers.get("accept_length"), numbers.get("accept_length_max")
    if length is None or (length >= 1 - ROUNDING and (most is None or length <= most + ROUNDING)):
        return None
    limits = f"1 and {most:g} (draft steps + 1)" if most else "1 and the draft steps + 1"
    return f"the accept length {length:.3f} ({numbers['accept_source']}) cannot be: it lies between {limits}"


def _agreement(numbers: Mapping[str, Any]) -> str | None:
    """Over the whole Point both count the same requests, but for those that only one of them counted."""
    both = numbers.get("accept_of_the_point") or {}
    own, counters = both.get("requests"), both.get("counters")
    if own is None or counters is None:
        return None
    ok = (numbers.get("outcomes") or {}).get(Outcome.OK.value, 0)
    told = numbers["server_counters"]["point"].get("requests", ok)
    apart = abs(told - ok) / max(told, ok, 1)
    if abs(counters / own - 1) <= DISAGREEMENT_MAX + apart:
        return None
    return (
        f"the requests' accept length is {own:.3f}, by the server's counters it is {counters:.3f} over the same Point: "
        "one of them counts something else (other traffic on the server, or another definition)"
    )


def _undrafted(numbers: Mapping[str, Any]) -> str | None:
    share = numbers.get("accept_zero_steps_share")
    if not share or share < UNDRAFTED_SHARE_MIN:
        return None
    if share == 1:
        return "adaptive speculation drafted nothing (0 steps) throughout: there is no accept length"
    return (
        f"adaptive speculation drafted nothing (0 steps) in {100 * share:.0f} % of the samples: those steps give one "
        "token each, so the accept length says less of the draft's quality than of how often it was used"
    )
