"""Objectives: what was promised of the requests, whether a Point shows that it is kept, and the goodput that kept it.

Pure. Owns the rule of met, missed and undecided, and its words. It is MLPerf's: as many requests as it takes to say
with 99 % confidence that at most 1 % are over the limit (459 with none over, 662 with one). A request that failed is
over every limit. Requests of one run depend on each other, so the numbers are the least that it takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr

from loadgen import pairing
from loadgen.config import Slo
from loadgen.pairing import Point
from loadgen.record import Outcome
from loadgen.series import Columns, is_open, request_tokens
from loadgen.stats import share_bounds
from loadgen.summary import NS_PER_MS, tpot_ms
from loadgen.verdict import VALID
from loadgen.words import figure, many

OVER_SHARE_MAX = 0.01  # of the requests may be over the limit of a p99
CONFIDENCE = 0.99
KEYS = ("ttft_p99_ms", "tpot_p99_ms")
TTFT = KEYS[0]
MET = "met"
WORDS = {True: MET, None: "undecided", False: "missed"}


@dataclass(frozen=True)
class Standing:
    """How a Point stands to its objectives: kept or not, by what was measured; `proven` where that is sure."""

    kept: bool
    proven: bool
    why: str  # the requests behind it, in words


def asked(slo: Slo) -> dict[str, float]:
    """The limits that were given, milliseconds by key."""
    return {key: value for key in KEYS if (value := getattr(slo, key)) is not None}


def in_words_of(limits: Mapping[str, float], opened: bool) -> str:
    """The objectives for a person; in open loop the first token counts from when its request was due."""
    since = "TTFT since planned" if opened else "TTFT"
    names = {KEYS[0]: f"{since} p99", KEYS[1]: "time per token p99"}
    return " and ".join(f"{names[key]} <= {limit:g} ms" for key, limit in limits.items())


def figures(slo: Slo, cols: Columns, summarized: Mapping[str, Any], overloaded: bool) -> dict[str, Any]:
    """What a Point's summary says of its objectives and its goodput; nothing where none was given.

    Goodput is of the requests sent in the window (of a whole run: of all) that ended well and kept every limit, a
    second. `overloaded`: the server did not keep up, so no latency has a limit that it keeps, and there is no goodput:
    both would depend on the window's length.
    """
    limits = asked(slo)
    if not limits:
        return {}
    counted = np.full(len(cols["outcome"]), True) if summarized["whole_run"] else cols["in_window"]
    sent = counted & (cols["outcome"] != Outcome.UNSENT)
    kept = {key: _kept(cols, key, limit)[sent] for key, limit in limits.items()}
    told = {key: _told(key, limit, kept[key], summarized, is_open(cols), overloaded) for key, limit in limits.items()}
    good, length_s = int(np.logical_and.reduce(list(kept.values())).sum()), summarized["measured_s"]
    known = not overloaded and length_s > 0
    return {
        "slo": {"met": _all_met([one["met"] for one in told.values()]), "confidence": CONFIDENCE, **told},
        "goodput_requests_per_s": good / length_s if known else None,
        "goodput_share": good / int(sent.sum()) if known and sent.any() else None,
    }


def _kept(cols: Columns, key: str, limit_ms: float) -> np.ndarray:
    """Which requests ended well and within the limit; an answer of one event made nobody wait between tokens."""
    if key == TTFT:
        since = cols["planned_ns"] if is_open(cols) else cols["sent_ns"]
        values = (cols["first_token_ns"] - since.astype(np.float64)) / NS_PER_MS
    else:
        values = tpot_ms(cols, *request_tokens(cols))
    return (cols["outcome"] == Outcome.OK) & ~(values > limit_ms)


def _told(
    key: str, limit_ms: float, kept: np.ndarray, summarized: Mapping[str, Any], opened: bool, overloaded: bool
) -> dict[str, Any]:
    """One objective: the limit, the measured p99, how many requests were over, and what that says."""
    name = "tpot_ms" if key != TTFT else "ttft_planned_ms" if opened else "ttft_ms"
    over, n = int((~kept).sum()), len(kept)
    bounds = share_bounds(over, n, CONFIDENCE) if n else None
    return {
        "limit_ms": limit_ms,
        "of": name,
        "p99_ms": summarized[name]["p99"],
        "interval_ms": (summarized["intervals"].get(name) or {}).get("p99"),
        "requests": n,
        "over": over,
        "over_share": over / n if n else None,
        "over_share_bounds": list(bounds) if bounds else None,
        "met": False if overloaded else _met(bounds),
    }


def _met(bounds: tuple[float, float] | None) -> bool | None:
    """True or False where the requests are enough to say so, None where they are too few."""
    if bounds is None or bounds[0] <= OVER_SHARE_MAX < bounds[1]:
        return None
    return bounds[1] <= OVER_SHARE_MAX


def _all_met(each: Sequence[bool | None]) -> bool | None:
    return False if False in each else None if None in each else True


def needed(over: int) -> int:
    """The fewest requests that prove a p99 with so many of them over its limit."""
    counts = np.arange(over + 1, 200 * over + 1000)
    return int(counts[np.argmax(bdtr(over, counts, OVER_SHARE_MAX) <= 1 - CONFIDENCE)])


def standing(slo: Mapping[str, Any]) -> Standing:
    """A Point's `slo`: where its requests are too few to be sure, by the share of them that was over."""
    each = {key: slo[key] for key in KEYS if key in slo}
    worst = max(each.values(), key=lambda one: (one["met"] is False, one["met"] is None, one["over_share"] or 0.0))
    kept = all(one["met"] or (one["met"] is None and _within(one)) for one in each.values())
    return Standing(kept, slo["met"] is not None, _why(worst))


def _within(one: Mapping[str, Any]) -> bool:
    return one["over_share"] is not None and one["over_share"] <= OVER_SHARE_MAX


def _why(one: Mapping[str, Any]) -> str:
    """The requests of the objective that decides, and where they are too few how many it takes."""
    told = f"{one['over']} of {many(one['requests'], 'request')} over"
    return f"{told}, {needed(one['over'])} prove it" if one["met"] is None and _within(one) else told


def lines(points: Sequence[Point]) -> Iterator[str]:
    """For each set of objectives one line that says at which VALID levels it was met, missed or undecided."""
    groups: dict[str, dict[str, list[str]]] = {}
    for point in sorted(points, key=_place):
        slo = _slo(point)
        if not slo or point["verdict"]["status"] != VALID:
            continue
        opened, word = point["load"].get("rate") is not None, WORDS[slo["met"]]
        words = f"{in_words_of(_limits(slo), opened)} by {'rate' if opened else 'concurrency'}"
        why = "" if word == MET else f" ({standing(slo).why})"
        groups.setdefault(words, {}).setdefault(word, []).append(f"{_place(point):g}{why}")
    for words, found in groups.items():
        told = [f"{word} at {', '.join(found[word])}" for word in WORDS.values() if word in found]
        yield f"SLO {words}: {' · '.join(told)}"


def _place(point: Point) -> float:
    return pairing.place_of(pairing.level_of(point))


def goodput(summary: Mapping[str, Any]) -> str:
    """Goodput for a table: requests a second and the share that kept the objectives; empty where none was given."""
    if "slo" not in summary:
        return ""
    share = summary["goodput_share"]
    return figure(summary["goodput_requests_per_s"]) + ("" if share is None else f" ({100 * share:.0f} %)")


def comparable(points: Sequence[Point]) -> list[Point]:
    """The Points, without goodput where they have several sets of objectives: none of those is another's measure."""
    if len(_promises(points)) < 2:
        return list(points)
    hidden = {"goodput_requests_per_s": None, "goodput_share": None}
    return [{**point, "summary": {**(point.get("summary") or {}), **hidden}} for point in points]


def cautions(points: Sequence[Point]) -> Iterator[str]:
    """That goodput is missing, and why."""
    if len(found := _promises(points)) > 1:
        yield f"no goodput is compared: the objectives differ ({'; '.join(sorted(found))})"


def _promises(points: Sequence[Point]) -> set[str]:
    slos = [slo for point in points if point["verdict"]["status"] == VALID and (slo := _slo(point))]
    return {in_words_of(_limits(slo), False) for slo in slos}


def _limits(slo: Mapping[str, Any]) -> dict[str, float]:
    return {key: slo[key]["limit_ms"] for key in KEYS if key in slo}


def _slo(point: Point) -> Mapping[str, Any] | None:
    return (point.get("summary") or {}).get("slo")
