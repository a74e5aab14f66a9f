"""Files of the dataset on another file system (output.uri): S3, GCS, HDFS, what pyarrow knows by its address.

Owns how bytes reach it: a worker's part from the worker's node, the rest and last point.json, which makes the Point
whole there as on a disk, from the driver's. Credentials are those that a node's own environment gives its libraries.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from loadgen import dataset, store
from loadgen.columns import fitted
from loadgen.dataset import part_of
from loadgen.errors import StorageError
from loadgen.record import REQUESTS
from loadgen.rowstream import to_json

REACHED = "_loadgen"  # written before anything is measured: later it would be too late to hear that it may not be
ELSEWHERE = "look at the address, its rights and the network"
AT_ONCE = ("s3", "gcs")  # what is being written there is not seen until all of it is, and there are no folders


# Of point.json there: what lies beside it.
FILES = {
    "requests": part_of(store.REQUESTS_FILE),
    "health": store.HEALTH_FILE,
    "launch": "launch.json",
    "server_log": None,
    "server_metrics": "server_metrics.parquet",
}


@dataclass(frozen=True)
class Judged:
    """What a worker cannot know of its own rows: the Point's folder in `uri`, its verdict, window and death (ns)."""

    uri: str
    folder: str
    status: str
    window_ns: tuple[int, int] | None
    died_ns: int | None = None


@contextlib.contextmanager
def _told(place: str, doing: str = "write", advice: str = ELSEWHERE) -> Iterator[None]:
    """Turn what a file system, or Arrow, says into one sentence."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        raise StorageError(f"cannot {doing} {place}: {said}; {advice}") from error


@functools.cache
def _place(uri: str) -> tuple[Any, str]:
    system, path = fs.FileSystem.from_uri(uri)
    return system, path.rstrip("/")


def _path(uri: str, name: str) -> tuple[Any, str]:
    """The file system and a file's path there; its folder exists."""
    system, top = _place(uri)
    path = f"{top}/{name}"
    if system.type_name not in AT_ONCE:
        system.create_dir(path.rpartition("/")[0], recursive=True)
    return system, path


def _write(uri: str, name: str, data: bytes) -> None:
    with _told(uri):
        system, path = _path(uri, name)
        whole = path if system.type_name in AT_ONCE else f"{path}.tmp"
        with system.open_output_stream(whole) as out:
            out.write(data)
        if whole != path:
            system.move(whole, path)


def require(uri: str) -> None:
    """Show that files can be written there. Raises StorageError."""
    _write(uri, REACHED, b"")


def part(judged: Judged, worker: int, streams: Path) -> int:
    """Write what a worker has written to its streams as its part of the Point; how many rows that was.

    Raises StorageError, also where the stream is not here.
    """
    if not store.stream_path(streams, worker).exists():
        raise StorageError(f"{streams} holds no rows of worker {worker}")
    rows = store.requests_table(streams, judged.window_ns, worker)
    if judged.died_ns is not None:
        rows = dataset.mark_server_gone(rows, judged.died_ns)
    _write_rows(judged, worker, dataset.with_verdict(rows, judged.status))
    if lines := list(dataset.text_lines(streams, worker)):
        _write_texts(judged, worker, lines)
    return len(rows)


def _write_rows(judged: Judged, worker: int, rows: pa.Table) -> None:
    with _told(judged.uri):
        system, path = _path(judged.uri, f"{judged.folder}/{part_of(store.REQUESTS_FILE, worker)}")
        options = {"compression": store.COMPRESSION, "row_group_size": dataset.ROWS_AT_ONCE}
        pq.write_table(fitted(rows, REQUESTS), path, filesystem=system, **options)


def _write_texts(judged: Judged, worker: int, lines: Iterable[bytes]) -> None:
    _write(judged.uri, f"{judged.folder}/{part_of(store.TEXTS, worker)}", b"".join(lines))


def complete(judged: Judged, folder: Path, written: Mapping[int, int]) -> list[int] | None:
    """Make a Point whole there out of its own `folder`; which workers' parts that took, None where it was whole.

    A part is believed when its rows are as many as in the Point and it is seen from here: `written` has the rows of
    each, and a node's own disk is no place for all. Raises StorageError.
    """
    with _told(judged.uri, "read"):
        seen = _names(judged)
    if store.POINT in seen:
        return None
    with _told(str(folder), "read", "restore it, or take it away: its Point is measured again"):
        with pq.ParquetFile(folder / store.REQUESTS_FILE) as file:
            rows = Counter(file.read(["worker"])["worker"].to_pylist())
            left = [
                worker
                for worker in sorted({*rows, *written})
                if written.get(worker) != rows[worker] or part_of(store.REQUESTS_FILE, worker) not in seen
            ]
            if left:
                _write_parts(judged, folder, file.read(), left, seen)
        point = dataset.read_json(folder / store.POINT)
        for name, called in FILES.items():
            path = folder / (point["files"].get(name) or "")
            if name != "requests" and called and path.is_file():
                _write(judged.uri, f"{judged.folder}/{called}", path.read_bytes())
    _write(judged.uri, f"{judged.folder}/{store.POINT}", to_json({**point, "files": FILES}, indent=True) + b"\n")
    return left


def _names(judged: Judged) -> set[str]:
    system, top = _place(judged.uri)
    return {
        one.base_name for one in system.get_file_info(fs.FileSelector(f"{top}/{judged.folder}", allow_not_found=True))
    }


def _write_parts(judged: Judged, folder: Path, rows: pa.Table, workers: list[int], seen: set[str]) -> None:
    """The parts of these workers out of the Point's own `rows` and texts."""
    texts = folder / store.TEXTS
    lines = texts.read_bytes().splitlines(keepends=True) if texts.exists() else []
    by_seq = {orjson.loads(line)["seq"]: line for line in lines}
    for worker in workers:
        mine = rows.filter(pc.equal(rows["worker"], worker))
        _write_rows(judged, worker, mine)
        told = [by_seq[seq] for seq in mine["seq"].to_pylist() if seq in by_seq]
        if told or part_of(store.TEXTS, worker) in seen:  # one that is too long is written over
            _write_texts(judged, worker, told)
