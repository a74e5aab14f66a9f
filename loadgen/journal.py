"""The living record: what was tried, what is concluded, what was overturned. A pure function of all results.

    python -m loadgen.journal outputs --file EXPERIMENTS.md                bring the record up to date
    python -m loadgen.journal outputs /mnt/team/outputs                    two people's results, in any order
    python -m loadgen.journal outputs --rewrite                            also where text outside the notes was changed

Your own notes are kept word for word between <!-- notes: begin NAME --> and <!-- notes: end -->, each alone on its
line; a pair may stand anywhere. Running it again changes nothing. Exit code 0, also where some Points are INVALID; 2
where there is nothing to record, or where the file holds what is not ours; 5 where it cannot be written.
"""

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from loadgen import advice, evidence, notebook, notes, store
from loadgen.comparison import Times
from loadgen.config import BASELINE
from loadgen.dataset import files_of, read_json, reported
from loadgen.errors import ConfigError, LoadgenError
from loadgen.history import History, Known, history
from loadgen.pairing import Point
from loadgen.resume import RUNS
from loadgen.verdict import VALID
from loadgen.words import many
from server.spec import algorithm

VARIANTS = Path(__file__).resolve().parent.parent / "conf" / "variant"  # ours, whatever lies in the working folder
LATENCY = advice.LATENCY_OF  # the only latency that a conclusion looks at


def gather(roots: Sequence[Path], home: Path) -> list[Point]:
    """All that lies below `roots`, each with the folder of its command as seen from `home`, names made harmless.

    What was asked for and never came to be is a Point without `point_id`.
    """
    found = evidence.read(roots)
    relative = not all(root.is_absolute() for root in roots)
    asked = functools.cache(_asked)
    placed = functools.cache(lambda root: _place(Path(root).resolve(), home, relative))
    points = [*_apart(found.points), *(_never(line, asked) for line in found.never)]
    points = [{**point, "variant": notebook.plain(point["variant"]), "root": placed(point["root"])} for point in points]
    # What never came to be and does not tell is as simulated as the rest of its command.
    worlds = {point["root"]: point["simulated"] for point in points if point.get("simulated") is not None}
    return [
        {
            **point,
            "simulated": worlds.get(point["root"], False) if point.get("simulated") is None else point["simulated"],
        }
        for point in points
    ]


def _apart(points: Sequence[Point]) -> Iterator[Point]:
    """Other flags under one name are another variant; beside a baseline with other flags all is another comparison.

    The first that is VALID keeps its name.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for point in sorted(points, key=lambda one: (one["verdict"]["status"] != VALID, str(one.get("started_at")))):
        if "flags" in point:
            first.setdefault(point["variant"], point["flags"])
    others = {point["point_id"]: _others(point, first.get(point["variant"], {})) for point in points}
    bases = {point["root"]: others[point["point_id"]] for point in points if point["variant"] == BASELINE}
    for point in points:
        of = {f"variant.{name} of {BASELINE}": value for name, value in bases.get(point["root"], {}).items()}
        agreed = point.get("must_match") or {}
        own = {} if point["variant"] == BASELINE else others[point["point_id"]]
        name = " ".join([point["variant"], *(f"{flag}={json.dumps(value)}" for flag, value in own.items())])
        yield {**point, "variant": name, "must_match": {**agreed, "of": {**agreed.get("of", {}), **of}}}


def _others(point: Point, first: Mapping[str, Any]) -> dict[str, Any]:
    """The flags in which a Point's variant is not the first of its name."""
    mine = point.get("flags", first)
    return {name: mine.get(name) for name in sorted({*mine, *first}) if mine.get(name) != first.get(name)}


def _place(root: Path, home: Path, relative: bool) -> str:
    """A folder as the journal cites it: from its own folder, whole where it lies elsewhere and was given whole."""
    if root.is_relative_to(home):
        return root.relative_to(home).as_posix()
    return Path(os.path.relpath(root, home)).as_posix() if relative else root.as_posix()


def _asked(root: str) -> dict[str, Any]:
    """What a command was asked, by the folder of each of its runs; empty where that was not kept."""
    path = Path(root) / RUNS
    return {run["folder"]: run["config"] for run in read_json(path)["runs"]} if path.is_file() else {}


def _never(line: Mapping[str, Any], asked: Callable[[str], Mapping[str, Any]]) -> Point:
    """A ledger line without a Point, in the shape of one."""
    conf = asked(line["root"]).get(str(line.get("folder")), {})
    kind = conf.get("engine", {}).get("kind")
    told = {name: line.get(name) for name in ("variant", "workload", "block", "study", "reason", "folder")}
    return {
        **told,
        "point_id": None,
        "started_at": None,
        "root": str(Path(line["root"])),
        "engine": None if kind == "auto" else kind,
        "model": conf.get("model", {}).get("name"),
        "load": {name: line.get(name) for name in ("concurrency", "rate")},
        "verdict": {"status": line.get("status"), "reasons": []},
        "simulated": None if kind in (None, "auto") else kind == "sim",
    }


def latencies(point: Point) -> dict[str, np.ndarray]:
    """Those of a Point that conclusions look at, milliseconds by name; none where only its point.json was kept."""
    path = Path(point["folder"]) / point["files"]["requests"]
    if not files_of(path):
        return {}
    found = evidence.times(point)
    return {LATENCY: found[LATENCY]} if LATENCY in found else {}


def _once(times: Times) -> Times:
    """The same, each Point's read once: every prefix of the results asks again."""
    read: dict[str, Mapping[str, np.ndarray]] = {}

    def remembered(point: Point) -> Mapping[str, np.ndarray]:
        if point["folder"] not in read:
            read[point["folder"]] = times(point)
        return read[point["folder"]]

    return remembered


def known() -> list[Known]:
    """The shipped variants, with the first line of each file: the question that it answers."""
    return [_known(path) for path in sorted(VARIANTS.glob("*.yaml"))]


def _known(path: Path) -> Known:
    with reported(path, "read"):
        text = path.read_text("utf-8")
    try:
        conf = yaml.safe_load(text)
        name, speculates = str(conf["name"]), algorithm(conf.get("args") or {}) is not None
    except (yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} is no variant ({error}); mend it or take it away") from error
    first, since = text.partition("\n")[0], conf.get("since")
    return Known(name, speculates, since and str(since), first.lstrip("# ") if first.startswith("#") else "")


def kept(file: Path, rewrite: bool = False) -> tuple[notes.Area, ...]:
    """The notes that a file holds; none where it is not there or empty.

    Raises ConfigError where it is not ours, its marks are broken, or, but for `rewrite`, text outside was changed.
    """
    if not file.exists():
        return ()
    with reported(file, "read"):
        data = file.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is no text in UTF-8 ({error}); give another --file, or convert it") from error
    if not text.strip():
        return ()
    found = notes.read(text, str(file))
    if not found.untouched and not rewrite:
        raise ConfigError(
            f"{file} was changed outside its notes, and nothing is overwritten: move your text between a pair of marks "
            f"({notes.MARKS}) and undo the rest, or give --rewrite to have all but the notes made anew"
        )
    return found.areas


def parser() -> argparse.ArgumentParser:
    """The command line."""
    told = argparse.ArgumentParser(
        "python -m loadgen.journal", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of finished runs")
    told.add_argument("--file", type=Path, default=Path("EXPERIMENTS.md"), help="the record (EXPERIMENTS.md)")
    told.add_argument("--rewrite", action="store_true", help="make text outside the notes anew, even where changed")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    asked = parser().parse_args(arguments)
    try:
        print(_update(asked.folders, asked.file, asked.rewrite))
    except LoadgenError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _update(folders: Sequence[Path], file: Path, rewrite: bool) -> str:
    """Bring the file up to date; what was done in one line."""
    kept(file, rewrite)  # refused before anything is computed
    place = file.resolve()  # a link stays one
    found = history(gather(folders, place.parent), known(), _once(latencies))
    if not found.results:
        raise ConfigError(
            f"every Point below {', '.join(map(str, folders))} was interrupted: there is nothing to record"
        )
    parts = notebook.parts(found)
    # The notes are read as late as can be: somebody may have written meanwhile.
    data = notes.compose(parts, kept(file, rewrite)).encode()
    same = place.is_file() and place.read_bytes() == data
    if not same:
        store.write_bytes(place, data)
    return _told(found, file, "unchanged" if same else "written")


def _told(found: History, file: Path, done: str) -> str:
    points = sum(len(result.points) for result in found.results)
    gone = sum(len(section.superseded) for section in found.sections)
    claims = sum(one.conclusion.claims for section in found.sections for one in section.standing)
    counts = (many(len(found.results), "result"), many(points, "Point"), many(claims, "conclusion"))
    return f"{file}: {', '.join(counts)}, {gone} superseded; {done}"


if __name__ == "__main__":
    sys.exit(main())
