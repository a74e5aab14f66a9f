"""Every file of a run: row streams while it is measured, Parquet and point.json when it is whole, the ledger.

Owns how bytes reach the disk so that a kill at any moment leaves the old file or the new one, never half of one. Knows
nothing of what the numbers mean. Unfinished files begin with `_` or `.`, names that globs and dataset readers pass by.
"""

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loadgen.columns import columns, fitted, table
from loadgen.dataset import (
    HEALTH_FILE,
    POINT,
    REQUESTS_FILE,
    ROWS_AT_ONCE,
    TEXT_STREAMS,
    all_rows,
    reported,
    streams,
    text_lines,
    with_verdict,
)
from loadgen.errors import StorageError
from loadgen.record import HEALTH, IDENTITY, REQUEST, REQUESTS, Column
from loadgen.rowstream import Parcel, batches, opening, to_json, without_texts
from loadgen.series import in_window

LEDGER = "ledger.jsonl"
TEXTS = "text.jsonl"  # answers, kept only when asked
CONTENTS = (REQUESTS_FILE, HEALTH_FILE, TEXTS)  # of a Point: they count only with its point.json
RESERVE = ".reserve"  # room for the last words of a command whose disk is full
COMPRESSION = "zstd"  # of Parquet
STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of an Arrow IPC stream
FOLDER_TRIES_MAX = 1000  # runs begun in the same second; more means that something else is wrong
FOLDER_NAME_CHARS_MAX = 100  # file systems stop at 255 bytes


def sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; at the end it takes the place of `path` in one step."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with reported(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise


def _write_all(descriptor: int, data: bytes | pa.Buffer) -> None:
    """All of `data`: a nearly full disk takes a part first and refuses the rest on the next call."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A file's descriptor for the block; a new file where there is none. Raises StorageError for what goes wrong."""
    with reported(path):
        descriptor = os.open(path, os.O_CREAT | flags, 0o644)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class RowWriter:
    """Rows appended to an Arrow IPC stream; each append is one write to the operating system, so a kill loses none."""

    def __init__(self, path: Path, columns: Sequence[Column] = IDENTITY + REQUEST) -> None:
        self.path, self.columns = path, columns
        self._where = f"{path} on {socket.gethostname()}"  # a worker's disk may be another than the driver's
        with reported(self._where):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            _write_all(self._descriptor, opening(columns))

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the rows as one batch. Raises StorageError when the disk does not take them."""
        with reported(self._where):
            for batch in batches(rows, self.columns):
                _write_all(self._descriptor, batch)

    def append_with_texts(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The same for rows that may carry their answer's `text`, which goes to a stream of its own beside."""
        plain, texts = without_texts(rows)
        self.append(plain)
        if texts:
            append_bytes(self.path.with_suffix(".jsonl"), texts)

    def close(self) -> None:
        """End the stream; harmless when repeated."""
        if self._descriptor < 0:
            return
        with reported(self._where):
            try:
                _write_all(self._descriptor, STREAM_END)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


def append_bytes(path: Path, data: bytes) -> None:
    """Write at the end of a file, which may be new. Raises StorageError when the disk does not take it."""
    with _opened(path, os.O_APPEND | os.O_WRONLY) as descriptor:
        _write_all(descriptor, data)


@contextmanager
def marked(folder: Path) -> Iterator[Path]:
    """A file in `folder` for the length of the block, that only those find who have this disk."""
    path = folder / f".mark-{secrets.token_hex(8)}"
    with reported(path):
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()
    try:
        yield path
    finally:
        with suppress(OSError):  # a disk that is gone meanwhile has reasons of its own to be told
            path.unlink()


def keep(folder: Path, worker: int, parcel: Parcel) -> None:
    """A parcel goes where the worker's RowWriter would have written; twice is once. Raises StorageError."""
    path = stream_path(folder, worker)
    write_at(path, parcel.offset, parcel.rows)
    if parcel.texts:
        write_at(path.with_suffix(".jsonl"), parcel.texts_offset, parcel.texts)


def write_at(path: Path, offset: int, data: bytes) -> None:
    """Write from byte `offset` of a file on, which may be new; twice is once. Raises StorageError."""
    with _opened(path, os.O_WRONLY) as descriptor:
        os.lseek(descriptor, offset, os.SEEK_SET)
        _write_all(descriptor, data)


def kept(folder: Path, worker: int, parcel: Parcel) -> str:
    """The same for a process that must not end of it: what went wrong, or nothing."""
    try:
        keep(folder, worker, parcel)
    except StorageError as error:
        return str(error)
    return ""


def stream_path(folder: Path, worker: int) -> Path:
    """Where a worker's rows go until the Point is whole."""
    return folder / f"_requests_{worker}.arrows"


def requests_table(folder: Path, window_ns: tuple[int, int] | None, worker: int | None = None) -> pa.Table:
    """A Point's rows by seq, or those of one worker, with `in_window` set (no window: all are); `verdict` is null."""
    rows = all_rows(folder, worker)
    pa.default_memory_pool().release_unused()  # what was read; kept, it would lie beside all that is made of it
    seqs = rows["seq"].to_numpy()
    assert (np.diff(seqs) > 0).all(), f"a request of {folder} was recorded twice"
    needed = columns(rows.select(["sent_ns", "planned_ns", "outcome"]))
    inside = np.full(len(rows), True) if window_ns is None else in_window(needed, *window_ns)
    return fitted(rows.append_column("in_window", pa.array(inside, pa.bool_())), REQUESTS)


def commit_point(
    folder: Path,
    requests: pa.Table,
    health: Sequence[Mapping[str, Any]],
    point: Mapping[str, Any],
    streams_needed: bool = False,
) -> None:
    """Make a Point whole: its tables and texts, then `point.json`, then the workers' streams go unless they are needed.

    `requests` is what `requests_table` gave; `point` is what `point.json` holds, its verdict is set in every row.
    """
    write_parquet(folder / REQUESTS_FILE, with_verdict(requests, point["verdict"]["status"]), REQUESTS)
    write_parquet(folder / HEALTH_FILE, health, HEALTH)
    _gather_texts(folder)
    write_json(folder / POINT, point)
    if not streams_needed:
        drop_streams(folder)


def drop_streams(folder: Path) -> None:
    """Take away what the workers of a whole Point have written; what stays goes when the folder is gone on with."""
    with suppress(OSError):
        for stream in streams(folder):
            stream.unlink()


def _gather_texts(folder: Path) -> None:
    """The texts of all workers as one file, where answers are kept."""
    if any(folder.glob(TEXT_STREAMS)):
        with _replacing(folder / TEXTS) as temporary, temporary.open("wb") as file:
            file.writelines(text_lines(folder))


def commit_failed(folder: Path, point: Mapping[str, Any]) -> None:
    """A Point whose tables the disk did not take: `point.json` alone, in the room that was kept for it.

    A table that was written already says of its rows what is not true any more; all rows are in the workers' streams.
    """
    with reported(folder, "clean"):
        for name in CONTENTS:
            (folder / name).unlink(missing_ok=True)
    release(folder)
    write_json(folder / POINT, point)


def release(folder: Path) -> bool:
    """Give back the room that the command to which `folder` belongs kept for its last words; whether there was any."""
    root = next((place for place in (folder, *folder.parents) if (place / LEDGER).is_file()), folder)
    try:
        (root / RESERVE).unlink()
    except OSError:
        return False
    return True


def write_parquet(path: Path, rows: pa.Table | Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    """Write a table or rows as Parquet with exactly these columns, in one step."""
    whole = fitted(rows, columns) if isinstance(rows, pa.Table) else table(rows, columns)
    with _replacing(path) as temporary:
        pq.write_table(whole, temporary, compression=COMPRESSION, row_group_size=ROWS_AT_ONCE)  # encodes one at a time


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step."""
    with _replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """Write strict, indented JSON in one step."""
    write_bytes(path, to_json(value, indent=True) + b"\n")


def append_line(path: Path, value: Any) -> None:
    """Add one line of JSON to a ledger and force it to the disk; on a full one it takes the room kept for it."""
    try:
        _append_line(path, value)
    except StorageError:
        if not release(path.parent):
            raise
        _append_line(path, value)


def _append_line(path: Path, value: Any) -> None:
    with _opened(path, os.O_APPEND | os.O_RDWR) as descriptor:
        size = os.fstat(descriptor).st_size
        # A line that an earlier kill cut off must not swallow this one.
        broken = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        _write_all(descriptor, (b"\n" if broken else b"") + to_json(value) + b"\n")
        os.fsync(descriptor)


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder of its own for a Point in `parent`: `name`, or `name-2`, ... where an earlier one stands."""
    plain = folder_name(name)
    for number in range(1, FOLDER_TRIES_MAX):
        folder = parent / (plain if number == 1 else f"{plain}-{number}")
        with reported(folder):
            parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            sync(parent)
        return folder
    raise StorageError(f"{parent} holds {FOLDER_TRIES_MAX} folders called {plain}; choose another output folder")


def folder_name(text: str) -> str:
    """One folder level for any text: other characters become `-`, and no leading `.` or `_` hides it from readers."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in text)
    return plain.lstrip("._-")[:FOLDER_NAME_CHARS_MAX] or "unnamed"
