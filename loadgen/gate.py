"""A gate: one inequality between two variants at some levels, so that a pipeline can hold a regression.

Pure. The estimate decides; its interval is shown, and says whether that is proven.
"""

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loadgen import comparison, paired, spelling
from loadgen.comparison import Contest
from loadgen.config import Level
from loadgen.errors import ConfigError
from loadgen.paired import Estimate
from loadgen.pairing import Point, level_of, questions
from loadgen.words import many

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
NAME, NUMBER = r"[a-z0-9_]+", r"\d+(?:\.\d+)?"
GATE = re.compile(
    rf"\s*(?P<ours>{NAME})\s*(?P<compared>>=|<=|>|<)\s*(?P<factor>{NUMBER})\s*\*\s*(?P<theirs>{NAME})"
    rf"\s+at\s+(?P<axis>concurrency|rate)\s*(?P<bound>>=|<=|>|<|=)\s*(?P<level>{NUMBER})\s*"
)
EXAMPLE = '"eagle_topk1_v2 >= 0.98 * baseline at concurrency>=30"'


@dataclass(frozen=True)
class Gate:
    """`ours` compared with `factor` x `theirs`, by output tokens a second, at the levels on one side of `level`."""

    text: str
    ours: str
    compared: str
    factor: float
    theirs: str
    axis: str
    bound: str
    level: float


@dataclass(frozen=True)
class Judged:
    """Whether a gate holds, and a line for each level."""

    gate: Gate
    holds: bool
    lines: tuple[str, ...]


def parse(text: str) -> Gate:
    """Raises ConfigError for anything but VARIANT >= FACTOR * VARIANT at concurrency>=N."""
    found = GATE.fullmatch(text)
    if not found:
        raise ConfigError(f"--gate {text!r} cannot be read; write it as in {EXAMPLE}")
    part = found.groupdict()
    if float(part["factor"]) <= 0:
        raise ConfigError(f"--gate {text!r}: a factor of 0 holds for everything; give the share that has to be kept")
    return Gate(
        text.strip(),
        part["ours"],
        part["compared"],
        float(part["factor"]),
        part["theirs"],
        part["axis"],
        part["bound"],
        float(part["level"]),
    )


def judge(gate: Gate, contests: Sequence[Contest], points: Sequence[Point]) -> Judged:
    """It holds where it holds at every level of every workload; what was not measured cannot be shown to hold.

    `points` are all that were asked for: a level of which none is VALID is in no Contest.
    """
    told = [line for contest in contests for line in _lines(gate, contest)]
    seen = {(contest.workload, level) for contest in contests for level in contest.levels}
    wanted = dict.fromkeys((name, level_of(one)) for name, some in questions(points).items() for one in some)
    told += [
        (False, f"{level.words} of {name}: no Point is VALID")
        for name, level in wanted
        if (name, level) not in seen and _asked(gate, level)
    ]
    if not told:
        told = [(False, f"nothing was measured of both {gate.ours} and {gate.theirs} at {_levels(gate)}")]
    return Judged(gate, all(holds for holds, _ in told), tuple(text for _, text in told))


def _levels(gate: Gate) -> str:
    return f"{gate.axis}{gate.bound}{gate.level:g}"


def _lines(gate: Gate, contest: Contest) -> Iterator[tuple[bool, str]]:
    for level in contest.levels:
        if not _asked(gate, level):
            continue
        rows = [contest.rows.get((name, level)) for name in (gate.ours, gate.theirs)]
        ratio = comparison.ratio_of(rows[0].output, rows[1].output, contest.margin) if rows[0] and rows[1] else None
        where = f"{level.words} of {contest.workload}"
        if ratio is None:
            missing = [name for name, row in zip((gate.ours, gate.theirs), rows, strict=True) if row is None]
            yield False, f"{where}: {' and '.join(missing) or 'a common block'} is missing"
        else:
            yield _one(gate, ratio, where)


def _asked(gate: Gate, level: Level) -> bool:
    value = level.concurrency if gate.axis == "concurrency" else level.rate
    return value is not None and COMPARISONS[gate.bound](float(value), gate.level)


def _one(gate: Gate, ratio: Estimate, where: str) -> tuple[bool, str]:
    holds = COMPARISONS[gate.compared](ratio.value, gate.factor)
    claimed = ratio.scope == paired.ACROSS and ratio.blocks >= paired.LOOK_BLOCKS
    proven = claimed and all(COMPARISONS[gate.compared](limit, gate.factor) == holds for limit in ratio.interval or ())
    sure = "" if proven else ", not proven"
    told = f"{where}: {spelling.ratio(ratio)} x, {many(ratio.blocks, 'block')}: {'holds' if holds else 'fails'}{sure}"
    return holds, told
