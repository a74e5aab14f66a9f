"""report.html: the answer first, then the figures and tables it rests on, then where every number comes from.

Pure: from what a comparison found to one text that needs nothing but itself. Owns order and wording of the page;
drawings are `plots` and `strips`, tables `sheets` and `origin`, how it looks page.css.
"""

import importlib.resources
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from loadgen import advice, paired, tables
from loadgen.adaptive import Offer
from loadgen.advice import Choice
from loadgen.comparison import Contest
from loadgen.page import chart, kinds, markup, origin, plots, sheets, strips
from loadgen.page.markup import Child, tag
from loadgen.page.origin import Start
from loadgen.page.plots import Looks
from loadgen.page.strips import Timeline
from loadgen.pairing import Point
from loadgen.words import many

TITLE = "Which variant to run"
PARTS = {
    "throughput": "Throughput and ratio",
    "trade": "Throughput against the speed of one stream",
    "latency": "Latency",
    "timeline": "One Point of each variant over time",
    "kinds": "Accept length by kind of prompt",
    "tables": "All figures",
}


@dataclass(frozen=True)
class Content:
    """All that the page shows. `chosen` by workload and goal, `commands` by variant, `timelines` by workload."""

    contests: Sequence[Contest]
    chosen: Mapping[tuple[str, str], Sequence[Choice]]
    commands: Mapping[str, str]
    points: Sequence[Point]
    never: Sequence[Mapping[str, Any]]
    starts: Sequence[Start]
    timelines: Mapping[str, Sequence[Timeline]]
    offers: Sequence[Offer] = ()


def html(content: Content) -> str:
    """The whole page."""
    names = dict.fromkeys(name for contest in content.contests for name in contest.variants)
    looks = plots.looks(names)
    body = [
        tag("a", "Skip to the answer", href="#answer", class_="skip"),
        tag("header", tag("h1", TITLE), tag("p", "; ".join(tables.title(one) for one in content.contests))),
        tag("main", _answer(content), _contents(content), *_body(content, looks)),
    ]
    title = f"{TITLE}: {'; '.join(tables.title(one) for one in content.contests)}"
    return markup.page(title, _file("page.css"), _file("page.js"), body)


def _file(name: str) -> str:
    return (importlib.resources.files("loadgen.page") / name).read_text(encoding="utf-8")


def _body(content: Content, looks: Looks) -> Iterable[Element]:
    for number, contest in enumerate(content.contests):
        yield from _contest(contest, number, looks, content.timelines.get(contest.workload, ()))
    heading = tag("h2", "Points that do not count")
    yield tag("section", heading, sheets.not_valid(content.points, content.never), id="not-valid")
    yield _origin(content.starts, looks)


def _answer(content: Content) -> Element:
    parts: list[Child] = [tag("h2", "Answer")]
    for contest in content.contests:
        if len(content.contests) > 1:
            parts.append(tag("h3", contest.workload))
        parts += [tag("p", tag("strong", line), class_="simulated") for line in tables.speeds(contest)]
        for goal in advice.GOALS:
            said = advice.sentence(contest, content.chosen[contest.workload, goal])
            names = [one.variant for one in content.chosen[contest.workload, goal]]
            parts.append(tag("p", tag("strong", f"For {goal}: "), _marked(said, names), class_="answer"))
        parts.append(tag("p", _weight(contest)))
    parts.append(tag("p", _counts(content)))
    parts.append(tag("p", origin.summary(content.starts)) if content.starts else None)
    parts += (tag("p", tables.offered(one).plain) for one in content.offers)
    parts += _commands(content)
    return tag("section", *parts, id="answer")


def _marked(said: str, names: Iterable[str]) -> list[Child]:
    """A sentence with the names in it in bold."""
    known = sorted(set(names), key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, known))})", said) if known else [said]
    return [tag("strong", part) if part in known else part for part in parts]


def _weight(contest: Contest) -> str:
    """How much the number of blocks may carry; the level with the fewest decides."""
    blocks, fewest = len(contest.blocks), min(row.output.value.blocks for row in contest.rows.values())
    some = f" (of {blocks}; some rows have no more that are VALID)" if fewest < blocks else ""
    return f"{paired.weight(fewest)}{some}. A block is a start of every server; 3 are a look, 5 a claim."


def _counts(content: Content) -> Child:
    """Verdicts by number, with the way to the reasons."""
    counts = Counter(point["verdict"]["status"] for point in content.points)
    parts = [f"{count} {status}" for status, count in sorted(counts.items(), key=lambda one: (one[0] != "VALID", one))]
    parts += [f"{len(content.never)} never measured"] if content.never else []
    told = f"Points: {', '.join(parts)}. "
    bad = len(content.points) - counts["VALID"] + len(content.never)
    return [told, tag("a", "Which ones and why", href="#not-valid")] if bad else told


def _commands(content: Content) -> Iterable[Element]:
    """How the chosen variants are started; the others' lines are one step away."""
    picked = dict.fromkeys(one.variant for some in content.chosen.values() for one in some)
    known = {name: command for name, command in content.commands.items() if command}
    first = [_command(name, known[name]) for name in picked if name in known]
    others = [_command(name, command) for name, command in known.items() if name not in picked]
    if first:
        yield tag("div", tag("h3", "Launch commands"), *first, class_="commands")
    if others:
        yield tag("details", tag("summary", f"Commands of {many(len(others), 'other variant')}"), *others)


def _command(name: str, command: str) -> Element:
    """The line as it is typed; on the page it breaks between flags and not in them."""
    first, *flags = command.split(" --")
    words = [first, *((" ", tag("span", f"--{flag}")) for flag in flags)]
    label = f"command of {name}"
    return tag(
        "div", tag("h4", name), tag("pre", *words, class_="command", tabindex="0", role="group", aria_label=label)
    )


def _contents(content: Content) -> Element:
    """Ways to all sections."""
    ways = [
        (f"#c{number}-{key}", f"{contest.workload}: {words}" if len(content.contests) > 1 else words)
        for number, contest in enumerate(content.contests)
        for key, words in PARTS.items()
    ]
    ways += [("#not-valid", "Points that do not count"), ("#origin", "Where the numbers come from")]
    items = (tag("li", tag("a", words, href=way)) for way, words in ways)
    return tag("nav", tag("h2", "Contents"), tag("ul", items), aria_label="contents")


def _contest(contest: Contest, number: int, looks: Looks, timelines: Sequence[Timeline]) -> Iterable[Element]:
    mine = {name: looks[name] for name in contest.variants}
    parts: dict[str, Iterable[Child]] = {
        "throughput": _throughput(contest, mine),
        "trade": _figures([_figure(plots.trade(contest, mine), TRADE_WORDS)]),
        "latency": _latency(contest, mine),
        "timeline": _timelines(contest, timelines, mine),
        "kinds": _kinds(contest, mine),
        "tables": _tables(contest),
    }
    legend = chart.legend(mine.items())
    for key, words in PARTS.items():
        drawn = list(parts[key])
        heading = tag("h2", f"{contest.workload}: {words[0].lower()}{words[1:]}")
        yield tag(
            "section", heading, legend if key not in ("tables", "timeline") else None, *drawn, id=f"c{number}-{key}"
        )


WHISKERS = (
    "Whiskers with caps are 95 % intervals across starts; without caps they speak of one run only and say nothing of "
    "another start. An arrow: the interval goes on."
)
STARRED = "* the interval speaks of the requests that were measured, all blocks' together, not of another start"
RATIO_WORDS = "The grey band is the margin within which a difference counts as none; a vertical line is a crossover."
TRADE_WORDS = "Up is more throughput, right is a faster stream; numbers at the marks are levels of load."


def _throughput(contest: Contest, looks: Looks) -> Iterable[Child]:
    yield from _figures(
        [_figure(plots.throughput(contest, looks), WHISKERS), _figure(plots.ratio(contest, looks), RATIO_WORDS)]
    )
    yield sheets.crossovers(contest)


def _figure(drawing: Element | None, caption: str, heading: str | None = None) -> Element | None:
    """A drawing with its caption below it; a heading, where several drawings look alike, stands above."""
    if drawing is None:
        return None
    told = tag("figcaption", tag("strong", heading), f" {caption}") if heading else tag("figcaption", caption)
    return tag("figure", *((told, drawing) if heading else (drawing, told)))


def _figures(drawn: Sequence[Element | None]) -> Iterable[Child]:
    """Figures side by side, or that nothing is known for them."""
    yield tag("div", *drawn, class_="figures") if any(one is not None for one in drawn) else tag("p", "Not known.")


RANGE_WORDS = "From the 10th to the 90th percentile of all blocks' requests; the mark is the median, the dash p99."


def _latency(contest: Contest, looks: Looks) -> Iterable[Child]:
    """Ranges side by side, and below them whole distributions, level by level."""
    names = [name for name in plots.LATENCIES if any(row.distributions.get(name) for row in contest.rows.values())]
    yield from _figures([_figure(plots.ranges(contest, name, looks), RANGE_WORDS) for name in names])
    for name in names:
        whole = [_figure(plots.shares(contest, name, level, looks), "", level.words) for level in contest.levels]
        summary = tag("summary", f"Whole distributions of the {plots.LATENCIES[name]}, level by level")
        words = tag("p", "All requests of all blocks: which share of them took no longer. The mark is the median.")
        yield tag("details", summary, words, tag("div", *whole, class_="figures small"))


def _timelines(contest: Contest, timelines: Sequence[Timeline], looks: Looks) -> Iterable[Child]:
    if not timelines:
        yield tag("p", "Not known.")
        return
    yield tag(
        "p",
        "The first block's Point at the highest load that all variants share. What is shaded does not count: before "
        "the window and after it. The server's own figures are placed by the wall clocks of both machines.",
    )
    drawn = (
        _figure(
            strips.drawing(line, looks[line.variant], contest.workload),
            strips.in_words(line),
            f"{line.variant} at {line.level}:",
        )
        for line in timelines
    )
    yield tag("div", *drawn, class_="figures")


def _kinds(contest: Contest, looks: Looks) -> Iterable[Child]:
    drawing = kinds.drawing(contest, looks)
    if drawing is None:
        yield tag("p", "No variant tells its accept length by kind of prompt.")
        return
    yield tag("p", kinds.source(contest))
    yield tag("div", _figure(drawing, "The line is the range over levels, the mark their mean."), class_="figures")
    yield sheets.by_kind(contest)


def _tables(contest: Contest) -> Iterable[Child]:
    yield sheets.throughput(contest)
    yield from sheets.latencies(contest)
    yield sheets.drift(contest)
    caveats = [line for row in contest.rows.values() for point in row.points for line in point.get("caveats") or ()]
    lines = dict.fromkeys([STARRED, *tables.notes(contest), *caveats])
    yield tag("ul", (tag("li", line) for line in lines), class_="notes")


def _origin(starts: Sequence[Start], names: Iterable[str]) -> Element:
    return tag(
        "section",
        tag("h2", "Where the numbers come from"),
        tag("p", "Every row of a table names its runs: the folders that hold each request's times."),
        origin.starts_table(starts),
        *origin.differences(starts, names),
        *origin.details(starts),
        id="origin",
    )
