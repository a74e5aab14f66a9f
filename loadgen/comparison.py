"""Many Points held against each other: figures, ratios to the baseline by block, crossovers, drift.

Pure. What may be held together is `pairing`'s, the formulas are `paired`'s, what follows is `advice`'s. Files are read
by whoever gives `times`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loadgen import curves, objectives, paired, pairing
from loadgen.config import Level
from loadgen.paired import Crossover, Estimate
from loadgen.pairing import Block, Point
from loadgen.stats import Interval, quantile_interval, quantile_n_min
from loadgen.verdict import VALID

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TIMES = ("ttft_ms", "ttft_planned_ms", "tpot_ms", "e2e_ms")  # latencies that are compared, milliseconds
OUTPUT_OFF_MAX = 0.01  # mean output lengths further apart than this are not the same work

# A Point's latencies by name, of the requests that count: one value a request, milliseconds.
Times = Callable[[Point], Mapping[str, np.ndarray]]
Cell = tuple[str, Level]  # variant, level


@dataclass(frozen=True)
class Figure:
    """One figure of a variant at a level: over all blocks, of each block, and beside the baseline's.

    `value` has as its blocks how many it is of, `n` how many requests it pools; `ratio` and `word` are None for the
    baseline itself and where no block has both.
    """

    value: Estimate
    by_block: Mapping[Block, float]
    n: int | None = None
    ratio: Estimate | None = None
    word: str | None = None


@dataclass(frozen=True)
class Row:
    """A variant at a level: tokens a second of all streams and of one, times by name and quantile, goodput a second."""

    variant: str
    level: Level
    output: Figure
    stream: Figure | None
    times: Mapping[str, Mapping[str, Figure]]
    accept_length: float | None
    accept_source: str | None
    accept_by_kind: Mapping[str, float]
    output_tokens_mean: float | None
    requests: int
    failed: int
    points: tuple[Point, ...] = field(repr=False)
    distributions: Mapping[str, curves.Curve] = field(repr=False, default_factory=dict)  # of `times`, thinned
    goodput: Figure | None = None


@dataclass(frozen=True)
class Drift:
    """The baseline measured once more at the end, beside its first time: a ratio of two starts, and no more."""

    level: Level
    first: float
    again: float
    ratio: float


@dataclass(frozen=True)
class Contest:
    """All variants under one workload whose load arrives in one way. `rows` by variant and level, by rising level."""

    workload: str
    workload_hash: str
    baseline: str
    margin: float
    blocks: tuple[Block, ...]
    levels: tuple[Level, ...]
    variants: tuple[str, ...]
    rows: Mapping[Cell, Row]
    crossovers: Mapping[str, tuple[Crossover, ...]]
    drift: tuple[Drift, ...]
    cautions: tuple[str, ...]

    def of(self, variant: str) -> list[Row]:
        """The variant's rows by rising level."""
        return [self.rows[variant, level] for level in self.levels if (variant, level) in self.rows]

    def at(self, level: Level) -> list[Row]:
        """The variants at one level, the baseline first."""
        return [self.rows[name, level] for name in self.variants if (name, level) in self.rows]

    def in_order(self) -> list[Row]:
        """All rows, by level and then by variant."""
        return [row for level in self.levels for row in self.at(level)]


def contests(
    points: Sequence[Point], times: Times, named: Mapping[str, str], baseline: str, margin: float = paired.MARGIN
) -> list[Contest]:
    """One Contest for each question with a VALID Point. `named` is what each Point's variant is called, by point_id."""
    asked = pairing.questions(points)
    found = [_contest(question, some, times, named, baseline, margin) for question, some in asked.items()]
    return [contest for contest in found if contest.rows]


def _contest(
    workload: str, points: Sequence[Point], times: Times, named: Mapping[str, str], baseline: str, margin: float
) -> Contest:
    kept = objectives.comparable(pairing.newest(points, named))
    placed = pairing.blocks(kept, named, baseline)
    cells: dict[Cell, list[Point]] = defaultdict(list)
    for point in kept:
        cells[named[point["point_id"]], pairing.level_of(point)].append(point)
    rows = {cell: _row(*cell, some, placed, times) for cell, some in cells.items()}
    rows = {cell: _beside(row, rows.get((baseline, cell[1])), margin) for cell, row in rows.items()}
    levels = sorted({level for _, level in rows}, key=lambda level: (pairing.place_of(level), level.requests or 0))
    names = sorted({name for name, _ in rows}, key=lambda name: (name != baseline, name))
    return Contest(
        workload,
        str(points[0].get("workload_hash")),
        baseline,
        margin,
        tuple(sorted(set(placed.values()), key=lambda block: (block.root, block.number))),
        tuple(levels),
        tuple(names),
        rows,
        {name: tuple(_crossovers(name, baseline, rows, margin)) for name in names if name != baseline},
        tuple(sorted(_drift(points, rows, named, baseline), key=lambda one: pairing.place_of(one.level))),
        (*_cautions(levels, rows, baseline), *objectives.cautions(points)),
    )


def _row(variant: str, level: Level, points: Sequence[Point], placed: Mapping[str, Block], times: Times) -> Row:
    """The figures of one cell; of two Points in one block the later counts."""
    of_block = {placed[point["point_id"]]: point for point in points}
    kept = list(of_block.values())
    sums = {block: point["summary"] for block, point in of_block.items()}
    within = (kept[0]["summary"].get("intervals") or {}).get("output_tokens_per_s") if len(kept) == 1 else None
    measured = {block: times(point) for block, point in of_block.items()}
    return Row(
        variant,
        level,
        _figure({block: numbers["output_tokens_per_s"] for block, numbers in sums.items()}, within),
        _known_figure({block: numbers.get("tokens_per_s_per_stream") for block, numbers in sums.items()}),
        _times(measured),
        _mean(numbers.get("accept_length") for numbers in sums.values()),
        next((numbers["accept_source"] for numbers in sums.values() if numbers.get("accept_source")), None),
        _by_kind(list(sums.values())),
        _mean(numbers.get("output_tokens_mean") for numbers in sums.values()),
        sum(numbers["requests"] for numbers in sums.values()),
        sum(numbers["failed"] for numbers in sums.values()),
        tuple(kept),
        curves.of(measured.values(), TIMES),
        _known_figure({block: numbers.get("goodput_requests_per_s") for block, numbers in sums.items()}),
    )


def _figure(by_block: Mapping[Block, float], within: Sequence[float] | None = None) -> Figure:
    return Figure(paired.mean_of(list(by_block.values()), (within[0], within[1]) if within else None), by_block)


def _known_figure(by_block: Mapping[Block, float | None]) -> Figure | None:
    known = {block: value for block, value in by_block.items() if value is not None}
    return _figure(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _by_kind(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Accept length of each kind of prompt, where it is known; the mean of the Points."""
    told: dict[str, list[float]] = defaultdict(list)
    for numbers in summaries:
        for kind, figures in (numbers.get("by_kind") or {}).items():
            if figures.get("accept_length") is not None:
                told[kind].append(figures["accept_length"])
    return {kind: float(np.mean(values)) for kind, values in sorted(told.items())}


def _times(by_block: Mapping[Block, Mapping[str, np.ndarray]]) -> dict[str, dict[str, Figure]]:
    """Quantiles of the pooled requests, each with the interval of order statistics, and those of each block."""
    found: dict[str, dict[str, Figure]] = {}
    for name in TIMES:
        parts = {block: times[name] for block, times in by_block.items() if len(times.get(name, ()))}
        if parts:
            found[name] = {
                called: figure for called, q in QUANTILES.items() if (figure := _quantile(parts, q)) is not None
            }
    return found


def _quantile(parts: Mapping[Block, np.ndarray], q: float) -> Figure | None:
    """None where the requests are too few for this quantile."""
    pooled, least = np.concatenate(list(parts.values())), quantile_n_min(q)
    interval = quantile_interval(pooled, q)
    if interval is None:
        return None
    enough = {block: float(np.quantile(values, q)) for block, values in parts.items() if len(values) >= least}
    value = Estimate(float(np.quantile(pooled, q)), interval, paired.WITHIN, len(parts))
    return Figure(value, enough, len(pooled))


def _beside(row: Row, base: Row | None, margin: float) -> Row:
    """The row with its ratios to the baseline's."""
    if base is None or base.variant == row.variant:
        return row
    return replace(
        row,
        output=_with_ratio(row.output, base.output, margin, True),
        stream=_with_ratio(row.stream, base.stream, margin, True) if row.stream else None,
        goodput=_with_ratio(row.goodput, base.goodput, margin, True) if row.goodput else None,
        times={
            name: {q: _with_ratio(figure, base.times.get(name, {}).get(q), margin, False) for q, figure in some.items()}
            for name, some in row.times.items()
        },
    )


def _with_ratio(ours: Figure, theirs: Figure | None, margin: float, larger_is_better: bool) -> Figure:
    ratio = ratio_of(ours, theirs, margin) if theirs else None
    return replace(ours, ratio=ratio, word=paired.word(ratio, larger_is_better)) if ratio else ours


def ratio_of(ours: Figure, theirs: Figure, margin: float) -> Estimate | None:
    """The ratio of two figures over the blocks that have both; None where none has."""
    both = [block for block in ours.by_block if block in theirs.by_block]
    if not all(ours.by_block[block] and theirs.by_block[block] for block in both) or not both:
        return None  # of nothing, as the time per token behind a proxy that hands all events over at once
    logs = [float(np.log(ours.by_block[block] / theirs.by_block[block])) for block in both]
    return paired.ratio_of(logs, margin, _within(ours, theirs, float(np.exp(logs[0]))) if len(both) == 1 else None)


def _within(ours: Figure, theirs: Figure, ratio: float) -> Interval | None:
    """By the two runs' own intervals, where each figure is of one start."""
    if ours.value.blocks > 1 or theirs.value.blocks > 1:
        return None
    return paired.within_ratio(ours.value.interval, theirs.value.interval, ratio)


def logs_of(ours: Sequence[Row], theirs: Mapping[Level, Row]) -> tuple[list[Level], np.ndarray]:
    """Logarithms of the throughputs' ratios: the levels that both have, and a row a block, NaN where one lacks it."""
    levels = [row.level for row in ours if row.level in theirs]
    pairs = [(row.output.by_block, theirs[row.level].output.by_block) for row in ours if row.level in theirs]
    blocks = sorted({block for one, other in pairs for block in one if block in other}, key=str)
    table = [
        [np.log(one[block] / other[block]) if block in one and block in other else np.nan for one, other in pairs]
        for block in blocks
    ]
    return levels, np.array(table, float).reshape(len(blocks), len(levels))


def crossovers_of(ours: Sequence[Row], theirs: Mapping[Level, Row], margin: float) -> list[Crossover]:
    """Where one variant's throughput passes another's."""
    levels, logs = logs_of(ours, theirs)
    return paired.crossovers([pairing.place_of(level) for level in levels], paired.glances(logs, margin), logs)


def _crossovers(name: str, baseline: str, rows: Mapping[Cell, Row], margin: float) -> list[Crossover]:
    mine = [row for (of, _), row in rows.items() if of == name]
    return crossovers_of(mine, {level: row for (of, level), row in rows.items() if of == baseline}, margin)


def _drift(
    points: Sequence[Point], rows: Mapping[Cell, Row], named: Mapping[str, str], baseline: str
) -> Iterable[Drift]:
    """Each repeated Point of the baseline that is VALID beside the first time in the same command."""
    for point in points:
        level, row = pairing.level_of(point), rows.get((baseline, pairing.level_of(point)))
        again = (point.get("summary") or {}).get("output_tokens_per_s")
        if not point.get("repeat") or point["verdict"]["status"] != VALID or row is None or not again:
            continue
        if named[point["point_id"]] != baseline:
            continue
        mine = {block.number: value for block, value in row.output.by_block.items() if block.root == point["root"]}
        if (first := mine.get(point["block"])) is not None:
            yield Drift(level, first, again, again / first)


def _cautions(levels: Sequence[Level], rows: Mapping[Cell, Row], baseline: str) -> Iterable[str]:
    """Two rows with other output lengths are not the same work: a variant that answers shorter is no faster."""
    for level in levels:
        base = rows.get((baseline, level))
        for (name, at), row in rows.items():
            if at != level or base is None or not base.output_tokens_mean or not row.output_tokens_mean:
                continue
            if abs(row.output_tokens_mean / base.output_tokens_mean - 1) > OUTPUT_OFF_MAX:
                yield (
                    f"{name} answered {row.output_tokens_mean:.0f} tokens at {level.words}, {baseline} "
                    f"{base.output_tokens_mean:.0f}: not the same work"
                )
