"""Rows on their way to the disk: as messages of an Arrow stream, their texts as lines of JSON, and how both travel.

Writes no file: store does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadgen.columns import schema, table
from loadgen.record import IDENTITY, REQUEST, Column


def opening(columns: Sequence[Column]) -> Any:
    """The message that begins a stream of rows with these columns."""
    table([{}], columns)  # Arrow's first table brings pandas where that is installed: 0.2 s, not in a measurement
    return schema(columns).serialize()


def batches(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> list[Any]:
    """The rows as messages of an Arrow stream; none for none."""
    return [batch.serialize() for batch in table(rows, columns).to_batches()] if rows else []


def without_texts(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], bytes]:
    """Rows without their answers' texts, and the texts as lines of JSON."""
    texts = [{name: row[name] for name in ("seq", "prompt_id", "text")} for row in rows if row.get("text")]
    plain = [{name: value for name, value in row.items() if name != "text"} for row in rows]
    return plain, b"".join(to_json(text) + b"\n" for text in texts)


@dataclass(frozen=True)
class Parcel:
    """The next bytes of a worker's stream of rows and of that of their texts, and where in these they begin."""

    offset: int
    rows: bytes
    texts_offset: int = 0
    texts: bytes = b""


class RowSender:
    """The stream of a worker that has not the results' disk: its bytes, until they are carried there."""

    def __init__(self, columns: Sequence[Column] = IDENTITY + REQUEST) -> None:
        self.columns = columns
        self._offset = self._texts_offset = 0
        self._rows, self._texts = [opening(columns).to_pybytes()], list[bytes]()

    def append_with_texts(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the rows as one batch, and their texts."""
        plain, texts = without_texts(rows)
        self._rows += [batch.to_pybytes() for batch in batches(plain, self.columns)]
        self._texts.append(texts)

    def parcel(self) -> Parcel:
        """All that has not arrived yet."""
        return Parcel(self._offset, b"".join(self._rows), self._texts_offset, b"".join(self._texts))

    def arrived(self, parcel: Parcel) -> None:
        """Forget what a parcel held: it begins with what was there when it was made."""
        whole = self.parcel()
        self._offset += len(parcel.rows)
        self._texts_offset += len(parcel.texts)
        self._rows, self._texts = [whole.rows[len(parcel.rows) :]], [whole.texts[len(parcel.texts) :]]


def to_json(value: Any, indent: bool = False) -> bytes:
    """Strict JSON: NaN and infinities become null."""
    options = orjson.OPT_SERIALIZE_NUMPY | (orjson.OPT_INDENT_2 if indent else 0)
    return orjson.dumps(value, default=_plain, option=options)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
