"""A Point's numbers are made of its events part by part: the same whatever the parts are, in little more memory."""

import dataclasses
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rows import NS_PER_MS, failure, health, row

from loadgen import dataset, store
from loadgen.columns import columns, fitted, table
from loadgen.config import Load
from loadgen.facts import gather
from loadgen.record import IDENTITY, REQUEST, REQUESTS
from loadgen.rowstream import to_json
from loadgen.series import in_window, request_tokens
from loadgen.summary import summarize
from loadgen.window import Window

S = 1_000_000_000
SPAN = Window(2 * S, 9 * S, "made up")
BYTES_AN_EVENT_MAX = 10  # one array of 8 bytes each at a time, and what the parts take
CHANGES: list[dict[str, Any]] = [
    {},
    {"chunk_tokens": None},
    {"chunk_tokens": None, "output_tokens": 17},
    {"chunk_tokens": None, "outcome": "cut", "token_source": "events", "done_ns": None},
    {"outcome": "malformed", "output_tokens": 2_000_000_000, "error": "usage"},
    {"outcome": "truncated", "chunk_tokens": None, "output_tokens": None},
    {"output_tokens": 40, "spec_verify_steps": 3},
    {"prompt_kind": "chat", "cached_tokens": None},
]


def varied(count: int, **more: Any) -> list[dict[str, Any]]:
    """Requests of one to thirty events from three workers, some of which tell little, say nothing or fail."""
    rng, rows = np.random.default_rng(3), []
    for seq in range(count):
        sent_ms = 11_000 * seq / count
        if seq % 11 == 10:
            rows.append(failure(seq, sent_ms, ["connect", "unsent"][seq % 2], sent_ns=None, **more))
            continue
        gaps = rng.integers(1, 60 * NS_PER_MS, rng.integers(1, 30))
        stamps = (round(sent_ms * NS_PER_MS) + np.cumsum(gaps)).tolist()
        changes = {"worker": seq % 3, "chunk_tokens": rng.integers(0, 5, len(stamps)).tolist(), "chunk_ns": stamps}
        changes = {**changes, **CHANGES[seq % len(CHANGES)], **more}
        if changes["chunk_tokens"] and changes.get("outcome", "ok") == "ok":
            changes.setdefault("output_tokens", sum(changes["chunk_tokens"]))
        rows.append(row(seq, sent_ms, **changes))
    return rows


def arrays(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    cols = columns(fitted(table(rows, IDENTITY + REQUEST), REQUESTS))
    return {**cols, "in_window": in_window(cols, SPAN.start_ns, SPAN.end_ns)}


def told(cols: dict[str, np.ndarray], whole_run: bool, think_s: float) -> tuple[str, bytes]:
    """Everything that is made of a Point's rows."""
    opened = not np.isnan(cols["rate"].astype(float)).all()
    span, streams = None if whole_run else SPAN, None if opened else 16
    facts = gather(cols, [health(5000)], span, Load(), streams, think_s=think_s, capacity_events_per_s=1000.0)
    numbers = summarize(
        cols, SPAN.start_ns, SPAN.end_ns, concurrency=streams, gpus=8, whole_run=whole_run, think_s=think_s
    )
    return repr(dataclasses.asdict(facts)), to_json(numbers)


@pytest.mark.parametrize(("whole_run", "think_s", "rate"), [(False, 0, None), (True, 0.2, None), (False, 0, 9.0)])
def test_numbers_are_the_same_in_parts_of_any_size(
    whole_run: bool, think_s: float, rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last digit: requests alone, a few together, all at once; fractions of tokens among them."""
    cols, found = arrays(varied(200, rate=rate)), []
    for events in (1, 7, 100, 10**9):
        monkeypatch.setattr("loadgen.series.EVENTS_AT_ONCE", events)
        monkeypatch.setattr("loadgen.facts.EVENTS_AT_ONCE", events)
        found.append(told(cols, whole_run, think_s))
    assert found[:-1] == found[1:]


def test_each_requests_tokens_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: told, untold and spread, none at all; of the first event alone."""
    rows = [
        row(0, chunk_tokens=[3, 1, 1, 1, 1], output_tokens=7),
        failure(1, 0, "connect"),
        row(2, chunk_tokens=None, output_tokens=15),
        row(3, chunk_ns=[]),
    ]
    for events in (1, 5, 10**9):
        monkeypatch.setattr("loadgen.series.EVENTS_AT_ONCE", events)
        total, first = request_tokens(arrays(rows))
        assert total.tolist() == [7, 0, 15, 0]
        assert first[[0, 2]].tolist() == [3, 3]
        assert np.isnan(first[[1, 3]]).all()


def test_no_more_memory_than_one_array_of_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts and numbers of 800,000 events, by what numpy allocates: the gaps between them, or their stamps in order."""
    monkeypatch.setattr("loadgen.series.EVENTS_AT_ONCE", 10_000)
    monkeypatch.setattr("loadgen.facts.EVENTS_AT_ONCE", 10_000)
    stamps = np.arange(4000) * 2 * NS_PER_MS
    rows = [
        row(seq, 50 * seq, chunk_ns=(50 * seq * NS_PER_MS + stamps).tolist(), prompt_kind=("code", "chat")[seq % 2])
        for seq in range(200)
    ]
    rows[7]["chunk_tokens"] = None
    cols = arrays(rows)
    tracemalloc.start()
    try:
        told(cols, False, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / len(cols["chunk_ns"]) < BYTES_AN_EVENT_MAX


def test_lists_in_the_order_of_seq(tmp_path: Path) -> None:
    """Several streams' rows, each list with its own row, null where it was null; columns of it copy no list."""
    rows = varied(100)
    for worker in range(3):
        writer = store.RowWriter(store.stream_path(tmp_path, worker))
        mine = [one for one in reversed(rows) if one["seq"] % 3 == worker]
        for first in range(0, len(mine), 7):
            writer.append(mine[first : first + 7])
        writer.close()
    read = store.requests_table(tmp_path, None)
    for name in ("seq", "outcome", "chunk_ns", "chunk_tokens"):
        assert read[name].to_pylist() == [one[name] for one in rows], name
    (piece,) = read["chunk_ns"].chunks
    assert columns(read)["chunk_ns"].ctypes.data == piece.values.buffers()[1].address


def test_parquet_is_written_some_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is encoded together stays small; readers see one file of all rows."""
    monkeypatch.setattr("loadgen.store.ROWS_AT_ONCE", 30)
    store.write_parquet(tmp_path / "a.parquet", varied(100), REQUESTS)
    written = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert [written.row_group(n).num_rows for n in range(written.num_row_groups)] == [30, 30, 30, 10]
    assert [len(part) for part in dataset.request_batches(tmp_path / "a.parquet", ["seq"])] == [100]
