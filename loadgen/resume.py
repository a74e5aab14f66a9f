"""Going on after an interruption: which folder holds the same question, and which of its Points are VALID already."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadgen import store
from loadgen.config import Config, as_dict
from loadgen.dataset import point_files, read_json, read_ledger
from loadgen.errors import ConfigError
from loadgen.verdict import VALID

RUNS = "runs.json"  # what a folder was asked, beside its ledger

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
    """Write the question beside the ledger."""
    store.write_json(root / RUNS, {"command": command, "runs": asked})


def find(root: Path, chosen: bool, asked: list[dict[str, Any]]) -> Path:
    """The folder to go on in: `root` where the user chose it, else the newest beside it with the same question.

    Raises ConfigError where there is none.
    """
    places = [root / RUNS] if chosen else sorted(root.parent.parent.glob(f"*/*/{RUNS}"), reverse=True)
    for place in places:
        if place.is_file() and read_json(place)["runs"] == asked:
            return place.parent
    where = root if chosen else root.parent.parent
    raise ConfigError(
        f"{where} holds no run with this same configuration, prompts and files; run it once without resume=true"
    )


def done(root: Path) -> set[Key]:
    """The Points that are VALID, by what identifies them in the ledger."""
    return {key_of(line) for line in newest(root) if line["status"] == VALID}


def key_of(line: dict[str, Any]) -> Key:
    """What identifies a Point in a ledger: the run's folder, variant, block, level, and whether it is a repetition."""
    level = (line["concurrency"], line.get("rate"))
    return (line["folder"], line["variant"], line["block"], *level, bool(line.get("repeat")))


def newest(root: Path) -> list[dict[str, Any]]:
    """The ledger with one line for each Point, its last one, in the order of first measurement."""
    lines = read_ledger(root / store.LEDGER)
    return list({key_of(line): line for line in lines}.values())


def points(root: Path) -> list[dict[str, Any]]:
    """point.json of the Points that `newest` names, in its order."""
    found = {point["point_id"]: point for point in map(read_json, point_files(root))}
    return [found[line["point_id"]] for line in newest(root) if line["point_id"] in found]
