"""Reading what a run left: row streams, JSON, the ledger, the Parquet of many Points as one table.

Owns what counts as whole: a Point without its point.json does not exist. Writes nothing (see store.py).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadgen.columns import table
from loadgen.errors import StorageError
from loadgen.record import HEALTH, IDENTITY, REQUEST, REQUESTS, Column, Outcome

POINT = "point.json"  # the commit mark, written last
REQUESTS_FILE = "requests.parquet"
HEALTH_FILE = "health.parquet"
ROW_STREAMS, TEXT_STREAMS = "_requests_*.arrows", "_requests_*.jsonl"  # of workers, until their Point is whole
ROWS_AT_ONCE = 10_000  # of 512 events each: 100 MB
BATCHES_AT_ONCE = 32  # of a stream; a batch alone takes 70 kB beside its rows

# How a request ends whose server dies under it; a connection refused afterwards stays `connect`.
ENDED_BY_DEATH = {
    Outcome.CONNECTION_LOST,
    Outcome.TRUNCATED,
    Outcome.CUT,
    Outcome.TIMEOUT_FIRST_TOKEN,
    Outcome.TIMEOUT_STALL,
}
DEATH_NOTICED_NS_MAX = 3_000_000_000  # the driver looks once a second and hears of it through two processes


@contextmanager
def reported(path: Path | str, doing: str = "write") -> Iterator[None]:
    """Turn an OSError into one sentence that names the file; a place on another host is given in words."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = "make room or choose another output folder" if doing == "write" else "look at its owner and its disk"
        raise StorageError(f"cannot {doing} {path}: {reason}; {advice}") from error


def read_rows(path: Path, columns: Sequence[Column] = IDENTITY + REQUEST) -> pa.Table:
    """The whole batches of a row stream, also of one that a kill cut off; no rows if not even its head was written."""
    batches, pieces = _batches(path), [table([], columns)]
    while some := list(islice(batches, BATCHES_AT_ONCE)):
        pieces.append(pa.Table.from_batches(some).combine_chunks())
    return pa.concat_tables(pieces, promote_options="permissive")


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with reported(path, "read"), pa.OSFile(str(path), "rb") as source:
        with suppress(pa.ArrowInvalid, OSError):  # the cut: what came before it is whole
            for batch in pa.ipc.open_stream(source):
                batch.validate()
                yield batch


def all_rows(folder: Path, worker: int | None = None) -> pa.Table:
    """The rows that all workers of a Point, or one of them, have written: by `seq`, each list column in one piece."""
    found = map(read_rows, sorted(folder.glob(_streams_of(ROW_STREAMS, worker))))
    rows = pa.concat_tables([table([], IDENTITY + REQUEST), *found], promote_options="permissive")
    order = np.argsort(rows["seq"].to_numpy())
    lists = [field for field in rows.schema if pa.types.is_list(field.type)]
    ordered = rows.drop_columns([field.name for field in lists]).take(order)
    for field in lists:
        ordered = ordered.append_column(field, _in_order(rows[field.name], order))
    return ordered


def _in_order(lists: pa.ChunkedArray, order: np.ndarray) -> pa.Array:
    """The lists in this order. Arrow's own `take` has them three times over meanwhile, and they are most of a Point."""
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    ends = np.cumsum(sizes[order])
    begins = np.empty_like(sizes)
    begins[order] = ends - sizes[order]
    values, row = np.empty(sizes.sum(), lists.type.value_type.to_pandas_dtype()), 0
    for piece in lists.chunks:
        mine = slice(row, row + len(piece))
        starts = begins[mine] - (np.cumsum(sizes[mine]) - sizes[mine])
        values[np.repeat(starts, sizes[mine]) + np.arange(sizes[mine].sum())] = piece.flatten().to_numpy()
        row = mine.stop
    offsets, absent = pa.array(np.concatenate(([0], ends)), pa.int32()), lists.is_null().to_numpy()[order]
    return pa.ListArray.from_arrays(offsets, values, lists.type, mask=pa.array(absent))


def _streams_of(pattern: str, worker: int | None) -> str:
    return pattern if worker is None else pattern.replace("*", str(worker))


def streams(root: Path) -> list[Path]:
    """What workers have written at and below `root` and no whole Point has taken over yet."""
    return [*root.rglob(ROW_STREAMS), *root.rglob(TEXT_STREAMS)]


def mark_server_gone(requests: pa.Table, noticed_ns: int) -> pa.Table:
    """The rows with outcome `server_gone` where the server's death ended a request; it was noticed at `noticed_ns`."""
    by_death = pa.array([outcome in ENDED_BY_DEATH for outcome in requests["outcome"].to_pylist()], pa.bool_())
    late = pc.greater_equal(requests["done_ns"], noticed_ns - DEATH_NOTICED_NS_MAX).fill_null(True)
    gone = pc.if_else(pc.and_(by_death, late), Outcome.SERVER_GONE.value, requests["outcome"])
    return requests.set_column(requests.schema.get_field_index("outcome"), "outcome", gone)


def with_verdict(requests: pa.Table, status: str) -> pa.Table:
    """The rows as they are kept: each tells the verdict of its Point."""
    verdict = pa.array([status] * len(requests), pa.string())
    return requests.set_column(requests.schema.get_field_index("verdict"), "verdict", verdict)


def text_lines(folder: Path, worker: int | None = None) -> Iterator[bytes]:
    """The answers that a Point's workers, or one, have written, as lines of JSON, less one that a kill cut off."""
    for stream in sorted(folder.glob(_streams_of(TEXT_STREAMS, worker))):
        with reported(stream, "read"), stream.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))


def read_json(path: Path) -> Any:
    """The value in a JSON file. Raises StorageError when it cannot be read or is not JSON."""
    with reported(path, "read"):
        data = path.read_bytes()
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise StorageError(f"{path} is not JSON ({error}); remove it or restore it") from error


def read_ledger(path: Path, needed: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The lines of a ledger in order; a line that a kill cut off is passed over (its Point is measured again).

    Raises StorageError with its number for a whole line that lacks one of the keys `needed`: no kill leaves that.
    """
    with reported(path, "read"):
        data = path.read_bytes()
    lines = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        missing = [name for name in needed if not isinstance(value, dict) or name not in value]
        if missing:
            wrong = f"{path} line {number} is not as loadgen writes it: it has no {', '.join(missing)}"
            raise StorageError(f"{wrong}; restore the line, or take it away: its Point is measured again")
        if isinstance(value, dict):
            lines.append(value)
    return lines


def point_files(roots: Path | Sequence[Path]) -> list[Path]:
    """Every `point.json` at or below `roots`, in order of path."""
    below = [Path(roots)] if isinstance(roots, str | Path) else [Path(root) for root in roots]
    return sorted({path for root in below for path in root.rglob(POINT)})


def part_of(name: str, worker: int | None = None) -> str:
    """What a worker's own part of a file is called; a pattern for those of all."""
    return name.replace(".", f"-{'[0-9]*' if worker is None else worker}.")


def files_of(path: Path) -> list[Path]:
    """The files that a point.json means by this path: one, or several where each worker wrote its own (output.uri)."""
    return sorted(path.parent.glob(path.name))


def request_batches(path: Path, names: Sequence[str]) -> Iterator[pa.Table]:
    """The named columns of a Point's rows, in parts that fit into any memory. Raises StorageError for a broken file."""
    for one in files_of(path) or [path]:
        try:
            with reported(one, "read"), pq.ParquetFile(one) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(names)):
                    yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as error:
            advice = "remove its Point's folder or restore it"
            raise StorageError(f"{one} is not whole Parquet ({error}); {advice}") from error


def read_dataset(roots: Path | Sequence[Path], name: str = REQUESTS_FILE) -> pa.Table:
    """All whole Points' files called `name` below `roots` as one table; a column that a file lacks is null there."""
    folders = [path.parent for path in point_files(roots)]
    files = [file for at in folders for file in files_of(at / name) or files_of(at / part_of(name))]
    if not files:
        return table([], {REQUESTS_FILE: REQUESTS, HEALTH_FILE: HEALTH}[name])
    from pyarrow.dataset import dataset  # here: it brings pandas where that is installed, and no run reads a dataset

    with reported(files[0], "read"):
        unified = pa.unify_schemas([pq.read_schema(path) for path in files], promote_options="permissive")
        return dataset([str(path) for path in files], schema=unified).to_table()
