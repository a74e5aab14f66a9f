"""What follows from a Contest: which variant to run at which load, and in one sentence why.

Pure. A variant takes the place of another only where it is proven better; sentences that pick the best of the grid
stand together under Holm's test, since the best of many is good by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen import comparison, paired, spelling
from loadgen.comparison import Contest, Figure, Row
from loadgen.config import Level
from loadgen.paired import BETTER, SAME, Crossover, Estimate
from loadgen.pairing import place_of

THROUGHPUT, LATENCY = "throughput", "latency"
LATENCY_OF, LATENCY_AT = "e2e_ms", "p50"  # the median time of a whole request, at the same number of streams
# What each goal looks at, in words.
GOALS = {THROUGHPUT: "output tokens a second", LATENCY: "median time of a request"}


@dataclass(frozen=True)
class Choice:
    """The variant for one range of levels, `low` to `high` both included, and why.

    `boundary` is where the variant of the range below gives way, with its interval where it has one; `blocks` how many
    the least supported of the ratios has that it rests on.
    """

    goal: str
    low: Level
    high: Level
    variant: str
    why: str
    blocks: int
    boundary: Crossover | None


def choices(contest: Contest, goal: str) -> list[Choice]:
    """Ranges of levels by rising load, each with its variant. Empty without a baseline at any level."""
    levels = [level for level in contest.levels if (contest.baseline, level) in contest.rows]
    if not levels:
        return []
    firm = _firm(contest, levels, goal)
    picked: list[str] = []
    current = contest.baseline
    for level in levels:
        current = _best(contest, level, goal, current, firm)
        picked.append(current)
    starts = [place for place, name in enumerate(picked) if place == 0 or picked[place - 1] != name]
    ends = [*(place - 1 for place in starts[1:]), len(levels) - 1]
    return [
        _choice(contest, goal, levels[low : high + 1], picked[low], picked[low - 1] if low else None)
        for low, high in zip(starts, ends, strict=True)
    ]


def figure_of(row: Row, goal: str) -> Figure | None:
    """The figure that a goal looks at."""
    return row.output if goal == THROUGHPUT else row.times.get(LATENCY_OF, {}).get(LATENCY_AT)


def _figure_at(contest: Contest, name: str, level: Level, goal: str) -> Figure | None:
    row = contest.rows.get((name, level))
    return figure_of(row, goal) if row else None


def _firm(contest: Contest, levels: Sequence[Level], goal: str) -> set[str] | None:
    """Which differences to the baseline stand together, by "variant at level"; None where blocks are too few."""
    ps = {}
    for level in levels:
        for name in contest.variants:
            chosen = _figure_at(contest, name, level, goal)
            if chosen and chosen.ratio and chosen.ratio.p is not None and chosen.ratio.blocks >= paired.LOOK_BLOCKS:
                ps[_key(name, level)] = chosen.ratio.p
    return paired.holm(ps) if ps else None


def _key(variant: str, level: Level) -> str:
    return f"{variant} at {level.words}"


def _best(contest: Contest, level: Level, goal: str, current: str, firm: set[str] | None) -> str:
    """Who serves this level: the current one unless another is better by word, then the best of those."""
    if (current, level) not in contest.rows:  # what was not measured here cannot be kept
        current = contest.baseline
    mine = _figure_at(contest, current, level, goal)
    better: dict[str, float] = {}
    for name in contest.variants:
        theirs = _figure_at(contest, name, level, goal)
        if name == current or not mine or not theirs:
            continue
        ratio = comparison.ratio_of(theirs, mine, contest.margin)
        if ratio is None or _glance(ratio, goal, contest.margin) != BETTER:
            continue
        against_base = current == contest.baseline or name == contest.baseline
        other = name if name != contest.baseline else current
        if against_base and firm is not None and ratio.blocks >= paired.LOOK_BLOCKS and _key(other, level) not in firm:
            continue
        better[name] = ratio.value if goal == THROUGHPUT else 1 / ratio.value
    return max(better, key=lambda name: better[name]) if better else current


def _glance(ratio: Estimate, goal: str, margin: float) -> str:
    return paired.glance(ratio, margin, goal == THROUGHPUT)


def _choice(contest: Contest, goal: str, levels: Sequence[Level], name: str, before: str | None) -> Choice:
    rows = [contest.rows[name, level] for level in levels]
    if name == contest.baseline:
        why = _why_baseline(contest, goal, levels)
    else:
        why = ", ".join(_beside(contest, goal, row) for row in rows)
    chosen = [figure_of(row, goal) for row in contest.rows.values() if row.level in levels]
    blocks = min((figure.ratio.blocks for figure in chosen if figure and figure.ratio), default=0)
    return Choice(goal, levels[0], levels[-1], name, why, blocks, _boundary(contest, goal, levels[0], name, before))


def _beside(contest: Contest, goal: str, row: Row) -> str:
    """A variant's ratio to the baseline at one level, in words."""
    chosen = figure_of(row, goal)
    if chosen is None or chosen.ratio is None:
        return f"not beside {contest.baseline} at {row.level.words}"
    said = _glance(chosen.ratio, goal, contest.margin)
    return f"{'the same' if said == SAME else spelling.change(chosen.ratio)} at {row.level.words}"


def _why_baseline(contest: Contest, goal: str, levels: Sequence[Level]) -> str:
    """How the others stand where the baseline is kept: at which levels, where that is not the same at all."""
    told = []
    for name in contest.variants:
        said: dict[str, list[str]] = {}
        for level in levels:
            chosen = _figure_at(contest, name, level, goal)
            if chosen and chosen.ratio:
                said.setdefault(_glance(chosen.ratio, goal, contest.margin), []).append(f"{place_of(level):g}")
        words = [f"{'the ' if word == SAME else ''}{word}" for word in said]
        if len(said) > 1:
            words = [f"{word} at {' and '.join(at)}" for word, at in zip(words, said.values(), strict=True)]
        if said:
            told.append(f"{name} is {', '.join(words)}")
    return ", and ".join(told) or "nothing else was measured"


def _boundary(contest: Contest, goal: str, low: Level, name: str, before: str | None) -> Crossover | None:
    """Where throughput of the new choice passes that of the one before."""
    if before is None or goal != THROUGHPUT:
        return None
    others = {row.level: row for row in contest.of(before)}
    found = comparison.crossovers_of(contest.of(name), others, contest.margin)
    place = place_of(low)
    return next((one for one in found if one.rises and one.between[0] <= place <= one.between[1]), None)


def sentence(contest: Contest, chosen: Sequence[Choice]) -> str:
    """The answer in one sentence that a person can act on."""
    blocks = [one.blocks for one in chosen if one.blocks]
    if not blocks:
        beside = any(row.output.ratio for row in contest.rows.values())
        alone = f"no {GOALS[chosen[0].goal]} stands beside that of {contest.baseline}" if beside else None
        return f"nothing can be recommended: {alone or f'{contest.baseline} was not measured beside anything'}"
    said = "; ".join(_range(one, chosen) for one in chosen)
    apart = [level.words for level in contest.levels if (contest.baseline, level) not in contest.rows]
    unsaid = f"; without {contest.baseline} nothing is said of {', '.join(apart)}" if apart else ""
    return f"run {said} ({paired.weight(min(blocks))}){unsaid}"


def _range(one: Choice, chosen: Sequence[Choice]) -> str:
    """A choice with its range of load."""
    first, last = one is chosen[0], one is chosen[-1]
    if first and last:
        return f"{one.variant} at every load that was measured: {one.why}"
    where = (
        f"from {one.low.words} on"
        if last
        else f"up to {one.high.words}"
        if first
        else f"at {one.low.words}"
        if one.low == one.high
        else f"{one.low.words} to {one.high.words}"
    )
    edge = f", crossing at {spelling.crossing(one.boundary)}" if one.boundary else ""
    return f"{one.variant} {where}{edge}: {one.why}"
