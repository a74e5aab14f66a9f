"""What a person reads before and after: the plan, tables of results, reasons, the next step.

Owns wording and layout; makes no numbers of its own and prints nothing. Texts of servers and requests are cleaned
first: a terminal must not obey them.
"""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadgen import beside, chaos, objectives, replay, search, window
from loadgen.asked import Run
from loadgen.config import BASELINE, in_words, levels
from loadgen.progress import Progress
from loadgen.verdict import INTERRUPTED, INVALID, VALID, margin
from loadgen.words import NOTHING, clean, console, duration, figure, many, percent, simulated
from server.spec import ServerSpec

__all__ = ["Progress", "ending", "ledger_table", "level_table", "next_step", "plan_text", "rendered", "run_line"]

COLOURS = {VALID: "green", INVALID: "yellow", INTERRUPTED: "yellow"}
IN_THE_TABLE = ("requests", "failed_share")  # rules whose numbers stand there already
Point = Mapping[str, Any]


def rendered(what: RenderableType, stream: TextIO, width: int | None = None) -> str:
    """A text or table as the characters that suit `stream`: with colours only where it is a terminal."""
    target = console(stream, width)
    with target.capture() as captured:
        # A plain string is not wrapped, so that paths and commands can be copied.
        target.print(what, soft_wrap=isinstance(what, str))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def level_of(load: Mapping[str, Any]) -> str:
    """One load level in words."""
    return in_words(load.get("concurrency"), load.get("rate"), load.get("trace"))


def level_table(points: Sequence[Point]) -> RenderableType:
    """The levels of each Launch and workload as one table, with all reasons and advice in full below it."""
    of = itemgetter("variant", "block", "launch_id", "workload")
    launches = [list(some) for _, some in groupby(points, key=of)]
    return Group(*(part for launch in launches for part in _launch(launch)))


def _launch(points: list[Point]) -> Iterable[RenderableType]:
    yield _title(points[0])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    opened = any(point["load"].get("rate") is not None for point in points)
    level = "rate\n/s" if opened else "concur-\nrency"
    ttft = ["TTFT\nms\np50/p90", *(["since\nplanned\np50/p90"] if opened else [])]
    for header in (level, "output\ntok/s", "tok/s\nper\nstream", *ttft, "ms per\ntoken\np50/p90"):
        table.add_column(header, justify="right", overflow="fold", vertical="bottom")
    promised = any("slo" in (point.get("summary") or {}) for point in points)
    for header in ("accept\nlength", *(["goodput\nreq/s"] if promised else []), "failed"):
        table.add_column(header, justify="right", overflow="fold")
    table.add_column("verdict", overflow="fold")
    for point in points:
        table.add_row(*_cells(point, opened, promised))
    yield table
    yield from _notes(points)
    yield Text("")


def _title(point: Point) -> Text:
    model, served = point["model"], point.get("model_id")
    if point["engine"] == "external" and served and served != model:
        model = f"serves {served}"  # whatever model.name says, it is not ours
    name, block = _name(point), f"block {point.get('block', 0)}"
    parts = [name, point["engine"], model, point.get("workload"), block]
    title = Text(clean(" · ".join(str(part) for part in parts if part)), style="bold", overflow="fold")
    if point.get("simulated"):
        title.append("\n" + simulated(point.get("sim_speed")), style="bold magenta")
    return title


def _name(point: Mapping[str, Any]) -> str:
    """A variant's name in a Point or a ledger's line; the baseline is measured once more to see drift."""
    return f"{point.get('variant', NOTHING)}{', again at the end' if point.get('repeat') else ''}"


def _cells(point: Point, opened: bool, promised: bool) -> list[Text]:
    load, summary, status = point["load"], point.get("summary") or {}, point["verdict"]["status"]
    failed, requests = summary.get("failed"), summary.get("requests")
    cells = [
        _level(load),
        figure(summary.get("output_tokens_per_s")),
        figure(summary.get("tokens_per_s_per_stream")),
        _pair(summary.get("ttft_ms")),
        *([_pair(summary.get("ttft_planned_ms"))] if opened else []),
        _pair(summary.get("tpot_ms")),
        figure(summary.get("accept_length")),
        *([objectives.goodput(summary)] if promised else []),
        percent(failed / requests if requests and failed is not None else None),
    ]
    # Numbers that may not be believed must not look like those that may.
    style = "" if status == VALID else "dim"
    return [*(Text(cell, style=style) for cell in cells), Text(status, style=COLOURS.get(status, "red"))]


def _level(load: Mapping[str, Any]) -> str:
    """A rate as it was asked for; that of a trace is a mean."""
    if load.get("rate") is None:
        return str(load.get("concurrency", NOTHING))
    return figure(load["rate"]) if load.get("trace") else f"{load['rate']:g}"


def _pair(times: Mapping[str, float | None] | None) -> str:
    if not times or times["p50"] is None:
        return NOTHING
    return f"{figure(times['p50'])}/{figure(times['p90'])}"


def is_whole_run(point: Point) -> bool:
    """Whether a Point had a fixed count of requests and no window."""
    return bool((point.get("summary") or {}).get("whole_run") or point["load"].get("requests"))


def _notes(points: list[Point]) -> Iterable[Text]:
    if any(is_whole_run(point) for point in points):
        yield Text("whole run: tok/s is all tokens / (last output - first sent), ramp-up and drain included")
    closest = _worst_margins([point for point in points if point["verdict"]["status"] == VALID])
    if closest:
        yield Text(f"margins (the closest of all VALID levels): {closest}", style="dim", overflow="fold")
    for caveat in dict.fromkeys(caveat for point in points for caveat in point.get("caveats", ())):
        yield Text(clean(caveat), style="yellow", overflow="fold")
    yield from (Text(line, overflow="fold") for line in (*objectives.lines(points), *beside.lines(points)))
    findings = [finding for point in points for finding in point["verdict"].get("margins", ())]
    quiet = {finding["measured"] for finding in findings if finding["rule"] == "not_proven"}
    if quiet:
        yield Text(clean(f"not proven, because the server does not tell: {', '.join(sorted(quiet))}"), overflow="fold")
    unknown = {f["note"].strip() for f in findings if f["rule"] == "capacity_share" and f["measured"] is None}
    if told := "; ".join(sorted(unknown - {""})):
        yield Text(clean(f"capacity of a worker unknown: {told}"), style="dim", overflow="fold")
    for point in points:
        yield from reasons(point)


def reasons(point: Point) -> Iterable[Text]:
    """One paragraph for each thing that speaks against a Point."""
    status = point["verdict"]["status"]
    for reason in point["verdict"]["reasons"]:
        line = Text(f"{status} at {level_of(point['load'])}: ", style=COLOURS.get(status, "red"), overflow="fold")
        advice = f": {reason['advice']}" if reason.get("advice") else ""
        yield line.append(clean(margin(reason) + advice), style="default")


def _worst_margins(points: list[Point]) -> str:
    """For each rule the level that came closest to its limit."""
    closest: dict[str, tuple[float, str]] = {}
    for point in points:
        load = point["load"]
        level = f" at {load.get('rate') or load.get('concurrency') or 0:g}" if len(points) > 1 else ""
        for finding in point["verdict"].get("margins", ()):
            used = _used(finding)
            if used is not None and used > closest.get(finding["rule"], (-1.0, ""))[0]:
                closest[finding["rule"]] = (used, margin(finding, level))
    return " · ".join(words for _, words in closest.values())


def _used(finding: Mapping[str, Any]) -> float | None:
    """How near a number came to its limit. None for what has no limit, and for what the table has already."""
    measured, limit = finding.get("measured"), finding.get("limit")
    if finding["rule"] in IN_THE_TABLE or not isinstance(measured, int | float) or not limit:
        return None
    if finding.get("at_least"):
        return limit / measured if measured else None
    return abs(measured) / limit


def ledger_table(lines: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The Points of a grid in the order they ran, one line each, reasons in full.

    A line has block, variant, workload (shown where there are several), concurrency or rate, status, exit_code, reason
    and, where there is one, output_tokens_per_s.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    several = len({line.get("workload") for line in lines}) > 1
    for header in ("block", "variant", *(["workload"] if several else []), "load"):
        table.add_column(header, overflow="fold")
    table.add_column("tok/s", justify="right")
    table.add_column("status", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for line in lines:
        status = str(line.get("status", NOTHING))
        asked = [line.get("workload") or NOTHING] if several else []
        cells = [line.get("block", NOTHING), _name(line), *asked, level_of(line)]
        speed = figure(line.get("output_tokens_per_s"))
        reason = Text(clean(line.get("reason") or ""))
        table.add_row(*map(clean, cells), speed, Text(status, style=COLOURS.get(status, "red")), reason)
    return table


def starts(runs: Sequence[tuple[Run, ServerSpec]]) -> int:
    """How many servers are started: consecutive runs that ask for the same one use it together."""
    launches = groupby((spec, run.config.block, run.repeat) for run, spec in runs)
    return sum(1 for (spec, *_), _ in launches if spec.engine != "external")


def plan_text(
    runs: Sequence[Run],
    specs: Sequence[ServerSpec],
    root: Path,
    estimate_s: float | None = None,
    missing: Sequence[int] | None = None,
) -> str:
    """What will happen: servers, Points, how long they take without the servers' starts, where results go.

    `missing`: how many Points of each run are not there from an earlier time; None: all. Starts and estimate are for
    these.
    """
    points = [(run.config, level) for run in runs for level in levels(run.config.load)]
    windows_s = sum(window.window_s_min(conf.load) for conf, level in points if not level.counted)
    left = [len(levels(run.config.load)) for run in runs] if missing is None else missing
    begun = [(run, spec) for run, spec, count in zip(runs, specs, left, strict=True) if count]
    servers = many(starts(begun), "server start")
    least = f", windows of {duration(windows_s)} or more" if windows_s else ""
    time = (
        f", about {duration(estimate_s)} beside the start{'s' if 's' in servers[-1] else ''}" if estimate_s else least
    )
    there = len(points) - sum(left)
    count = many(len(points), "Point") + (f" ({there} VALID already)" if there else "")
    lines = [f"plan: {servers}, {count}{time}; results in {root}"]
    lines += [f"  {run_line(run, spec)}" for run, spec in zip(runs, specs, strict=True)]
    speeds = {spec.sim_speed for spec in specs if spec.engine == "sim"}
    return "\n".join([*lines, *map(simulated, sorted(speeds))])


def run_line(run: Run, spec: ServerSpec) -> str:
    """One line: a run's choices and its levels."""
    conf, load = run.config, run.config.load
    known = [replay.resolved(load, level) for level in levels(load)]
    kind = (
        f"trace {load.trace}, mean rate" if load.trace else f"{load.arrival} rate" if known[0].open else "concurrency"
    )
    asked = ", ".join(
        f"{level.concurrency or level.rate:g}" + (f" ({level.requests} requests)" if level.requests else "")
        for level in known
    )
    name = _name({"variant": conf.variant.name, "repeat": run.repeat})
    what = (name, spec.engine, conf.model.name, conf.workload.name, f"block {conf.block}: {kind} {asked}")
    fault = chaos.fault_of(conf)
    return " · ".join(filter(None, [*what, search.plan_words(conf), f"fault {fault}" if fault else ""]))


def ending(points: Sequence[Point], lines: Sequence[Mapping[str, Any]]) -> str:
    """The tables of a finished command: its Points', and the ledger where there is more than one Launch."""
    parts: list[RenderableType] = [level_table(points)] if points else []
    launches = {point["launch_id"] for point in points}
    if len(launches) > 1 or len(lines) > len(points):
        parts += [Text("Points of this run", style="bold"), ledger_table(lines), Text("")]
    return rendered(Group(*parts), sys.stdout) if parts else ""


def next_step(root: Path, lines: Sequence[Mapping[str, Any]], command: str, planned: int = 0) -> str:
    """Where the files are and the command that comes next; `lines` are the ledger's, `command` what was typed."""
    results, statuses = f"results: {root}", [line["status"] for line in lines]
    bad, missing = sum(status != VALID for status in statuses), max(0, planned - len(statuses))
    if bad or missing:
        resumed = command if "resume=true" in command else f"{command} resume=true"
        left = f", {missing} not begun" if missing else ""
        told = f"{bad} of {many(planned or len(statuses), 'Point')} not VALID{left}"
        return f"{results}\n{told}; measure them again: {resumed}"
    names, blocks = list(dict.fromkeys(line["variant"] for line in lines)), {line["block"] for line in lines}
    if len(names) == 1:
        other = "eagle_topk1_v2" if names[0] == "baseline" else "baseline"
        swapped = _elsewhere(command.replace(f"variant={names[0]}", f"variant={other}"), of_the_variant=True)
        return f"{results}\nnext: {swapped}" if swapped != command and "engine=external" not in command else results
    if len(blocks) == 1 and "block=" not in command and "search" not in command:
        again = _elsewhere(command.replace(" loadgen -m ", " loadgen -m block=0,1,2 ", 1))
        return f"{results}\nnext, since one block tells nothing across server starts: {again}"
    page = f"the comparison as a page: python -m loadgen.compare {root}; " if BASELINE in names else ""
    return f"{results}\nnext: {page}every request, for DuckDB, pandas or Polars: {root}/**/requests.parquet"


def _elsewhere(command: str, of_the_variant: bool = False) -> str:
    """The command without the folder that it was given: another question is refused there, and cannot be resumed.

    `of_the_variant`: without what was set for one variant either, as it is another's turn.
    """
    named = ("hydra.run.dir=", "hydra.sweep.dir=", "resume=true")
    own = ("variant.", "+variant.", "++variant.") if of_the_variant else ()
    return shlex.join(word for word in shlex.split(command) if not word.startswith((*named, *own)))
