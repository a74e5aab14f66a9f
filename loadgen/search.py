"""Which levels a search measures next, by what was measured so far, and how it ended.

Pure: the same results give the same levels, so that a search goes on where it was interrupted. Runs and files are
`searching`'s.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadgen import paired
from loadgen.comparison import Contest
from loadgen.config import Config, Level
from loadgen.objectives import Standing, asked, in_words_of
from loadgen.paired import BETTER, LOOK_BLOCKS, UNDECIDED, WORSE, Crossover, Estimate
from loadgen.pairing import place_of
from loadgen.words import duration, figure, many

CROSSOVER, SLO = "crossover", "slo"
CLOSE = (
    0.1  # a ratio nearer to 1 may be on the other side in another block: one block alone does not end a search there
)
FACTORS = {CROSSOVER: 1.5, SLO: 1.1}  # unless load.search_factor says otherwise


@dataclass(frozen=True)
class Go:
    """Measure these concurrencies in the next block, and what is known so far, in words."""

    levels: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Ended:
    """Nothing more is to be measured, and why, in words."""

    why: str


def crossover(contest: Contest, variant: str, factor: float, before: Contest | None = None) -> Go | Ended:
    """The next block's levels around the place where `variant` passes the baseline, or how its search ended.

    The words of a level decide between which two levels the crossover lies. These two are measured in each block, since
    only a block that has both tells of a crossing between them, and the estimate itself. The interval has to be narrow
    twice running, now and in `before`, the contest without the last block: one that ends the search the first time is
    narrow by luck too often.
    """
    found = contest.crossovers.get(variant, ())
    if not found:
        return _none(contest, variant)
    if len(found) > 1:
        return _several(contest, variant, found)
    (one,) = found
    if one.at is None and one.blocks >= LOOK_BLOCKS:
        low, high = one.between
        told = f"only {one.crossing} of {many(one.blocks, 'block')} cross there"
        return Ended(f"{variant} passes {contest.baseline} between {low:g} and {high:g}; {told}, so no single number")
    if _narrow(found, factor) and before and _narrow(before.crossovers.get(variant, ()), factor):
        return Ended(f"{at_words(contest, variant, one)}: narrower than a factor of {factor:g}")
    measured = [row.level.concurrency or 0 for row in contest.of(variant)]
    return Go(around(one, measured, factor), at_words(contest, variant, one))


def _narrow(found: Sequence[Crossover], factor: float) -> bool:
    limits = found[0].interval if len(found) == 1 else None
    return limits is not None and limits[1] <= factor * limits[0]


def around(one: Crossover, measured: Collection[int], factor: float) -> tuple[int, ...]:
    """The two levels around a crossover, and between them a whole number at its estimate, one not measured if any."""
    low, high = (round(level) for level in one.between)
    at = one.at or math.sqrt(low * high)
    inside = [level for level in range(low + 1, high) if 1 / factor <= level / at <= factor]
    if not inside:
        inside = list(range(low + 1, high))
    fresh = [level for level in inside if level not in measured]
    nearest = sorted(fresh or inside, key=lambda level: abs(math.log(level / at)))
    return (low, *nearest[:1], high)


def _several(contest: Contest, variant: str, found: Sequence[Crossover]) -> Go | Ended:
    """Too few blocks may see by chance what is not there: they are told when every level concerned has enough."""
    places = sorted({round(level) for one in found for level in one.between})
    blocks = {round(place_of(row.level)): row.output.ratio.blocks for row in contest.of(variant) if row.output.ratio}
    told = " and ".join(f"between {one.between[0]:g} and {one.between[1]:g}" for one in found)
    said = f"{variant} crosses {contest.baseline} {len(found)} times, {told}"
    if min(blocks.get(place, 0) for place in places) < LOOK_BLOCKS:
        return Go(tuple(places), said)
    return Ended(f"{said}: no single number")


def _none(contest: Contest, variant: str) -> Go | Ended:
    """What the levels say where none is better while another is worse, or which have too few blocks to say so."""
    ratios = {row.level: row.output.ratio for row in contest.of(variant) if row.output.ratio}
    if not ratios:
        return Ended(f"nothing VALID of both {variant} and {contest.baseline}")
    words = {level: paired.glance(ratio, contest.margin) for level, ratio in ratios.items()}
    decided = [(round(place_of(level)), word) for level, word in words.items() if word in (BETTER, WORSE)]
    guessed = {level for one, other in pairwise(decided) if one[1] != other[1] for level in (one[0], other[0])}
    if guessed:  # by levels that have fewer blocks than others
        between = f"between {min(guessed)} and {max(guessed)}"
        return Go(tuple(sorted(guessed)), f"{variant} may pass {contest.baseline} {between}, in too few blocks to say")
    closest = min(ratios, key=lambda level: abs(math.log(ratios[level].value)))
    said, one = _flat(variant, words, closest, ratios[closest]), ratios[closest]
    near = one.blocks < LOOK_BLOCKS and abs(math.log(one.value)) < math.log1p(CLOSE)
    if near or (words[closest] == UNDECIDED and one.blocks >= LOOK_BLOCKS):
        order = sorted(ratios, key=place_of)
        around_it = order[max(0, order.index(closest) - 1) : order.index(closest) + 2]
        return Go(tuple(round(place_of(level)) for level in around_it), said)
    return Ended(said)


def _flat(variant: str, words: Mapping[Level, str], closest: Level, ratio: Estimate) -> str:
    """No crossover, by the words of the levels, and how near it came to one."""
    low, high = (f"{place_of(level):g}" for level in (min(words, key=place_of), max(words, key=place_of)))
    near = f"closest {ratio.value:.3f} x at {place_of(closest):g}, {many(ratio.blocks, 'block')}"
    kinds = set(words.values())
    if kinds == {WORSE}:
        return f"{variant} is worse from {low} to {high} ({near}): a crossover, if there is one, lies above {high}"
    if kinds == {BETTER}:
        return f"{variant} is better from {low} to {high} ({near}): there is no crossover in between"
    told = ", ".join(f"{word} at {_places(words, word)}" for word in dict.fromkeys(words.values()))
    return f"{variant} has no crossover from {low} to {high}: {told} ({near})"


def _places(words: Mapping[Level, str], word: str) -> str:
    return ", ".join(f"{place_of(level):g}" for level, said in words.items() if said == word)


def at_words(contest: Contest, variant: str, one: Crossover) -> str:
    """A crossover with its interval, or the levels around it."""
    side = "above" if one.rises else "below"
    low, high = one.between
    if one.at is None:
        return f"{variant} is better than {contest.baseline} {side} a level between {low:g} and {high:g}"
    limits = f"[{figure(one.interval[0])}, {figure(one.interval[1])}], " if one.interval else ""
    return f"{variant} is better than {contest.baseline} {side} {figure(one.at)} ({limits}{many(one.blocks, 'block')})"


@dataclass(frozen=True)
class Seen:
    """What one level showed. `standing` is None where its Point is not VALID: it counts as missed, as `status` says."""

    level: Level
    status: str
    standing: Standing | None
    goodput: float | None = None  # requests a second

    @property
    def kept(self) -> bool:
        """Whether the objectives were kept, by what was measured."""
        return self.standing is not None and self.standing.kept


def edge(seen: Sequence[Seen]) -> tuple[Seen | None, Seen | None]:
    """The lowest level that was missed, and below it the highest that was kept; the latter first."""
    missed = min((one for one in seen if not one.kept), key=lambda one: place_of(one.level), default=None)
    below = [one for one in seen if one.kept and (missed is None or place_of(one.level) < place_of(missed.level))]
    return max(below, key=lambda one: place_of(one.level), default=None), missed


def next_level(ladder: Sequence[Level], seen: Sequence[Seen], factor: float) -> Level | None:
    """The level to measure next: up the ladder until one is missed, then the middle; None where the search has ended.

    The middle is the geometric mean, a whole number of streams, a rate of three digits.
    """
    kept, missed = edge(seen)
    known = {place_of(one.level) for one in seen}
    if missed is None:
        rising = sorted(ladder, key=place_of)
        return next((level for level in rising if place_of(level) not in known), None)
    if kept is None:
        return None
    low, high = place_of(kept.level), place_of(missed.level)
    if high <= factor * low:
        return None
    middle = math.sqrt(low * high)
    if ladder[0].open:
        rate = float(f"{middle:.3g}")
        return Level(None, ladder[0].requests, rate) if low < rate < high else None
    streams = min(max(round(middle), int(low) + 1), int(high) - 1)
    return Level(streams, ladder[0].requests) if low < streams < high else None


def answer(variant: str, objectives: str, seen: Sequence[Seen], stopped: str) -> str:
    """How an slo search ended, in one line; `stopped`: what ended it before its answer was narrow, or nothing."""
    kept, missed = edge(seen)
    if kept is None:
        return f"{variant} {_never(objectives, missed) if missed else f'was not measured: {stopped}'}"
    said = f"{variant} keeps {objectives} up to {kept.level.words}"
    if missed is not None:
        said += f" ({_missed(missed)})" + (f", not narrowed further: {stopped}" if stopped else "")
    else:
        said += f"; {stopped}" if stopped else ", the highest level: give higher ones to see where it ends"
    goodput = "" if kept.goodput is None else f", goodput {figure(kept.goodput)} requests/s"
    unsure = f"; not proven: {kept.standing.why}" if kept.standing and not kept.standing.proven else ""
    return said + goodput + unsure


def _never(objectives: str, lowest: Seen) -> str:
    """Where not even the lowest level was kept."""
    if lowest.standing is None:
        return f"has no answer: {lowest.level.words} is {lowest.status}"
    return f"does not keep {objectives} at {lowest.level.words}, the lowest level ({_missed(lowest)})"


def _missed(one: Seen) -> str:
    """Why a level counts as missed."""
    place = f"{place_of(one.level):g}"
    if one.standing is None:
        return f"{place} counts as missed: {one.status}"
    return f"missed at {place}: {one.standing.why}" + ("" if one.standing.proven else ", not proven")


def plan_words(conf: Config) -> str:
    """What a run promises and searches, for the plan; empty where nothing."""
    load, limits = conf.load, asked(conf.slo)
    told = [f"SLO {in_words_of(limits, load.kind == 'open')}"] if limits else []
    if load.search:
        factor = load.search_factor or FACTORS[load.search]
        most = (
            f"{load.search_blocks_max} blocks" if load.search == CROSSOVER else f"{load.search_points_max} levels a run"
        )
        within = f" and {duration(load.search_s_max)}" if load.search_s_max else ""
        told.append(f"search {load.search} to a factor of {factor:g}, at most {most}{within}")
    return " · ".join(told)
