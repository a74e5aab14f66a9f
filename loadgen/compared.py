"""All Points below some folders held against each other, and what that says to a person at a terminal.

What the end of a command needs of a comparison: `compare` adds gates, other shapes and the page.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from loadgen import adaptive, advice, comparison, evidence, formats, pairing, tables
from loadgen.adaptive import Offer
from loadgen.advice import Choice
from loadgen.comparison import Contest
from loadgen.config import BASELINE
from loadgen.errors import ConfigError
from loadgen.evidence import Evidence
from loadgen.paired import MARGIN
from loadgen.report import rendered
from loadgen.verdict import VALID


@dataclass(frozen=True)
class Compared:
    """What a comparison found: evidence, contests, what to run where (by workload and goal), launch.json by variant."""

    evidence: Evidence
    contests: list[Contest]
    chosen: Mapping[tuple[str, str], list[Choice]]
    launches: Mapping[str, Mapping[str, Any]]
    commands: Mapping[str, str]

    def offers(self) -> list[Offer]:
        """Adaptive files that would serve each range of load as the better of two variants does."""
        steps = adaptive.steps_of(self.launches)
        return [found for one in self.contests if (found := adaptive.offer(one, steps))]


def compare(
    roots: Sequence[Path], allow: Sequence[str] = (), baseline: str = BASELINE, margin: float = MARGIN
) -> Compared:
    """Hold all Points below `roots` against each other. Raises ConfigError where what must match does not."""
    found = evidence.read(roots)
    differences = pairing.unlike([point for point in found.points if point["verdict"]["status"] == VALID])
    if unnamed := [one for one in differences if not pairing.allowed(one.name, allow)]:
        raise ConfigError(tables.refused(unnamed))
    named = pairing.labels(found.points, [one.name for one in differences])
    contests = comparison.contests(found.points, evidence.times, named, _baseline(named, baseline), margin)
    chosen = {(one.workload, goal): advice.choices(one, goal) for one in contests for goal in advice.GOALS}
    launches = {row.variant: evidence.launch_of(row.points[-1]) for one in contests for row in one.rows.values()}
    commands = {name: formats.command(one) for name, one in launches.items()}
    return Compared(found, contests, chosen, launches, commands)


def _baseline(named: Mapping[str, str], asked: str) -> str:
    """The name of the baseline; where several values were allowed to differ, the first of its labels.

    Raises ConfigError for a name that was asked for and that no Point has.
    """
    labels = list(dict.fromkeys(named.values()))
    found = next((label for label in labels if label == asked or label.startswith(f"{asked} ")), None)
    if found is None and asked != BASELINE:
        raise ConfigError(f"--baseline {asked}: no Point is of that variant; there are {', '.join(sorted(labels))}")
    return found or asked


def text(found: Compared, missing: bool = True) -> str:
    """The whole comparison for a terminal; `missing`: also what is not VALID, and why."""
    parts = [tables.whole(found.contests, found.chosen, found.commands)]
    parts += [tables.offered(one) for one in found.offers()]
    if missing:
        parts.append(tables.not_valid(found.evidence.points, found.evidence.never))
    return rendered(Group(*parts), sys.stdout)
