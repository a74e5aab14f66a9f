"""The look at a machine before the first server of a command is started there: a table for a person, and the refusal.

What is looked at is server.preflight's. Prints to stderr; writes no file.
"""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from loadgen import cluster, report
from loadgen.config import Config, levels
from loadgen.errors import Refused
from loadgen.interrupt import Stop
from loadgen.progress import Progress
from loadgen.words import clean, duration
from server.variant import ServerSpec

LOOK_S_MAX = 120.0  # an interpreter in a container tells its version within a minute
COLOURS = {"ok": "green", "warn": "yellow", "refused": "red"}

Row = Mapping[str, Any]
Look = Callable[[cluster.Server, Progress], None]


def before_first(configs: Sequence[Config], specs: Sequence[ServerSpec], estimate_s: float | None, stop: Stop) -> Look:
    """What to do with the first server's actor before it starts anything; raises Refused."""
    different: list[ServerSpec] = []  # specs hold dictionaries, so no set can
    for spec in specs:
        if spec not in different:
            different.append(spec)
    return functools.partial(_look, different, *in_flight(configs), estimate_s, stop)


def in_flight(configs: Sequence[Config]) -> tuple[int | None, int | None]:
    """The most requests at once of all levels, and the most of one worker; None where nothing bounds them."""
    known = [
        (places, -(-places // min(conf.cluster.workers or 1, places)))
        for conf in configs
        for level in levels(conf.load)
        if (places := conf.load.max_in_flight if level.open else level.concurrency)
    ]
    return (max(most for most, _ in known), max(share for _, share in known)) if known else (None, None)


def _look(
    specs: Sequence[ServerSpec],
    most: int | None,
    per_worker: int | None,
    estimate_s: float | None,
    stop: Stop,
    server: cluster.Server,
    progress: Progress,
) -> None:
    rows = server.ask("preflight", specs, most, per_worker, stop=stop, wait_s_max=LOOK_S_MAX)
    if estimate_s is not None:
        told = f"about {duration(estimate_s)} beside the starts"
        rows = [*rows, {"check": "time of all levels", "found": told, "needed": "", "state": "ok", "advice": ""}]
    progress.line(report.rendered(table(rows), sys.stderr))
    if refused := [row for row in rows if row["state"] == "refused"]:
        raise Refused("; ".join(map(_sentence, refused)), refused[0]["exit"])


def table(rows: Sequence[Row]) -> Table:
    """The rows as a person reads them."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    advised = any(row["advice"] for row in rows)
    for header in ("before the start", "found", "needed", "", *(["what to do"] if advised else [])):
        shown.add_column(header, overflow="fold")
    for row in rows:
        cells = [clean(row[name]) for name in ("check", "found", "needed")]
        more = [clean(row["advice"])] if advised else []
        shown.add_row(*cells, Text(row["state"], style=COLOURS[row["state"]]), *more)
    return shown


def _sentence(row: Row) -> str:
    known = [row["found"], f"needed: {row['needed']}" if row["needed"] and row["found"] else ""]
    return f"{row['check']}: " + "; ".join(filter(None, [", ".join(filter(None, known)), row["advice"]]))
