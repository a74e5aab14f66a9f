"""Columns between their three forms: declared names and types, Arrow tables, numpy arrays.

Owns the one mapping of a declared type to an Arrow type, so that every file of a kind has the same schema whatever its
rows hold. Knows nothing of files.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from loadgen.record import SCHEMA_VERSION, Column

ARROW_TYPES = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "list<int32>": pa.list_(pa.int32()),
    "list<int64>": pa.list_(pa.int64()),
    "list<float32>": pa.list_(pa.float32()),
}
UNITS = {"ns": "nanoseconds", "ms": "milliseconds", "s": "seconds", "bytes": "bytes", "tokens": "tokens"}


def schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of `columns`; each field carries its unit and meaning, the whole its schema version."""
    fields = [pa.field(column.name, ARROW_TYPES[column.type], metadata=_metadata(column)) for column in columns]
    return pa.schema(fields, metadata={"schema_version": str(SCHEMA_VERSION)})


def _metadata(column: Column) -> dict[str, str]:
    unit = UNITS.get(column.name.rsplit("_", 1)[-1])
    return {"doc": column.doc, **({"unit": unit} if unit else {})}


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> pa.Table:
    """The rows as a table of exactly these columns.

    A missing key, None and NaN are null; a key that no column has is a ValueError, because Arrow would drop it.
    """
    names = {column.name for column in columns}
    for row in rows:
        if not row.keys() <= names:
            raise ValueError(f"no column for {sorted(row.keys() - names)}; declare it in loadgen/record.py")
    arrays = [_array([row.get(column.name) for row in rows], column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema(columns))


def _array(values: list[Any], column: Column) -> pa.Array:
    if column.type == "timestamp":
        values = [_instant(value, column.name) for value in values]
    return pa.array(values, ARROW_TYPES[column.type], from_pandas=True)


def _instant(value: datetime | str | None, name: str) -> datetime | None:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError(f"{name} is {moment.isoformat()} without a time zone; give it one (UTC)")
    return moment.astimezone(UTC)


def fitted(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """The table with exactly these columns in this order; absent ones are null."""
    want = schema(columns)
    arrays = [rows[field.name] if field.name in rows.schema.names else pa.nulls(len(rows)) for field in want]
    return pa.table([array.cast(field.type) for array, field in zip(arrays, want, strict=True)], schema=want)


def columns(rows: pa.Table) -> dict[str, np.ndarray]:
    """Each column as an array: numbers (float64 with NaN where one is null), bool (null is False), text as objects.

    A list column `x` is its values end to end, with `x_offsets` (int64, rows + 1) beside it. `chunk_tokens` always has
    the offsets of `chunk_ns`: a row whose server does not tell holds NaN. Lists that lie in one piece are not copied.
    """
    arrays: dict[str, np.ndarray] = {}
    for name in rows.schema.names:
        pieces = rows[name].chunks or [pa.array([], rows[name].type)]
        column = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        if pa.types.is_list(column.type):
            arrays[name], arrays[f"{name}_offsets"] = _flat(column)
        else:
            arrays[name] = _scalars(column)
    if "chunk_tokens" in arrays and "chunk_ns" in arrays:
        _align(arrays)
    return arrays


def _scalars(column: pa.Array) -> np.ndarray:
    if pa.types.is_boolean(column.type):
        column = column.fill_null(False)
    elif pa.types.is_integer(column.type):
        column = column.cast(pa.float64() if column.null_count else pa.int64())
    elif pa.types.is_string(column.type):  # each text once: most columns of a Point say the same in every row
        told = column.dictionary_encode()
        texts = np.array([*told.dictionary.to_pylist(), None], dtype=object)
        return texts[told.indices.fill_null(len(texts) - 1).to_numpy()]
    return column.to_numpy(zero_copy_only=False)


def _flat(column: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    values = column.flatten()
    flat = _scalars(values) if values.null_count else values.to_numpy(zero_copy_only=False)
    return flat, np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def _align(arrays: dict[str, np.ndarray]) -> None:
    """Give `chunk_tokens` one value for each of `chunk_ns`, NaN where its row has none (float32 holds them exactly)."""
    have, want = np.diff(arrays["chunk_tokens_offsets"]), np.diff(arrays["chunk_ns_offsets"])
    told = have == want
    assert (have[~told] == 0).all(), "a row has chunk_tokens of another length than its chunk_ns"
    if not told.all():
        aligned = np.full(len(arrays["chunk_ns"]), np.nan, np.float32)
        aligned[np.repeat(told, want)] = arrays["chunk_tokens"]
        arrays["chunk_tokens"], arrays["chunk_tokens_offsets"] = aligned, arrays["chunk_ns_offsets"]
