"""What finished commands left, read for a comparison: Points with their places, launches, what never became a Point.

Owns where a Point belongs on the disk. It must not know of statistics.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.claimed import root_of
from loadgen.columns import columns
from loadgen.dataset import REQUESTS_FILE, point_files, read_json, request_batches
from loadgen.errors import ConfigError
from loadgen.pairing import Point, once
from loadgen.record import Outcome
from loadgen.resume import newest
from loadgen.store import LEDGER
from loadgen.summary import request_times
from loadgen.verdict import VALID

# What latencies are made of.
NEEDED = (
    *("rate", "outcome", "in_window", "token_source", "output_tokens", "chunk_ns", "chunk_tokens"),
    *("planned_ns", "sent_ns", "first_token_ns", "first_answer_ns", "last_token_ns"),
)


FILES = {"requests": REQUESTS_FILE, "launch": "../launch.json"}  # unless a Point says otherwise
# What no Point is without, whichever version of ours wrote it, and no summary of a VALID one.
POINT_HAS = ("point_id", "variant", "block", "load", "verdict")
VALID_HAS = ("started_at", "model", "engine", "launch_id")
NUMBERS = ("output_tokens_per_s", "requests", "failed")


@dataclass(frozen=True)
class Evidence:
    """All that lies below some folders: Points (with `folder`, `root`, `flags`), and ledger lines that have none."""

    points: list[Point]
    never: list[dict[str, Any]]


def read(roots: Sequence[Path]) -> Evidence:
    """Every whole Point at or below `roots`. Raises ConfigError for a folder that is not there, or holds none."""
    for root in roots:
        if not root.is_dir():
            raise ConfigError(
                f"{root} is no folder; give folders of finished runs, such as outputs/2026-01-31/12-00-00"
            )
    # What a fault was done to on purpose (+study=chaos) tells nothing of its variant.
    points = [point for point in map(_placed, point_files(roots)) if not point.get("fault")]
    points = once(points)  # a copy counts once
    ledgers = {path.resolve(): path for root in roots for path in root.rglob(LEDGER)}  # folders may lie in each other
    never = [line for path in sorted(ledgers.values()) for line in _never(path)]
    if not points and not never:
        raise ConfigError(f"no point.json lies below {', '.join(map(str, roots))}: nothing was measured there")
    return Evidence(points, never)


def _placed(path: Path) -> Point:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is no Point of loadgen; take it away, or give folders of loadgen's runs only")
    folder = str(path.parent)
    _check({**content, "folder": folder})
    files = {**FILES, **(content.get("files") or {})}
    point = {**content, "files": files, "folder": folder, "root": str(_command(path.parent))}
    asked = (launch_of(point).get("config") or {}).get("variant")
    if not isinstance(asked, dict):  # what is not known of a variant is no other variant
        return point
    flags = {f"{part}.{name}": value for part in ("args", "env") for name, value in (asked.get(part) or {}).items()}
    return {**point, "flags": flags}


def _check(point: Point) -> None:
    """Raises ConfigError that names its file for a Point that lacks what a comparison or a record needs."""
    missing = [name for name in POINT_HAS if point.get(name) is None]
    missing += [name for name in ("load", "verdict") if name not in missing and not isinstance(point[name], dict)]
    if not missing and point["verdict"].get("status") == VALID:
        summary = point.get("summary") or {}
        missing = [name for name in VALID_HAS if point.get(name) is None]
        missing += [f"summary.{name}" for name in NUMBERS if not isinstance(summary.get(name), int | float)]
        if not missing and summary["output_tokens_per_s"] <= 0:
            missing = ["output"]
    if missing:
        lacks = f"it has no {', '.join(missing)}"
        raise ConfigError(
            f"{point['folder']}/point.json is not as loadgen writes it: {lacks}; restore it or take it away"
        )


def _command(folder: Path) -> Path:
    """The folder of the command that measured a Point: the nearest above it with a ledger, else that of its run."""
    whole = folder.resolve()
    found = root_of(whole) or whole.parent
    here = Path.cwd()
    return found.relative_to(here) if found.is_relative_to(here) else found


def _never(ledger: Path) -> Iterator[dict[str, Any]]:
    """The last ledger line of each Point that was asked for and never came to be."""
    root = str(ledger.parent)
    yield from (
        {**line, "root": root} for line in newest(ledger.parent) if not (line.get("point_id") or line.get("fault"))
    )


def times(point: Point) -> dict[str, np.ndarray]:
    """The latencies of a Point's requests that count, milliseconds by name, read part by part."""
    path = Path(point["folder"]) / point["files"]["requests"]
    parts: dict[str, list[np.ndarray]] = {}
    for part in request_batches(path, NEEDED):
        cols = columns(part)
        found = request_times(cols, cols["in_window"] & (cols["outcome"] == Outcome.OK))
        for name, values in found.items():
            parts.setdefault(name, []).append(values.astype(np.float32))
    return {name: np.concatenate(values) for name, values in parts.items()}


@functools.lru_cache(maxsize=256)
def _launch(path: Path) -> dict[str, Any]:
    """Read once for all Points of a server; empty where it is gone."""
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict) or not isinstance(content.get("config") or {}, dict):
        raise ConfigError(f"{path} is no launch of loadgen; restore it, or take it away: its Point counts without it")
    return content


def launch_of(point: Point) -> dict[str, Any]:
    """launch.json of the server that a Point was measured on; empty where it is gone.

    Raises ConfigError where it is something else.
    """
    return _launch(_launch_path(point))


def launch_place(point: Point) -> tuple[str, dict[str, Any]]:
    """The folder that keeps the launch.json of a Point's server, and what it holds."""
    return str(_launch_path(point).parent), launch_of(point)


def _launch_path(point: Point) -> Path:
    return Path(os.path.normpath(Path(point["folder"]) / point["files"]["launch"]))
