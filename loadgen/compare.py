"""Finished runs held against each other: which variant at which load, by how much, and may it be believed.

    python -m loadgen.compare outputs/2026-01-31/12-00-00                        one study, or several folders of it
    python -m loadgen.compare outputs/... --format json                          also: csv, markdown, vllm
    python -m loadgen.compare outputs/... --gate "eagle_topk1_v2 >= 0.98 * baseline at concurrency>=30"
    python -m loadgen.compare outputs/a outputs/b --allow engine.version         two versions of an engine
    python -m loadgen.compare outputs/... --adaptive both.json                   one server that drafts where it pays

The tables go to stdout, figures and the record of every start to report.html in the first folder (--html FILE: there;
--html none: nowhere). Exit code 0; 2 where nothing can be compared; 6 where a gate fails.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group

from loadgen import evidence, formats, gate, store, tables
from loadgen.compared import Compared, compare, text
from loadgen.comparison import Contest
from loadgen.config import BASELINE
from loadgen.errors import INVALID_POINTS, ConfigError, LoadgenError
from loadgen.page import document, timeline
from loadgen.page.origin import Start
from loadgen.page.strips import Timeline
from loadgen.paired import MARGIN
from loadgen.report import rendered

PAGE, NO_PAGE = "report.html", "none"


def report(found: Compared) -> str:
    """The whole comparison as one page; reads the rows of one Point of each variant for its timelines."""
    rows = [row for contest in found.contests for row in contest.rows.values()]
    places = {point["launch_id"]: (row.variant, point) for row in rows for point in reversed(row.points)}
    starts = [Start(name, *evidence.launch_place(point)) for name, point in places.values()]
    return document.html(
        document.Content(
            found.contests,
            found.chosen,
            found.commands,
            found.evidence.points,
            found.evidence.never,
            sorted(starts, key=lambda start: str(start.launch.get("started_at"))),
            {contest.workload: _timelines(contest) for contest in found.contests},
            found.offers(),
        )
    )


def _timelines(contest: Contest) -> list[Timeline]:
    """One Point of each variant over time, at the highest load that all have."""
    shared = [level for level in contest.levels if all((name, level) in contest.rows for name in contest.variants)]
    rows = [
        next((row for row in reversed(contest.of(name)) if row.level in shared), contest.of(name)[-1])
        for name in contest.variants
    ]
    return [timeline.read(row.points[0], row.variant, row.level.words) for row in rows]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    told = argparse.ArgumentParser(
        "python -m loadgen.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of finished runs")
    told.add_argument("--format", choices=("text", *formats.FORMATS), default="text", help="what goes to stdout")
    told.add_argument("--html", metavar="FILE", help="where the page goes: report.html in the first DIR; none: nowhere")
    told.add_argument("--allow", nargs="+", action="extend", default=[], metavar="NAME", help="what may differ")
    told.add_argument("--baseline", default=BASELINE, metavar="VARIANT", help="what the others are held against")
    told.add_argument("--margin", type=_share, default=MARGIN, help="a smaller difference counts as none (0.02)")
    told.add_argument("--gate", action="append", default=[], metavar="TEXT", help=f"as in {gate.EXAMPLE}")
    told.add_argument("--adaptive", type=Path, metavar="FILE", help="write SGLang's adaptive-speculation file")
    return told


def _share(given: str) -> float:
    value = float(given)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError("give a share between 0 and 1, such as 0.02")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    asked = parser().parse_args(arguments)
    try:
        return _told(asked)
    except LoadgenError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return error.exit_code


def _told(asked: argparse.Namespace) -> int:
    """Compare and print, then the gates, then the page: where that cannot be written, all else was said."""
    gates = [gate.parse(one) for one in asked.gate]
    found = compare(asked.folders, asked.allow, asked.baseline, asked.margin)
    if not found.contests:
        raise ConfigError("no Point is VALID: nothing can be compared")
    if asked.adaptive:
        _write_adaptive(found, asked.adaptive)
    print(text(found) if asked.format == "text" else formats.FORMATS[asked.format](found.contests, found.chosen))
    judged = [gate.judge(one, found.contests, found.evidence.points) for one in gates]
    if judged:
        where = sys.stdout if asked.format == "text" else sys.stderr  # what a program reads stays what it was
        print(rendered(Group(*tables.gates(judged)), where), file=where)
    if asked.html != NO_PAGE:
        path = Path(asked.html) if asked.html else asked.folders[0] / PAGE
        store.write_bytes(path, report(found).encode())
        print(f"report: {path}", file=sys.stderr)
    return INVALID_POINTS if not all(one.holds for one in judged) else 0


def _write_adaptive(found: Compared, path: Path) -> None:
    """Raises ConfigError where no variant would gain by it."""
    offers = found.offers()
    if not offers:
        raise ConfigError(
            f"--adaptive {path}: no chain (topk 1) and the baseline win in different ranges of concurrency here"
        )
    store.write_json(path, offers[0].content)
    print(
        f"loadgen: wrote {path}: variant.args.speculative_adaptive_config={path} +variant=eagle_dynamic",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
