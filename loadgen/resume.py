"""Going on after an interruption: which folder holds the same question, and which of its Points are VALID already."""

import hashlib
import json
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loadgen import claimed, store
from loadgen.config import Config, as_dict
from loadgen.dataset import point_files, read_json, read_ledger
from loadgen.errors import ConfigError
from loadgen.verdict import VALID

RUNS = "runs.json"  # what a folder was asked, beside its ledger
LINE_HAS = ("folder", "variant", "block", "concurrency")  # what identifies a Point
GOES_ON = (*LINE_HAS, "status", "point_id")  # what it takes to go on

Key = tuple[str, str, int, int | None, float | None, bool]


def question(configs: Sequence[Config], places: Sequence[Path], hashes: Sequence[str]) -> list[dict[str, Any]]:
    """What a command asks, as plain values: every run's configuration, its folder below the root, its workload's hash.

    The hash knows the texts: a file of prompts may have changed since, and so may the others that are named.
    """
    values = [
        {
            "folder": str(folder),
            "workload_hash": asked,
            "files": _files(conf),
            "config": {**as_dict(conf), "resume": False},
        }
        for conf, folder, asked in zip(configs, places, hashes, strict=True)
    ]
    return list(json.loads(json.dumps(values)))  # as it will be read back


def _files(conf: Config) -> dict[str, str]:
    """A hash of every file, but that of the prompts, which decides what is measured."""
    names = (conf.load.trace, conf.engine.sim_profile)
    return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names if name}


def remember(root: Path, asked: list[dict[str, Any]], command: str) -> None:
    """Write the question beside the ledger, and a name that no other command has, wherever its folder may go."""
    name = store.folder_name(f"{'-'.join(root.resolve().parts[-2:])}-{secrets.token_hex(4)}")
    store.write_json(root / RUNS, {"name": name, "command": command, "runs": asked})


def begin(root: Path, asked: list[dict[str, Any]], command: str) -> None:
    """Make the folder say what is asked of it; in one that does, clear and settle what a kill left."""
    if not (root / RUNS).exists():
        remember(root, asked, command)
        return
    claimed.sweep(root)
    settle(root)


def find(root: Path, chosen: bool, asked: list[dict[str, Any]]) -> Path:
    """The folder to go on in: `root` where the user chose it, else the newest beside it with the same question.

    A chosen one that a kill left before anything was asked there will do. Raises ConfigError where there is none.
    """
    if chosen and _nothing_asked(root):
        return root
    places = [root / RUNS] if chosen else sorted(root.parent.parent.glob(f"*/*/{RUNS}"), reverse=True)
    for place in places:
        if place.is_file() and read_json(place)["runs"] == asked:
            return place.parent
    where = root if chosen else root.parent.parent
    raise ConfigError(
        f"{where} holds no run with this same configuration, prompts and files; run it once without resume=true"
    )


def _nothing_asked(root: Path) -> bool:
    ledger = root / store.LEDGER
    return ledger.is_file() and ledger.stat().st_size == 0 and not (root / RUNS).exists()


def done(root: Path) -> set[Key]:
    """The Points that are VALID and still there, by what identifies them in the ledger."""
    there = {point["point_id"] for point in _points_below(root)}
    return {key_of(line) for line in newest(root, GOES_ON) if line["status"] == VALID and line["point_id"] in there}


def settle(root: Path) -> None:
    """Write the ledger's line of each VALID Point that a kill committed without one: it is measured, not missing."""
    told = {line.get("point_id") for line in newest(root)}
    for point in _points_below(root):
        if point["verdict"]["status"] == VALID and point["point_id"] not in told:
            store.append_line(root / store.LEDGER, _line_of(point, root))


def _line_of(point: dict[str, Any], root: Path) -> dict[str, Any]:
    load = point["load"]
    return {
        "folder": str(Path(point["folder"]).parent.relative_to(root)),
        **{name: point.get(name) for name in ("study", "variant", "workload", "block", "repeat")},
        "concurrency": load.get("concurrency"),
        "rate": None if load.get("trace") else load.get("rate"),
        "point_id": point["point_id"],
        **({"fault": point["fault"]} if point.get("fault") else {}),
        "rules": [],
        "status": VALID,
        "reason": None,
        "exit_code": 0,
        "output_tokens_per_s": point["summary"]["output_tokens_per_s"],
    }


def _points_below(root: Path) -> list[dict[str, Any]]:
    """point.json of every whole Point of this command, with its folder."""
    mine = (path for path in point_files(root) if claimed.belongs(path, root))
    return [{**read_json(path), "folder": str(path.parent)} for path in mine]


def key_of(line: dict[str, Any]) -> Key:
    """What identifies a Point in a ledger: the run's folder, variant, block, level, and whether it is a repetition."""
    level = (line["concurrency"], line.get("rate"))
    return (line["folder"], line["variant"], line["block"], *level, bool(line.get("repeat")))


def newest(root: Path, needed: Sequence[str] = LINE_HAS) -> list[dict[str, Any]]:
    """The ledger with one line for each Point, its last one, in the order of first measurement.

    Raises StorageError for a line that lacks one of the keys `needed`.
    """
    return last_of(read_ledger(root / store.LEDGER, needed))


def last_of(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of lines in order of time the last one of each Point."""
    return list({key_of(line): line for line in lines}.values())


def points(root: Path) -> list[dict[str, Any]]:
    """point.json of the Points that `newest` names, in its order."""
    found = {point["point_id"]: point for point in map(read_json, point_files(root))}
    return [found[line["point_id"]] for line in newest(root) if line.get("point_id") in found]
