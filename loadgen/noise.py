"""The same server under two names (A/A): how far apart its measurements lie, and so what is no difference.

Pure. Takes a Contest and how each variant is started.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loadgen import comparison
from loadgen.comparison import Contest
from loadgen.config import Level
from loadgen.words import many


@dataclass(frozen=True)
class Noise:
    """How a variant that is the baseline by another name differs from it in throughput, over `pairs` pairs of starts.

    `typical` is the root mean square of the differences and `worst` the largest, both as shares; `level` is the
    worst's.
    """

    variant: str
    typical: float
    worst: float
    level: Level
    pairs: int

    @property
    def words(self) -> str:
        """One line for a person."""
        told = f"{100 * self.typical:.2g} % (root mean square of {many(self.pairs, 'pair')})"
        worst = f"at most {100 * self.worst:.2g} % ({self.level.words})"
        name = f"A/A: {self.variant} is the baseline by another name"
        return f"{name}, and {told}, {worst} from it: less is no difference"


def of(contest: Contest, commands: Mapping[str, str]) -> list[Noise]:
    """Every variant that is started as the baseline is, on a stack like its own. `commands` are the servers' lines."""
    found = []
    base = {row.level: row for row in contest.of(contest.baseline)}
    for name in contest.variants:
        alike = name != contest.baseline and commands.get(name) and commands[name] == commands.get(contest.baseline)
        if not alike or not base or not _one_stack(contest, name):
            continue
        levels, logs = comparison.logs_of(contest.of(name), base)
        if known := np.argwhere(~np.isnan(logs)).tolist():
            values = {(block, place): abs(float(np.expm1(logs[block, place]))) for block, place in known}
            worst = max(values, key=lambda where: values[where])
            typical = float(np.sqrt(np.mean(np.square(list(values.values())))))
            found.append(Noise(name, typical, values[worst], levels[worst[1]], len(values)))
    return found


def _one_stack(contest: Contest, name: str) -> bool:
    """Whether all that must match does, also what the user allowed to differ."""
    rows = [*contest.of(name), *contest.of(contest.baseline)]
    return len({(point.get("must_match") or {}).get("hash") for row in rows for point in row.points}) == 1
