"""What a Contest lets one conclude, in sentences with figures, and when a later one overturns an earlier one.

Pure. A conclusion claims something of ranges of load. Other figures, or more levels that fit, refine it; another claim
for a load of which it spoke overturns it.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from loadgen import advice, paired, spelling
from loadgen.comparison import Contest, Row
from loadgen.config import Level
from loadgen.paired import BETTER, SAME, UNDECIDED, WORSE, Estimate
from loadgen.pairing import place_of

SPECULATION = "speculation under load"
# From the level on at which the baseline gives so much of its best throughput the server is under load.
LOADED_SHARE = 0.85
MIXED = "better and worse"


@dataclass(frozen=True)
class Span:
    """What is claimed from one place on the axis of loads to another, both included; "" where nothing is."""

    low: float
    high: float
    said: str


@dataclass(frozen=True)
class Conclusion:
    """One answer to a `topic`, which is the same for all later answers; `roots` are the commands it rests on."""

    topic: str
    spans: tuple[Span, ...]
    text: str
    roots: tuple[str, ...]

    @property
    def claims(self) -> bool:
        """Whether it says anything that can be overturned."""
        return any(span.said for span in self.spans)


def overturns(new: Conclusion, old: Conclusion) -> bool:
    """Whether `new` says something else where `old` had spoken."""
    return any(
        before.said and before.said != now.said and before.low <= now.high and now.low <= before.high
        for before in old.spans
        for now in new.spans
    )


def conclude(contest: Contest, speculative: Collection[str], unseen: Sequence[str]) -> list[Conclusion]:
    """Everything that may be concluded beside the baseline.

    `speculative` are the variants that speculate; `unseen` says in words which of them were not measured here.
    """
    told = [speculation(contest, speculative, unseen)]
    told += [found for goal in advice.GOALS if (found := which(contest, goal))]
    told += [found for name in contest.variants if (found := course(contest, name))]
    return told


def speculation(contest: Contest, speculative: Collection[str], unseen: Sequence[str]) -> Conclusion:
    """Whether any speculative variant that was measured is better than the baseline where the server is loaded."""
    levels, where = _loaded(contest)
    rows = {
        name: [row for row in contest.of(name) if row.output.ratio and row.level in levels]
        for name in contest.variants
        if name in speculative
    }
    rows = {name: some for name, some in rows.items() if some}
    rest = f" UNTESTED: {', '.join(unseen)}." if unseen else ""
    if not rows:
        why = (
            "no speculative variant was measured beside the baseline there"
            if levels
            else "no baseline was measured there"
        )
        return Conclusion(SPECULATION, (), f"Nothing is known of speculation under load: {why}.{rest}", ())
    stands = {name: _stand([_word(contest, row) for row in some]) for name, some in rows.items()}
    best = next(one for one in _HEADS if one in stands.values())
    names = [name for name, stand in stands.items() if stand == best]
    if best == SAME and levels[0].open:  # who keeps up with a rate has that rate's throughput, whatever it costs
        best = UNDECIDED
    said, head = _HEADS[best]
    named = [name for name in rows if not ("{names}" in head and names == [name])]  # the head has its name already
    ordered = sorted(rows, key=lambda name: (name not in names, name))
    figures = [f"{f'{name} ' if name in named else ''}{_figures(contest, rows[name])}" for name in ordered]
    shown = [row for some in rows.values() for row in some]
    text = f"{head.format(names=_and(names), where=where)}: {'; '.join(figures)} ({_sure(shown)}).{rest}"
    claim = said.format(names=_and(names))
    return Conclusion(SPECULATION, (Span(-math.inf, math.inf, claim),), text, _roots(shown))


# By the best that a speculative variant does: what is claimed, and how a sentence about it begins.
_HEADS = {
    BETTER: ("pays with {names}", "Speculation pays under load ({where}) with {names}"),
    MIXED: (
        "depends with {names}",
        "Under load ({where}) speculation with {names} pays at some levels and costs at others",
    ),
    SAME: ("free with {names}", "Speculation costs nothing under load ({where}) with {names}"),
    UNDECIDED: ("", "Whether speculation pays under load ({where}) is undecided"),
    WORSE: ("does not pay", "Speculation does not pay under load ({where})"),
}


def _loaded(contest: Contest) -> tuple[list[Level], str]:
    """The levels at which the baseline is loaded, and their range in words. One stream alone is no load."""
    base = [row for row in contest.of(contest.baseline) if row.level.open or place_of(row.level) > 1]
    if not base:
        return [], ""
    most = max(row.output.value.value for row in base)
    first = next(row.level for row in base if row.output.value.value >= LOADED_SHARE * most)
    levels = [level for level in contest.levels if place_of(level) >= place_of(first)]
    if first == base[-1].level:
        return levels, f"{first.words}, the highest measured"
    return levels, f"{_axis(first)} >= {place_of(first):g}"


def _axis(level: Level) -> str:
    return "rate" if level.open else "concurrency"


def _stand(words: Sequence[str]) -> str:
    """What a variant is over several levels; the same and undecided give way to better and worse."""
    if BETTER in words:
        return MIXED if WORSE in words else BETTER
    if WORSE in words:
        return WORSE
    return SAME if set(words) == {SAME} else UNDECIDED


def _word(contest: Contest, row: Row) -> str:
    assert row.output.ratio, f"{row.variant} stands beside nothing"
    return paired.glance(row.output.ratio, contest.margin)


def _figures(contest: Contest, rows: Sequence[Row]) -> str:
    """Ratios at rising levels: 0.43 x [0.42, 0.44] at 30, 1.00 x [0.99, 1.01] at 100 (same)."""
    told = []
    for row in rows:
        word = _word(contest, row)
        mark = f" ({word})" if word in (SAME, UNDECIDED) else ""
        told.append(f"{times(row.output.ratio)} at {place_of(row.level):g}{mark}")
    return ", ".join(told)


def times(ratio: Estimate | None) -> str:
    """A ratio with its interval: 0.437 x [0.421, 0.452]."""
    return spelling.ratio(ratio, spelling.DAGGER, " x")


def _sure(rows: Iterable[Row]) -> str:
    """Of how many blocks the fewest of these ratios are, and what so many are worth."""
    return paired.weight(min(row.output.ratio.blocks for row in rows if row.output.ratio))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _roots(rows: Iterable[Row]) -> tuple[str, ...]:
    """The commands behind some rows, in order of time."""
    points = sorted((point for row in rows for point in row.points), key=lambda point: str(point["started_at"]))
    return tuple(dict.fromkeys(point["root"] for point in points))


def _spans(claims: Sequence[tuple[Level, Level, str]]) -> tuple[Span, ...]:
    """What is claimed from level to level, by rising load; beyond the lowest and the highest it goes on."""
    last = len(claims) - 1
    return tuple(
        Span(place_of(low) if place else -math.inf, place_of(high) if place < last else math.inf, said)
        for place, (low, high, said) in enumerate(claims)
    )


def which(contest: Contest, goal: str) -> Conclusion | None:
    """Which variant to run for a goal, by range of load; None where nothing stands beside the baseline."""
    beside = [row for row in contest.rows.values() if (one := advice.figure_of(row, goal)) and one.ratio]
    chosen = advice.choices(contest, goal)
    if not beside or not chosen:
        return None
    spans = _spans([(one.low, one.high, one.variant) for one in chosen])
    text = advice.sentence(contest, chosen)
    return Conclusion(f"for {goal}", spans, f"{text[:1].upper()}{text[1:]}.", _roots(contest.rows.values()))


def course(contest: Contest, name: str) -> Conclusion | None:
    """How a variant's throughput stands beside the baseline's from level to level, and where they cross."""
    rows = [row for row in contest.of(name) if row.output.ratio]
    if not rows:
        return None
    groups = [(word, list(some)) for word, some in groupby(rows, key=lambda row: _word(contest, row))]
    spans = _spans([(some[0].level, some[-1].level, "" if word == UNDECIDED else word) for word, some in groups])
    axis = _axis(rows[0].level)
    stretches = "; ".join(_stretch(word, some) for word, some in groups)
    crossings = "".join(f" They cross at {axis} {spelling.crossing(one)}." for one in contest.crossovers.get(name, ()))
    text = f"By {axis}: {stretches} ({_sure(rows)}).{crossings}"
    return Conclusion(f"{name} beside {contest.baseline}", spans, text, _roots(rows))


def _stretch(word: str, rows: Sequence[Row]) -> str:
    first, last = rows[0], rows[-1]
    where = f"{place_of(first.level):g}"
    if first is last:
        return f"{word} at {where}, {times(first.output.ratio)}"
    ratios = f"{times(first.output.ratio)} to {times(last.output.ratio)}"
    return f"{word} from {where} to {place_of(last.level):g}, {ratios}"
