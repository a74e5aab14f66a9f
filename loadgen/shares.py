"""The profile of a Point as lines for a person: whose time the steps are, by phase and kind of work.

Owns wording; makes no numbers of its own.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from loadgen.words import figure, many, percent

UNMATCHED_SHOWN_MIN = 0.01
CYCLES = {"verify": "verify cycle", "decode": "decode step"}
KINDS = {"communication": "communication", "attention": "attention", "matrix": "matrix work", "other": "other"}
WORK = {"gpu": "what the GPU's streams did, by its duration", "cpu": "torch's operators on the CPU, by their own time"}


def lines(level: str, profile: Mapping[str, Any]) -> Iterator[str]:
    """One sentence with the target's share, a table, what no rule matched, and where the trace lies."""
    if profile["trace"] is None:
        yield f"profile at {level}: no trace came: {profile['why']}"
        return
    forward = profile["forward"]
    cycle = CYCLES.get(forward, "step")
    steps = ", ".join(many(count, f"{name} forward") for name, count in profile["steps"].items() if count)
    yield f"profile at {level}, after its window ({steps or 'no forward that is known'}; {WORK[profile['device']]}):"
    if forward:
        yield f"the {forward} forward is {percent(profile['cycle'][forward])} of the {cycle}"
    yield from _table(profile, cycle)
    yield f"busy {figure(profile['busy_ms'])} ms of {figure(profile['span_ms'])} ms; trace: {profile['trace']}"
    yield _unmatched(profile)


def _table(profile: Mapping[str, Any], cycle: str) -> Iterator[str]:
    yield f"{'':<18}{'share':>8}" + "".join(f"  {word}" for word in KINDS.values())
    rows = [(phase, share, profile["kinds_by_phase"][phase]) for phase, share in profile["cycle"].items()]
    for name, share, kinds in [(f"the {cycle}", 1.0, profile["kinds"]), *rows]:
        yield _row(name, share, kinds)
    if share := profile["phases"].get("prefill"):
        yield _row("prefill (of all)", share, profile["kinds_by_phase"]["prefill"])


def _row(name: str, share: float, kinds: Mapping[str, float | None]) -> str:
    return f"{name:<18}{percent(share):>8}" + "".join(
        f"{percent(kinds[kind]):>{len(word) + 2}}" for kind, word in KINDS.items()
    )


def _unmatched(profile: Mapping[str, Any]) -> str:
    """Nothing hides: what is not named here is counted."""
    named = [one for one in profile["unmatched"] if one["share"] >= UNMATCHED_SHOWN_MIN]
    small = sum(one["share"] for one in profile["unmatched"][len(named) :]) + (profile["unmatched_more"]["share"] or 0)
    count = len(profile["unmatched"]) - len(named) + profile["unmatched_more"]["names"]
    each = [f"{one['name']} {percent(one['share'])}" for one in named]
    rest = [f"{many(count, 'further name')} {percent(small)}"] if count else []
    return f"other is: {', '.join([*each, *rest]) or 'nothing'}"
