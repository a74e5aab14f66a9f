"""The look at a machine before the first server of a command is started there: a table for a person, and the refusal.

What is looked at is server.preflight's. Prints to stderr; writes no file.
"""

import functools
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from loadgen import cluster, report, staffing
from loadgen.config import Config, levels
from loadgen.errors import Refused, StorageError
from loadgen.loads import in_flight_max
from loadgen.progress import Progress
from loadgen.volume import Volume
from loadgen.words import clean, duration
from server.preflight import GIB
from server.variant import ServerSpec

LOOK_S_MAX = 120.0  # an interpreter in a container tells its version within a minute
ESTIMATE_TIMES = 2  # so much of what is estimated has to be free
ROOM_BYTES_MIN = 64 * 2**20  # below, not even a small run's files are written
COLOURS = {"ok": "green", "warn": "yellow", "refused": "red"}

Row = Mapping[str, Any]
Look = Callable[[cluster.Server, Progress], None]


def before_first(
    configs: Sequence[Config],
    specs: Sequence[ServerSpec],
    estimate_s: float | None,
    root: Path,
    volume: Volume,
) -> Look:
    """What to do with the first server's actor before it starts anything; raises Refused.

    Results go to `root`, on a disk of this machine; `volume` is what they will be.
    """
    different: list[ServerSpec] = []  # specs hold dictionaries, so no set can
    for spec in specs:
        if spec not in different:
            different.append(spec)
    disk, cleaned = functools.partial(room_for, root, volume), any(conf.cluster.clean for conf in configs)
    return functools.partial(_look, different, *in_flight(configs), cleaned, estimate_s, disk)


def in_flight(configs: Sequence[Config]) -> tuple[int | None, int | None]:
    """The most requests at once of all levels, and the most of one worker; None where nothing bounds them."""
    known = [
        (most, -(-most // min(conf.cluster.workers or -(-most // staffing.STREAMS_MAX), most)))
        for conf in configs
        for level in levels(conf.load)
        if (most := in_flight_max(conf, level))
    ]
    return (max(most for most, _ in known), max(share for _, share in known)) if known else (None, None)


def _look(
    specs: Sequence[ServerSpec],
    most: int | None,
    per_worker: int | None,
    cleaned: bool,
    estimate_s: float | None,
    disk: Callable[[], Row],
    server: cluster.Server,
    progress: Progress,
) -> None:
    for told in server.ask("leftovers", True, wait_s_max=LOOK_S_MAX) if cleaned else ():
        progress.warn(clean(told))
    rows = [*server.ask("preflight", specs, most, per_worker, cleaned, wait_s_max=LOOK_S_MAX), disk()]
    if estimate_s is not None:
        told = f"about {duration(estimate_s)} beside the starts"
        rows = [*rows, {"check": "time of all levels", "found": told, "needed": "", "state": "ok", "advice": ""}]
    progress.line(report.rendered(table(rows), sys.stderr))
    if refused := [row for row in rows if row["state"] == "refused"]:
        raise Refused("; ".join(map(_sentence, refused)), refused[0]["exit"])


def room_for(root: Path, volume: Volume) -> Row:
    """What is free where results go against twice what they will take: a guess, beside others who write there."""
    free, wanted = shutil.disk_usage(root).free, max(ESTIMATE_TIMES * volume.size, ROOM_BYTES_MIN)
    enough = free >= wanted
    about = f"{volume.requests} requests, {volume.tokens} tokens: {shown(volume.size)}" if volume.requests else "little"
    estimated = f" ({ESTIMATE_TIMES} times an estimate of {about})"
    advice = (
        "make room, choose another folder with hydra.run.dir=... (hydra.sweep.dir=... under -m), or ask for less: "
        "levels, load.requests, load.window_s"
    )
    return {
        "check": "disk for results",
        "found": f"{shown(free)} free",
        "needed": shown(wanted) + (estimated if wanted > ROOM_BYTES_MIN else ""),
        "state": "ok" if enough else "refused",
        "advice": "" if enough else advice,
        "exit": 0 if enough else StorageError.exit_code,
    }


def shown(size: float) -> str:
    """Bytes as text, fine enough to be held against twice as many."""
    return f"{size / GIB:.0f} GiB" if size >= 10 * GIB else f"{size / 2**20:.0f} MiB"


def table(rows: Sequence[Row]) -> Table:
    """The rows as a person reads them."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    advised = any(row["advice"] for row in rows)
    for header in ("before the start", "found", "needed", "", *(["what to do"] if advised else [])):
        drawn.add_column(header, overflow="fold")
    for row in rows:
        cells = [clean(row[name]) for name in ("check", "found", "needed")]
        more = [clean(row["advice"])] if advised else []
        drawn.add_row(*cells, Text(row["state"], style=COLOURS[row["state"]]), *more)
    return drawn


def _sentence(row: Row) -> str:
    known = [row["found"], f"needed: {row['needed']}" if row["needed"] and row["found"] else ""]
    return f"{row['check']}: " + "; ".join(filter(None, [", ".join(filter(None, known)), row["advice"]]))
