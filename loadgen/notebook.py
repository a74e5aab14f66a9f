"""The record as Markdown: what was tried, what is concluded, what was overturned, the commands it comes from.

Pure. Owns wording and layout; makes no figures of its own. Texts from files are escaped by `plain` before they come
near a line.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from loadgen import history, spelling
from loadgen.comparison import Contest, Row
from loadgen.conclusions import times
from loadgen.config import in_words
from loadgen.history import History, Known, Result, Section, Standing, Superseded, reason_of, when
from loadgen.notes import Part
from loadgen.pairing import Point
from loadgen.stack import differences
from loadgen.verdict import FAILED, INVALID, VALID
from loadgen.words import NOTHING, clean, many, simulated

TESTED, UNTESTED = "TESTED", "UNTESTED"
WORLDS = {False: "Measured", True: "Simulated"}
ROOTS_SHOWN_MAX = 3
REASON_CHARS_MAX = 160
HASH_CHARS = 8
HEADERS = ("variant", "status", "one stream, tok/s", "beside the baseline", "at its best, tok/s",
           "beside the baseline there", "workload and stack", "last run", "remarks")  # fmt: skip
INTRO = (
    "What was tried, what follows from it, and what was thought before. `python -m loadgen.journal` makes it anew",
    "from the results; what stands between the comments `notes: begin` and `notes: end` is yours and is kept.",
    "",
    "*x* is output tokens a second beside the baseline's of the same block, with a 95 % interval over blocks; †",
    "marks one that a single run tells of itself, which says nothing of another start of the server. 3 blocks are a",
    "look, 5 a claim. Times are UTC.",
)
SPECIAL = re.compile(r"[\\`|<>*\[\]~]|(?<![^\W_])_|_(?![^\W_])")
NO_CODE = re.compile(r"[\\`|<\n]")  # what ends a code span or a table's cell, or opens a comment


def plain(text: Any) -> str:
    """Foreign text as Markdown shows it: one line, no control characters, nothing that formats or opens a comment."""
    whole = " ".join(clean(text).split()).replace("&", "&amp;")
    return SPECIAL.sub(lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", whole)


def parts(told: History) -> list[Part]:
    """All of the file that is ours: what is concluded and what was tried, of real results, then of simulated ones."""
    found = [Part("# Experiments", (*INTRO, "", _counts(told)), "top")]
    for is_simulated, word in WORLDS.items():
        mine = [one for one in told.sections if bool(one.about.get("simulated")) is is_simulated]
        loose = [point for point in told.loose if bool(point.get("simulated")) is is_simulated]
        if is_simulated and not mine and not loose:
            continue
        found.append(Part(f"## {word}", tuple(_speeds(mine) if is_simulated else ())))
        found += [_section(one, mine[:place]) for place, one in enumerate(mine)]
        found.append(Part(f"### Variants {word.lower()}", tuple(_tried(told, mine, loose)), word.lower()))
    return [*found, Part("## Results", tuple(_log(told.results)))]


def _speeds(sections: Sequence[Section]) -> list[str]:
    return [f"**{simulated(speed)}**" for speed in sorted({one.about.get("sim_speed") or 1.0 for one in sections})]


def _counts(told: History) -> str:
    """How much the record rests on."""
    points = [point for result in told.results for point in result.points]
    statuses = Counter(point["verdict"]["status"] for point in points)
    shown = ", ".join(f"{statuses[name]} {name}" for name in (VALID, INVALID, FAILED) if statuses[name])
    moments = [result.ended for result in told.results if result.ended]
    span = f", {moment(min(moments))} to {moment(max(moments))}" if moments else ""
    return f"{many(len(told.results), 'result')} of {many(len(points), 'Point')} ({shown}){span}."


def moment(value: datetime | None) -> str:
    """A time to the minute."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M") if value else "at a time not recorded"


def cited(roots: Sequence[str], ended: datetime | None = None) -> str:
    """Where something comes from: when, and the last folders."""
    shown = ", ".join(path(root) for root in roots[-ROOTS_SHOWN_MAX:])
    more = f" and {len(roots) - ROOTS_SHOWN_MAX} earlier" if len(roots) > ROOTS_SHOWN_MAX else ""
    return f"{moment(ended)}, {shown}{more}" if ended else f"{shown}{more}"


def path(root: str) -> str:
    """A folder as code, or escaped where its name would end that."""
    return plain(root) if NO_CODE.search(root) or clean(root) != root else f"`{root}`"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(headers), _line(["---"] * len(headers)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tried(told: History, sections: Sequence[Section], loose: Sequence[Point]) -> list[str]:
    """Every variant that is known: a row for each section that has it, or one that says what is missing."""
    rows, seen = list[Sequence[str]](), set[str]()
    only_bad = list(loose)
    for section in sections:
        for name, points in history.by_variant(section.points):
            tested = name in section.contest.variants
            failed = any(point["verdict"]["status"] == FAILED for point in points)
            if not tested and not failed:
                only_bad += points
                continue
            seen.add(name)
            rows.append([name, TESTED if tested else FAILED, *_figures(section.contest, name), *_where(points)])
    for name, points in history.by_variant(only_bad):
        dead = any(point["verdict"]["status"] == FAILED for point in points)
        if dead or name not in seen:
            seen.add(name)
            rows.append([name, FAILED if dead else UNTESTED, *[NOTHING] * 4, *_where(points)])
    rows += [_untested(one) for one in told.known if one.name not in seen]
    return _table(HEADERS, rows)


def _untested(one: Known) -> list[str]:
    since = f" Engine version {plain(one.since)} or later." if one.since else ""
    return [one.name, UNTESTED, *[NOTHING] * 6, f"{plain(one.question)}{since}".strip()]


def _figures(contest: Contest, name: str) -> list[str]:
    """Throughput of one stream and at its best, each with its ratio to the baseline there."""
    rows = contest.of(name)
    if not rows:
        return [NOTHING] * 4
    alone = next((row for row in rows if row.level.concurrency == 1), None)
    best = max(rows, key=lambda row: row.output.value.value)
    at = f" at {best.level.words}"
    most, beside = _pair(best)
    return [*(_pair(alone) if alone else [NOTHING] * 2), most + at, beside]


def _pair(row: Row) -> list[str]:
    value, ratio = row.output.value, row.output.ratio
    beside = f"{times(ratio)}, {many(ratio.blocks, 'block')}" if ratio else NOTHING
    return [spelling.spread(value, spelling.DAGGER), beside]


def _where(points: Sequence[Point]) -> list[str]:
    """Workload and stack, the last run, what else is to be said of these Points."""
    first, last = points[0], max(points, key=lambda point: (str(when(point) or ""), point["root"]))
    valid = [point for point in points if point["verdict"]["status"] == VALID] or points
    roots = list(dict.fromkeys(point["root"] for point in valid))
    where = f"{plain(first.get('workload'))} on {_engine(first)}, {_stack(first)}"
    return [where, cited(roots[-1:], when(last)), "; ".join(_remarks(points))]


def _engine(point: Point) -> str:
    """The engine with its version, a simulated one with its speed."""
    version = f" {point['engine_version']}" if point.get("engine_version") else ""
    speed = f" x{point.get('sim_speed') or 1:g}" if point.get("simulated") else ""
    return plain(f"{point.get('engine') or 'an engine not recorded'}{version}{speed}")


def _stack(point: Point) -> str:
    stack = point.get("stack")
    return f"{_hardware(point)}, stack {plain(str(stack)[:HASH_CHARS])}" if stack else _hardware(point)


def _hardware(point: Point) -> str:
    """The devices of the server, or the processor where there are none."""
    of = (point.get("must_match") or {}).get("of") or {}
    if of.get("hardware.gpus"):
        return plain(", ".join(map(str, of["hardware.gpus"])))
    if of.get("hardware.cpu_model"):
        return plain(f"{of['hardware.cpu_model']} with {many(of.get('hardware.cpu_cores') or 1, 'core')}")
    return "hardware not recorded"


def _remarks(points: Sequence[Point]) -> Iterator[str]:
    """What failed and why, most frequent first, and how many are INVALID."""
    failures: dict[str, list[str]] = {}
    for point in points:
        if point["verdict"]["status"] == FAILED:
            load = point["load"]
            level = in_words(load.get("concurrency"), load.get("rate"), load.get("trace"))
            failures.setdefault(_short(reason_of(point)), []).append(level)
    for reason, where in failures.items():
        yield f"FAILED at {', '.join(dict.fromkeys(where))}: {reason}"
    bad = [point for point in points if point["verdict"]["status"] == INVALID]
    if bad:
        reasons = Counter(_short(reason_of(point)) for point in bad)
        often = "" if len(reasons) == 1 else " most often"
        yield f"{many(len(bad), 'Point')} INVALID:{often} {reasons.most_common(1)[0][0]}"


def _short(reason: str) -> str:
    """A reason without its end where that is long; plain."""
    return plain(reason if len(reason) <= REASON_CHARS_MAX else f"{reason[: REASON_CHARS_MAX - 1].rstrip()}…")


def _section(section: Section, earlier: Sequence[Section]) -> Part:
    about = section.about
    title = [about.get("model"), about.get("workload")]
    heading = f"### {' · '.join([*map(plain, title), _engine(about), _hardware(about), section.key[-HASH_CHARS:]])}"
    contest = section.contest
    blocks = f"{many(len(contest.blocks), 'block')} of {', '.join(contest.variants)}"
    lines = [f"{blocks}{_arrival(about)}.", *_apart(section, earlier), "", "**Concluded**", ""]
    lines += [_standing(one) for one in section.standing]
    lines += ["", "**Superseded**", "", *(map(_superseded, section.superseded) if section.superseded else ["None."])]
    extra = [f"- {text}" for text in contest.cautions]
    return Part(heading, (*lines, *(["", "**Beware**", "", *extra] if extra else [])), section.key)


def _arrival(point: Point) -> str:
    """How the load arrives, where that is not by streams and a window."""
    load = point["load"]
    if load.get("concurrency") is None:
        return f"; requests come by a clock ({plain(load.get('arrival'))})"
    return "; whole runs of a fixed count of requests" if load.get("requests") else ""


def _apart(section: Section, earlier: Sequence[Section]) -> Iterator[str]:
    """Why this section is not one with an earlier one that looks like it."""
    mine = section.about
    for other in earlier:
        theirs = other.about
        if (mine.get("model"), mine.get("workload")) != (theirs.get("model"), theirs.get("workload")):
            continue
        told = differences(mine.get("must_match") or {"of": {}}, theirs.get("must_match") or {"of": {}})
        names = ", ".join(plain(one.name) for one in told) or "how the load arrives"
        yield f"Not to be compared with {other.key[-HASH_CHARS:]}: they differ in {names}."


def _standing(one: Standing) -> str:
    said, since = one.conclusion, one.since
    by = f" Since {moment(since.ended)}; from {cited(said.roots)}." if said.claims else ""
    return f"- **{_topic(said.topic)}.** {said.text}{by}"


def _topic(topic: str) -> str:
    return f"{topic[:1].upper()}{topic[1:]}" if topic[:1].isalpha() and " beside " not in topic else topic


def _superseded(one: Superseded) -> str:
    old, by = one.old.conclusion, one.by
    dates = f"Concluded {moment(one.old.since.ended)} from {cited(old.roots)}"
    return f"- **{_topic(old.topic)}.** {old.text} {dates}; overturned {moment(by.ended)} by {path(by.root)}."


def _log(results: Sequence[Result]) -> list[str]:
    """The commands in order of time."""
    return _table(("ended", "folder", "study", "what", "Points"), [_logged(result) for result in results])


def _logged(result: Result) -> list[str]:
    points = result.points
    statuses = Counter(point["verdict"]["status"] for point in points)
    studies = dict.fromkeys(plain(point["study"]) for point in points if point.get("study"))
    variants = ", ".join(name for name, _ in history.by_variant(points))
    workloads = ", ".join(dict.fromkeys(plain(point.get("workload")) for point in points))
    what = f"{variants}; {workloads}; {many(len({point.get('block') for point in points}), 'block')}"
    shown = ", ".join(f"{count} {plain(status)}" for status, count in sorted(statuses.items(), reverse=True))
    return [moment(result.ended), path(result.root), ", ".join(studies) or NOTHING, what, shown]
