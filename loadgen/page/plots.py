"""The figures of a comparison: throughput, ratio, what a fast stream costs, latencies.

Pure: from a Contest to SVG. Every figure's numbers also stand in a table of the page; makes no numbers of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element

from loadgen import curves, paired, spelling
from loadgen.comparison import Contest, Figure, Row
from loadgen.config import Level
from loadgen.page import chart, scales
from loadgen.page.chart import Box, Look
from loadgen.page.markup import Child, tag
from loadgen.paired import Crossover, Estimate
from loadgen.pairing import place_of
from loadgen.words import figure

Looks = Mapping[str, Look]
LATENCIES = {
    "ttft_ms": "time to first token",
    "ttft_planned_ms": "time to first token since planned",
    "tpot_ms": "time per token",
}
NAMED_MAX = 4  # variants whose levels are all named; of more only the outermost
MIDDLE = (0.1, 0.9)  # the part of the requests that a range shows
BEYOND_MAX = 1.5  # an interval may reach so far beyond the outermost value; two blocks give some of a hundredfold


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each variant, the same in all figures of a page; the first, the baseline's, has the text's colour."""
    return {name: Look(number) for number, name in enumerate(names)}


def _axis(contest: Contest) -> tuple[str, scales.Scale, dict[Level, float]]:
    """The load's name, its scale and its places: log2 of each level's number, or side by side where they have none."""
    levels = contest.levels
    if all(place_of(level) > 0 for level in levels):
        name = "requests a second" if levels[0].open else "concurrent streams"
        return name, scales.octaves(map(place_of, levels)), {level: place_of(level) for level in levels}
    ticks = tuple((float(number), level.words) for number, level in enumerate(levels))
    return (
        "load",
        scales.Scale(-0.5, len(levels) - 0.5, False, ticks),
        {level: float(n) for n, level in enumerate(levels)},
    )


def told(row: Row, what: str, value: Estimate) -> str:
    """What the pointer is told of one mark: its numbers and the runs that they come from."""
    spread = f" [{figure(value.interval[0])}, {figure(value.interval[1])}] {value.scope}" if value.interval else ""
    return f"{row.variant} at {row.level.words}: {figure(value.value)}{spread} {what}; {_runs(row)}"


def _runs(row: Row) -> str:
    """The first run of a row, and how many more there are; the tables have them all."""
    more = f" and {len(row.points) - 1} more" if len(row.points) > 1 else ""
    return f"from {row.points[0]['folder']}{more}"


def throughput(contest: Contest, some: Looks) -> Element:
    """Output tokens a second of all streams over the load."""
    rows = {name: contest.of(name) for name in contest.variants}
    axis, x, places = _axis(contest)
    box = Box(x, scales.linear(_with_limits([row.output.value for of in rows.values() for row in of])))
    marks: list[Child] = [*chart.frame(box, axis, "output tokens a second")]
    for of in rows.values():
        marks += _series(box, [(row, row.output.value) for row in of], places, some, contest.variants, "tok/s")
    title = f"{contest.workload}: throughput over {axis}"
    return chart.svg(box, title, _in_words(rows, len(contest.levels)), marks)


def _with_limits(values: Sequence[Estimate]) -> list[float]:
    """What an axis has to hold: all values, and their intervals as far as these leave the values readable."""
    low, high = (pick(value.value for value in values) for pick in (min, max))
    limits = [limit for value in values for limit in value.interval or ()]
    return [low, high, *(min(max(limit, low / BEYOND_MAX), high * BEYOND_MAX) for limit in limits)]


def _series(
    box: Box,
    drawn: Sequence[tuple[Row, Estimate]],
    places: Mapping[Level, float],
    some: Looks,
    names: Sequence[str],
    what: str,
) -> Iterable[Element]:
    """One variant's line with its whiskers and marks."""
    if not drawn:
        return
    look = some[drawn[0][0].variant]
    room = chart.nearest(map(box.across, places.values()))
    beside = chart.dodge(names.index(drawn[0][0].variant), len(names), room)
    spots = [(box.across(places[row.level]) + beside, box.down(value.value)) for row, value in drawn]
    yield chart.line(spots, look)
    for (x, y), (row, value) in zip(spots, drawn, strict=True):
        if value.interval:
            yield chart.whisker(box, x, value.interval, look, value.scope == paired.ACROSS)
        yield chart.mark((x, y), look, told(row, what, value))


def _in_words(rows: Mapping[str, Sequence[Row]], levels: int) -> str:
    """Each variant's way from the lowest to the highest level."""
    ways = []
    for name, of in rows.items():
        steps = ", ".join(f"{figure(row.output.value.value)} at {row.level.words}" for row in (of[0], of[-1]))
        ways.append(f"{name} {steps}")
    return f"Output tokens a second at {levels} levels. {'; '.join(ways)}. All figures stand in the tables below."


def ratio(contest: Contest, some: Looks) -> Element | None:
    """Ratios to the baseline over the load, with the margin and the crossovers; None where there is no ratio."""
    drawn = {
        name: [(row, row.output.ratio) for row in contest.of(name) if row.output.ratio] for name in contest.variants
    }
    values = [value for of in drawn.values() for _, value in of]
    if not values:
        return None
    axis, x, places = _axis(contest)
    edges = (1 - contest.margin, 1 + contest.margin)
    box = Box(x, scales.linear([*_with_limits(values), *edges], zero=False))
    marks: list[Child] = [
        chart.level_band(box, *edges, "margin"),
        *chart.frame(box, axis, f"output tokens a second, times those of {contest.baseline}"),
    ]
    one = box.down(1)
    marks.append(tag("line", x1=box.left, x2=box.width - box.right, y1=one, y2=one, class_="one"))
    for of in drawn.values():
        marks += _series(box, of, places, some, contest.variants, f"x {contest.baseline}")
    texts = []
    for name, found in contest.crossovers.items():
        for edge in found:
            marks.append(_crossing(box, edge, name, some[name]))
            low, high = edge.between
            place = (box.across(edge.at or (low * high) ** 0.5), box.top + 18)
            texts.append((place, figure(edge.at) if edge.at else f"{low:g}–{high:g}", some[name]))
    marks += chart.labels(box, texts)
    title = f"{contest.workload}: ratio to {contest.baseline} over {axis}"
    return chart.svg(box, title, _ratio_words(contest), marks)


def _crossing(box: Box, one: Crossover, name: str, look: Look) -> Element:
    """Where a variant passes the baseline: its place with an interval, or only the levels between which it lies."""
    low, high = one.interval or one.between
    return tag(
        "g",
        tag("title", _passing(name, one)),
        chart.shade(box, low, high, f"between {look.colour}"),
        tag("path", d=f"M{box.across(one.at):.1f} {box.top:.1f}V{box.floor:.1f}", class_=f"crossing {look.colour}")
        if one.at
        else None,
    )


def _passing(name: str, one: Crossover) -> str:
    return f"{name} is {spelling.side(one)} {spelling.crossing(one)}"


def _ratio_words(contest: Contest) -> str:
    crossed = "; ".join(_passing(name, one) for name, found in contest.crossovers.items() for one in found)
    return f"Ratios of output tokens a second, by block. Crossovers: {crossed or 'none'}."


def trade(contest: Contest, some: Looks) -> Element | None:
    """Throughput of all against the speed of one stream, levels joined; None where no speed is known."""
    rows = {name: [(row, row.stream) for row in contest.of(name) if row.stream] for name in contest.variants}
    known = [one for of in rows.values() for one in of]
    if not known:
        return None
    x = scales.decades([stream.value.value for _, stream in known])
    box = Box(x, scales.linear([row.output.value.value for row, _ in known]), height=300.0)
    marks: list[Child] = [*chart.frame(box, "tokens a second of one stream", "output tokens a second")]
    texts = []
    for name, of in rows.items():
        spots = [(box.across(stream.value.value), box.down(row.output.value.value)) for row, stream in of]
        marks += [chart.line(spots, some[name])] if spots else []
        for spot, (row, stream) in zip(spots, of, strict=True):
            speed = f"tok/s, {figure(stream.value.value)} tok/s of one stream"
            marks.append(chart.mark(spot, some[name], told(row, speed, row.output.value)))
            if len(rows) <= NAMED_MAX or row in (of[0][0], of[-1][0]):
                level = f"{place_of(row.level):g}" if place_of(row.level) else row.level.words
                texts.append((spot, level, some[name]))
    marks += chart.labels(box, texts)
    title = f"{contest.workload}: throughput against the speed of one stream"
    said = "Each variant's levels joined: up is more throughput, right is a faster stream."
    return chart.svg(box, title, f"{said} All figures stand in the tables below.", marks)


def ranges(contest: Contest, name: str, some: Looks) -> Element | None:
    """A latency over the load: from the 10th to the 90th percentile, a mark at the median, a dash at p99."""
    rows = [row for row in contest.in_order() if row.distributions.get(name)]
    if not rows:
        return None
    axis, x, places = _axis(contest)
    shown = [value for row in rows for value in _range(row, name)]
    box = Box(x, scales.decades(shown))
    marks: list[Child] = [*chart.frame(box, axis, f"{LATENCIES[name]}, ms")]
    for row in rows:
        marks += _upright(box, row, name, places, contest.variants, some)
    title = f"{contest.workload}: {LATENCIES[name]} over {axis}"
    said = "A line from the 10th to the 90th percentile of the requests, a mark at the median, a dash at p99."
    return chart.svg(box, title, f"{said} All figures stand in the tables below.", marks)


def _range(row: Row, name: str) -> list[float]:
    curve, last = row.distributions[name], row.times.get(name, {}).get("p99")
    return [*(curves.at(curve, share) for share in (*MIDDLE, 0.5)), *([last.value.value] if last else [])]


def _upright(
    box: Box, row: Row, name: str, places: Mapping[Level, float], names: Sequence[str], some: Looks
) -> Iterable[Element]:
    look, (low, high, middle, *last) = some[row.variant], _range(row, name)
    room = 1.6 * chart.nearest(map(box.across, places.values()))  # nothing joins them: they may stand further apart
    x = box.across(places[row.level]) + chart.dodge(names.index(row.variant), len(names), room, 2 * chart.GAP_MAX)
    yield chart.whisker(box, x, (low, high), look, capped=False)
    for p99 in last:
        yield tag("path", d=f"M{x - 4:.1f} {box.down(p99):.1f}h8", class_=f"whisker {look.colour}")
    median: Figure | None = row.times[name].get("p50") if name in row.times else None
    value = median.value if median else Estimate(middle, None, None, row.output.value.blocks)
    yield chart.mark((x, box.down(middle)), look, told(row, f"ms median {LATENCIES[name]}", value))


def shares(contest: Contest, name: str, level: Level, some: Looks) -> Element | None:
    """The whole distribution of a latency at one level: which share of the requests took no longer."""
    rows = [row for row in contest.at(level) if row.distributions.get(name)]
    if not rows:
        return None
    every = [row.distributions[name] for row in contest.rows.values() if row.distributions.get(name)]
    x = scales.decades([curves.at(curve, share) for curve in every for share in (0.01, 1.0)])
    y = scales.Scale(0, 1, False, tuple((share / 100, f"{share} %") for share in (0, 25, 50, 75, 100)))
    box = Box(x, y, height=200.0)
    marks: list[Child] = [*chart.frame(box, "ms", "share of requests that took no longer")]
    for row in rows:
        spots = [
            (box.across(value), box.down(share))
            for value, share in zip(row.distributions[name], curves.SHARES, strict=True)
        ]
        marks += [chart.line(spots, some[row.variant])]
        middle = box.across(curves.at(row.distributions[name], 0.5)), box.down(0.5)
        marks += [chart.mark(middle, some[row.variant], _median_told(row, name))]
    title = f"{contest.workload}: {LATENCIES[name]} at {level.words}"
    medians = "; ".join(_median_told(row, name) for row in rows)
    return chart.svg(box, title, f"Share of requests that took no longer. {medians}.", marks)


def _median_told(row: Row, name: str) -> str:
    middle = figure(curves.at(row.distributions[name], 0.5))
    return f"{row.variant} at {row.level.words}: median {middle} ms; {_runs(row)}"
