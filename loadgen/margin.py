"""One finding of a verdict: what was measured, the limit, and both in words.

Pure. Owns the wording of measures and limits; knows no rule and no limit of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Measure = float | int | str | None


@dataclass(frozen=True)
class Finding:
    """One rule's result. `ok` None: shown, not judged."""

    rule: str
    measured: Measure
    limit: Measure
    unit: str  # share (of 1), share/min, ms, s or none
    ok: bool | None
    advice: str
    at_least: bool = False  # the limit is the least, not the most
    note: str = ""  # follows the limit
    log_tail: str = ""  # the last lines of the log of a server that failed


def text(measure: Measure, unit: str) -> str:
    """A measured value or limit with its unit, shares in per cent."""
    if measure is None:
        return "unknown"
    if isinstance(measure, str):
        return measure
    if unit.startswith("share"):
        return f"{_digits(100 * measure)} %{unit.removeprefix('share')}"
    return f"{_digits(measure)} {unit}".rstrip()


def _digits(value: float) -> str:
    """Three digits, or all of the whole part: no power of ten."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


# Where a rule's name is no good name for what it measures.
SHOWN_AS = {
    "steady": "halves differ by",
    "mser5_cut": "MSER-5 cut",
    "worker_cpu_p95": "worker CPU p95",
    "capacity_share": "capacity",
    "workers_apart": "TTFT of the workers apart by",
    "in_step": "streams in step",
    "gc_pause_max": "GC pause max",
    "overload": "requests piled up",
    "server_died": "server died:",
    "server_hung": "server hung:",
    "worker_lost": "worker lost:",
    "storage": "storage:",
}


def name_of(rule: str) -> str:
    """A rule's measure in words."""
    return SHOWN_AS.get(rule, rule.replace("_", " "))


def margin(finding: Mapping[str, Any], where: str = "") -> str:
    """One finding in its JSON form in words: "loop lag p99 0.4 ms (limit 5 ms)"; `where` follows the measure."""
    unit, limit = finding.get("unit", ""), finding.get("limit")
    shown = f"{name_of(finding['rule'])} {text(finding.get('measured'), unit)}{where}"
    if limit is None:
        return shown
    shown_only = "; not judged" if finding.get("ok", False) is None else ""
    bound = "at least" if finding.get("at_least") else "limit" if isinstance(limit, int | float) else "asked"
    return f"{shown} ({bound} {text(limit, unit)}{finding.get('note', '')}{shown_only})"


def in_words(reason: Mapping[str, Any]) -> str:
    """A reason of a verdict, or of a Point that could not be begun."""
    return margin(reason) if "unit" in reason else f"{reason['rule']}: {reason['measured']}"


def set_in(log_tail: str) -> str:
    """The end of a log, each line set in, below the line that it belongs to."""
    return "".join(f"\n    {line}" for line in log_tail.splitlines())
