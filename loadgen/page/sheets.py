"""The page's tables: every figure with its interval, word and runs; drift; what does not count and why.

Pure. Numbers are worded as at the terminal (`tables`, `words`); makes none of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from loadgen import paired, spelling, tables
from loadgen.comparison import Contest, Figure, Row
from loadgen.formats import block_name
from loadgen.margin import in_words as reason_in_words
from loadgen.page import kinds, plots
from loadgen.page.markup import Child, key, tag
from loadgen.pairing import Point
from loadgen.report import level_of
from loadgen.verdict import VALID
from loadgen.words import NOTHING, figure, many, percent

LOG_CHARS_MAX = 4000  # of a failed server's log, its end
SAID_MAX = 1000  # Points that are not VALID: half a megabyte
# A sign before each word, so that it is not told by colour alone.
SIGNS = {paired.BETTER: "▲", paired.WORSE: "▼", paired.SAME: "=", paired.UNDECIDED: "?", paired.TOO_FEW: "·"}
TIMES = {**plots.LATENCIES, "e2e_ms": "time of a request"}


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[Child]], named: int = 2, sparse: bool = False
) -> Element:
    """A table with a caption; the first `named` cells of a row are its heading. It scrolls by itself where narrow.

    Of a `sparse` one, columns in which no row has anything are left out. A rule stands where the first heading changes.
    """
    cells = [list(row) for row in rows]
    shown = [
        place
        for place in range(len(heads))
        if not sparse or any(row[place] not in (NOTHING, "", None) for row in cells)
    ]
    head = tag("tr", (tag("th", heads[place], scope="col") for place in shown))
    before = [None, *(row[0] for row in cells)]
    body = (
        tag(
            "tr",
            (_cell(place, row[place], named) for place in shown),
            class_="new" if named > 1 and row[0] != last else None,
        )
        for row, last in zip(cells, before, strict=False)
    )
    whole = tag("table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", role="region", tabindex="0", aria_label=f"table: {caption}")


def _cell(number: int, cell: Child, named: int) -> Element:
    return tag("th", cell, scope="row") if number < named else tag("td", cell)


def beside(shown: Figure | None) -> Child:
    """A figure's ratio to the baseline, and its word with a sign."""
    if shown is None or shown.ratio is None:
        return NOTHING
    said = shown.word or ""
    word = tag("span", f"{SIGNS[said]} {said}", class_=f"word {said.split()[0]}") if said else None
    return tag("span", tables.ratio(shown), " ", word)


def throughput(contest: Contest) -> Element:
    """Output tokens a second, beside the baseline, with all that belongs to it."""
    heads = (
        *("load", "variant", "output tok/s", f"x {contest.baseline}", "tok/s of a stream", f"x {contest.baseline}"),
        *("goodput requests/s", f"x {contest.baseline}"),
        *("accept length", "told by", "failed", "requests", "runs"),
    )
    rows = (
        [
            *(row.level.words, row.variant),
            *(spelling.spread(row.output.value), beside(row.output)),
            *(spelling.spread(row.stream.value) if row.stream else NOTHING, beside(row.stream)),
            *(spelling.spread(row.goodput.value) if row.goodput else NOTHING, beside(row.goodput)),
            *(figure(row.accept_length), row.accept_source),
            *(percent(row.failed / row.requests if row.requests else None), figure(row.requests), runs(contest, row)),
        ]
        for row in contest.in_order()
    )
    return table(f"Throughput, {contest.workload}: geometric means over blocks", heads, rows, sparse=True)


def runs(contest: Contest, row: Row) -> Element:
    """Where a row's numbers come from: each block's own value and the folder of its Point."""
    of = dict(zip(row.output.by_block, row.points, strict=True))
    several = len({block.root for block in of}) > 1
    lines = [
        tag(
            "li", f"block {block_name(block) if several else block.number}: {figure(value)} tok/s, ", _folder(of[block])
        )
        for block, value in row.output.by_block.items()
    ]
    return tag(
        "details", tag("summary", many(len(lines), "run")), tag("ul", *lines), class_="runs", id=_runs_key(contest, row)
    )


def _runs_key(contest: Contest, row: Row) -> str:
    return f"runs-{key(f'{contest.workload} {row.variant} {row.level.words} {row.level.requests or str()}')}"


def _folder(point: Point) -> Element:
    return tag("code", point["folder"])


def latencies(contest: Contest) -> Iterable[Element]:
    """A table for each latency that was measured."""
    for name, called in TIMES.items():
        if any(row.times.get(name) for row in contest.rows.values()):
            yield _latency(contest, name, called)


def _latency(contest: Contest, name: str, called: str) -> Element:
    quantiles = ("p50", "p90", "p99")
    heads = ["load", "variant"]
    for quantile in quantiles:
        heads += [f"{quantile}, ms", f"x {contest.baseline}"]
    rows = (
        [row.level.words, row.variant, *_quantiles(row, name, quantiles), _pooled(row, name), _same(contest, row)]
        for row in contest.in_order()
    )
    caption = f"{called.capitalize()}, {contest.workload}: all blocks' requests"
    return table(caption, [*heads, "of", "runs"], rows, sparse=True)


def _same(contest: Contest, row: Row) -> Element:
    """The way to the runs of the same row above: they are the same."""
    return tag("a", many(len(row.points), "run"), href=f"#{_runs_key(contest, row)}")


def _quantiles(row: Row, name: str, quantiles: Sequence[str]) -> Iterable[Child]:
    for quantile in quantiles:
        shown = row.times.get(name, {}).get(quantile)
        if shown is None:
            yield from (NOTHING, NOTHING)
        else:
            yield from (spelling.spread(shown.value), beside(shown))


def _pooled(row: Row, name: str) -> str:
    n = next((shown.n for shown in row.times.get(name, {}).values()), None)
    return many(n, "request") if n else NOTHING


def by_kind(contest: Contest) -> Element | None:
    """Accept length by kind of prompt; None where no variant tells one."""
    values = kinds.accepted(contest)
    names = sorted({kind for of in values.values() for kind in of})
    if not names:
        return None
    rows = ([kind, *(_mean_and_range(of.get(kind)) for of in values.values())] for kind in names)
    caption = f"Accept length by kind of prompt, {contest.workload}: mean over levels (lowest to highest)"
    return table(caption, ["kind", *values], rows, named=1)


def _mean_and_range(values: Sequence[float] | None) -> str:
    if not values:
        return NOTHING
    return f"{figure(sum(values) / len(values))} ({figure(min(values))} to {figure(max(values))})"


def crossovers(contest: Contest) -> Element | None:
    """Every crossover; None where there is none."""
    rows = [
        [name, spelling.side(one), spelling.crossing(one)]
        for name, found in contest.crossovers.items()
        for one in found
    ]
    return table(f"Crossovers, {contest.workload}", ("variant", "is", "load"), rows, named=1) if rows else None


def drift(contest: Contest) -> Element:
    """The baseline measured once more at the end, or that it was not."""
    if not contest.drift:
        return tag("p", f"Drift: unknown, {contest.baseline} was not measured again at the end.")
    rows = (
        [one.level.words, figure(one.first), figure(one.again), f"{spelling.percent(one.ratio)} %"]
        for one in contest.drift
    )
    caption = f"Drift, {contest.workload}: {contest.baseline} again at the end (two starts, no interval)"
    return table(caption, ("load", "first, tok/s", "again, tok/s", "change"), rows, named=1)


def not_valid(points: Sequence[Point], never: Sequence[Mapping[str, Any]]) -> Element:
    """Every Point that does not count, and why."""
    bad = [point for point in points if point["verdict"]["status"] != VALID]
    rows = [_bad(point) for point in bad] + [_never(line) for line in never]
    if not rows:
        return tag("p", f"All {many(len(points), 'Point')} are VALID.")
    heads = ("verdict", "variant", "load", "block", "why, and what to do", "run")
    cut = f"; the first {SAID_MAX}, the others stand in ledger.jsonl" if len(rows) > SAID_MAX else ""
    return table(f"{len(rows)} of {many(len(points) + len(never), 'Point')} not VALID{cut}", heads, rows[:SAID_MAX])


def _bad(point: Point) -> list[Child]:
    why: Child = [_reason(reason) for reason in point["verdict"].get("reasons", ())] or NOTHING
    load = f"{level_of(point['load'])}, {point.get('workload')}"
    return [point["verdict"]["status"], point["variant"], load, point["block"], why, _folder(point)]


def _reason(reason: Mapping[str, Any]) -> Element:
    advised = f": {reason['advice']}" if reason.get("advice") else ""
    return tag("div", reason_in_words(reason) + advised, _log(reason.get("log_tail")))


def _log(tail: str | None) -> Element | None:
    if not tail:
        return None
    return tag("details", tag("summary", "the log's last lines"), tag("pre", tail[-LOG_CHARS_MAX:]))


def _never(line: Mapping[str, Any]) -> list[Child]:
    said = [line.get("reason") or NOTHING, f": {line['advice']}" if line.get("advice") else ""]
    why = tag("div", *said, _log(line.get("log_tail")))
    where = tag("code", f"{line.get('root')}/{line.get('folder') or ''}")
    status = f"{line['status']}, never measured"
    return [status, line.get("variant"), f"{level_of(line)}, {line.get('workload')}", line.get("block"), why, where]
