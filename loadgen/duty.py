"""A worker's whole life in a process that Ray chose: it drives its share of a Point and writes down its rows.

It must not know of Ray: `wall` is whatever has `beat.remote`. What is imported here is what every worker's start
costs.
"""

import contextlib
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from loadgen import cores, record, rowstream, store, worker
from loadgen.errors import StorageError
from loadgen.plan import Plan
from server import apart


def work(shard: worker.Shard | None, wall: Any, key: str, mark: str | None, plan: Plan | None) -> dict[str, Any]:
    """Drive the shard's streams, its share of `plan`, as the board `key` says.

    Rows go where the file `mark` lies; where that is not to be found, this host has not the driver's disk, and they
    travel with the beats. None: outcomes go home, counted.
    """
    if shard is None or plan is None:  # hired before there is work: this process has imported what it takes
        return {}
    shard = replace(shard, plan=plan)
    with cores.alone(shard.worker):
        if mark is None:
            return _counted(shard, wall, key)
        return _written(shard, wall, key, Path(mark).parent) if Path(mark).exists() else _sent(shard, wall, key)


def _counted(shard: worker.Shard, wall: Any, key: str) -> dict[str, Any]:
    outcomes: Counter[str] = Counter()

    def count(rows: list[dict[str, Any]]) -> None:
        outcomes.update(f"{row['outcome']} {row['error'] or ''}".strip() for row in rows)

    done = uvloop.run(worker.drive(shard, partial(_tell, wall, key), count))
    return {**done, "outcomes": dict(outcomes)}


def _written(shard: worker.Shard, wall: Any, key: str, folder: Path) -> dict[str, Any]:
    rows = store.RowWriter(store.stream_path(folder, shard.worker), record.IDENTITY + record.REQUEST)
    try:
        return uvloop.run(worker.drive(shard, partial(_tell, wall, key), rows.append_with_texts))
    finally:
        rows.close()


def _sent(shard: worker.Shard, wall: Any, key: str) -> dict[str, Any]:
    """With the rows that no beat has carried, where the board was lost meanwhile, under `left`.

    Where this node will write its part of the dataset, its rows stay here too, in the folder `apart`.
    """
    rows = rowstream.RowSender()
    kept = Kept(shard.worker) if shard.keep_rows else None

    async def tell(beat: dict[str, Any]) -> dict[str, Any]:
        if beat["phase"] == "ready":
            return await _tell(wall, key, beat)
        parcel = rows.parcel()
        if kept:
            kept.add(parcel)
        answer = await _tell(wall, key, beat, parcel)
        if answer.get("kept"):
            rows.arrived(parcel)
        return answer

    try:
        done = uvloop.run(worker.drive(shard, tell, rows.append_with_texts))
    except BaseException:
        if kept:
            kept.drop()
        raise
    left = rows.parcel()
    if kept:
        kept.add(left)
    return {**done, "left": left, "apart": str(kept.folder) if kept and kept.folder else None}


class Kept:
    """A worker's rows on its own node too, in a folder apart, as long as the node takes them: they travel anyway."""

    def __init__(self, worker: int) -> None:
        self._worker, self._able = worker, True
        self.folder: Path | None = None
        with contextlib.suppress(OSError):
            apart.remove_ownerless()  # gigabytes of a killed one, perhaps: not while anything is measured

    def add(self, parcel: rowstream.Parcel) -> None:
        """What is on its way to the driver's disk."""
        if not self._able:
            return
        try:
            self.folder = self.folder or apart.new()
            store.keep(self.folder, self._worker, parcel)
        except (OSError, StorageError):
            self.drop()

    def drop(self) -> None:
        """Take the folder away, and take no more."""
        self._able = False
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None


async def _tell(wall: Any, key: str, beat: dict[str, Any], *rows: rowstream.Parcel) -> dict[str, Any]:
    answer: dict[str, Any] = await wall.beat.remote(key, beat, *rows)
    return answer
