"""A comparison for a person at a terminal: the answer first, then the tables it rests on, then what is missing.

Owns wording and layout; makes no numbers of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadgen import advice, noise, paired, spelling
from loadgen.adaptive import Offer
from loadgen.advice import Choice
from loadgen.comparison import Contest, Figure
from loadgen.gate import Judged
from loadgen.margin import in_words
from loadgen.pairing import Point, Unlike
from loadgen.report import level_of
from loadgen.spelling import spread
from loadgen.verdict import VALID
from loadgen.words import NOTHING, clean, figure, many, percent, simulated

WORD_COLOURS = {paired.BETTER: "green", paired.WORSE: "red", paired.SAME: "cyan"}
SAID_MAX = 20  # Points that are not VALID are told one by one up to so many


def title(contest: Contest) -> str:
    """Workload, model, engine, blocks; of what was allowed to differ all that there is."""
    points = [point for row in contest.rows.values() for point in row.points]
    models = dict.fromkeys(str(point["model"]) for point in points)
    engines = dict.fromkeys(f"{point['engine']} {point.get('engine_version') or ''}".strip() for point in points)
    parts = [contest.workload, ", ".join(models), ", ".join(engines), many(len(contest.blocks), "block")]
    return clean(" · ".join(parts))


def speeds(contest: Contest) -> list[str]:
    """The headings of what was simulated, at which speeds."""
    points = [point for row in contest.rows.values() for point in row.points if point.get("simulated")]
    return [simulated(speed) for speed in sorted({point.get("sim_speed") or 1.0 for point in points})]


def whole(
    contests: Sequence[Contest], chosen: Mapping[tuple[str, str], Sequence[Choice]], commands: Mapping[str, str]
) -> RenderableType:
    """All contests. `chosen` has each one's choices by workload and goal, `commands` how a variant is started."""
    return Group(*(part for contest in contests for part in _contest(contest, chosen, commands)))


def _contest(
    contest: Contest, chosen: Mapping[tuple[str, str], Sequence[Choice]], commands: Mapping[str, str]
) -> Iterator[RenderableType]:
    yield Text(title(contest), style="bold", overflow="fold")
    yield from (Text(line, style="bold magenta") for line in speeds(contest))
    yield from (Text(clean(one.words), style="bold cyan", overflow="fold") for one in noise.of(contest, commands))
    for goal in advice.GOALS:
        said = advice.sentence(contest, chosen[contest.workload, goal])
        yield Text(clean(f"for {goal}: {said}"), style="bold", overflow="fold")
    yield Text("")
    yield _throughput(contest)
    yield Text("")
    yield _latency(contest)
    yield from (Text(clean(line), overflow="fold") for line in notes(contest))
    names = dict.fromkeys(one.variant for goal in advice.GOALS for one in chosen[contest.workload, goal])
    told = [(name, commands[name]) for name in names if commands.get(name)]
    if told:
        yield Text("launch commands", style="bold")
    yield from (Text(clean(f"  {name}: {command}"), overflow="fold") for name, command in told)
    yield Text("")


def _table(*headers: tuple[str, bool]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for header, right in headers:
        table.add_column(header, justify="right" if right else "left", overflow="fold", vertical="bottom")
    return table


def _throughput(contest: Contest) -> Table:
    promised = any(row.goodput for row in contest.rows.values())
    table = _table(
        *(("load", False), ("variant", False), ("output tok/s", True), (f"x {contest.baseline}", True), ("", False)),
        *(("tok/s per\nstream", True), ("accept\nlength", True), ("failed", True), ("blocks", True)),
        *((("goodput\nrequests/s", True), (f"x {contest.baseline}", True), ("", False)) if promised else ()),
    )
    for level in contest.levels:
        for place, row in enumerate(contest.at(level)):
            table.add_row(
                level.words if not place else "",
                clean(row.variant),
                spread(row.output.value),
                ratio(row.output),
                said(row.output),
                figure(row.stream.value.value if row.stream else None),
                figure(row.accept_length),
                percent(row.failed / row.requests if row.requests else None),
                str(row.output.value.blocks),
                *(_goodput(row.goodput) if promised else ()),
            )
    return table


def _goodput(shown: Figure | None) -> tuple[str, str, Text]:
    """Goodput with its ratio and word; a row that was measured without objectives has none."""
    return (spread(shown.value), ratio(shown), said(shown)) if shown else (NOTHING, NOTHING, Text(""))


def ratio(shown: Figure, within: str = spelling.STAR) -> str:
    """A figure's ratio to the baseline's with its interval."""
    return spelling.ratio(shown.ratio, within)


def said(shown: Figure) -> Text:
    """The word of a figure."""
    return Text(shown.word or "", style=WORD_COLOURS.get(shown.word or "", ""))


def _latency(contest: Contest) -> Table:
    table = _table(
        *(("load", False), ("variant", False), ("TTFT ms p50 / p90 / p99", True), ("p50 x", True), ("", False)),
        *(("ms per token p50 / p90 / p99", True), ("p50 x", True), ("", False)),
    )
    for level in contest.levels:
        for place, row in enumerate(contest.at(level)):
            cells: list[Any] = []
            for name in ("ttft_ms", "tpot_ms"):
                quantiles = row.times.get(name, {})
                middle = quantiles.get("p50")
                values = [quantiles[q].value.value if q in quantiles else None for q in ("p50", "p90", "p99")]
                cells += [" / ".join(map(figure, values)), ratio(middle) if middle else NOTHING]
                cells.append(said(middle) if middle else "")
            table.add_row(level.words if not place else "", clean(row.variant), *cells)
    return table


def notes(contest: Contest) -> Iterator[str]:
    """What stands below the tables: crossovers, drift, scopes of intervals, cautions."""
    for name, found in contest.crossovers.items():
        for one in found:
            yield f"crossover: {name} is {spelling.side(one)} {spelling.crossing(one)}"
        if len(found) > 1:
            yield f"{name} crosses {len(found)} times: no single number says where it is better"
    yield from kinds(contest)
    for drift in contest.drift:
        again = f"{contest.baseline} again at the end {spelling.percent(drift.ratio)} %"
        yield f"drift at {drift.level.words}: {again} (two starts, no interval)"
    yield from contest.cautions
    shown = [row.output.value for row in contest.rows.values()]
    if any(value.scope == paired.WITHIN for value in shown):
        yield "* within one run: says nothing of another start of the server; block=0,1,2 under -m are three starts"
    yield f"same: proven to differ by less than {100 * contest.margin:g} %; intervals are 95 %, paired by block"
    yield "p99 stands where there are enough requests for its interval (368)"


def offered(offer: Offer) -> Text:
    """One server for both ranges of load."""
    does = "; ".join(offer.words)
    told = f"one server could have both: {offer.chain} with {does} (--adaptive FILE writes it, for eagle_dynamic)"
    return Text(clean(told), overflow="fold")


def kinds(contest: Contest) -> Iterator[str]:
    """Accept length by kind of prompt, of each variant that has one, at the lowest level of it that was measured."""
    for name in contest.variants:
        row = next((row for row in contest.of(name) if row.accept_by_kind), None)
        if row is None:
            continue
        told = [one for point in row.points for one in (point["summary"].get("by_kind") or {}).values()]
        stands_in = any(one.get("accept_source") == "tokens_per_chunk" for one in told)
        what = "tokens an event, in the place of accept length," if stands_in else "accept length"
        shown = ", ".join(f"{kind} {value:.2f}" for kind, value in row.accept_by_kind.items())
        yield f"{what} by kind of prompt, {name} at {row.level.words}: {shown}"


def not_valid(points: Sequence[Point], never: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Every Point that does not count, and why; nothing is left out because it looks bad."""
    bad = [point for point in points if point["verdict"]["status"] != VALID]
    if not bad and not never:
        return Group()
    several = len({point.get("workload") for point in points}) > 1
    told = [f"  {_asked(point, point['load'], several)}: {_doubt(point)}" for point in bad[:SAID_MAX]]
    if len(bad) > SAID_MAX:
        counts = Counter(point["verdict"]["status"] for point in bad[SAID_MAX:])
        told.append(f"  and {', '.join(f'{count} {status}' for status, count in counts.items())} more")
    for line in never:
        why = f"{line['status']}, never measured: {line.get('reason') or NOTHING}"
        told.append(f"  {_asked(line, line, several)}: {why}")
    advice_of = (reason.get("advice") for point in bad for reason in point["verdict"].get("reasons", ()))
    told += [f"what to do: {one}" for one in dict.fromkeys(filter(None, advice_of))]
    head = Text(f"{len(bad) + len(never)} of {many(len(points) + len(never), 'Point')} not VALID", style="bold yellow")
    return Group(head, *(Text(clean(line), overflow="fold") for line in told), Text(""))


def _asked(point: Mapping[str, Any], load: Mapping[str, Any], several: bool) -> str:
    """Which Point it is; of several workloads also which of them."""
    workload = f"{point.get('workload') or NOTHING} · " if several else ""
    return f"{workload}{point.get('variant')} · block {point.get('block')} · {level_of(load)}"


def _doubt(point: Point) -> str:
    """What speaks against a Point."""
    return f"{point['verdict']['status']}: {'; '.join(map(in_words, point['verdict'].get('reasons', ()))) or NOTHING}"


def gates(judged: Sequence[Judged]) -> Iterable[Text]:
    """Each gate, and what decided it."""
    for one in judged:
        style = "bold green" if one.holds else "bold red"
        yield Text(f"gate {'holds' if one.holds else 'FAILS'}: {one.gate.text}", style=style, overflow="fold")
        yield from (Text(f"  {clean(line)}", overflow="fold") for line in one.lines)


def refused(differences: Sequence[Unlike]) -> str:
    """Why nothing is compared, and what to do."""
    lines = [f"  {clean(one.words)}" for one in differences]
    names = " ".join(sorted({one.name.split()[0] for one in differences}))
    return "\n".join(["these results are not alike, so no ratio of them means anything:", *lines,
                      f"compare fewer folders, or name what may differ: --allow {names}"])  # fmt: skip
