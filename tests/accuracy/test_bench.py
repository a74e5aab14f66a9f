"""The benchmark of the hot path runs, small: every figure of every row is there, and none is absurd.

Whether the figures hold is for a quiet machine to say: python tests/accuracy/bench.py
"""

from dataclasses import replace
from pathlib import Path

import pytest
from bench import ROWS, Row, figures, measured, missing, table

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=f"{missing()}")]
BUSY_MS = 25.0  # what a busy neighbour of the test machine may add to a stamp


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row(row: Row, truthd_binary: Path) -> None:
    """As many streams as the row has, a request each: all held, what was offered drawn, stamps beside the bare ones."""
    small = replace(row, requests=row.streams, turns=("ours", "raw"))
    ours, raw = measured(truthd_binary, small)
    found = {figure.name: figure for figure in figures(small, ours, raw)}
    print(table(row.name, list(found.values())))
    if row.cpu_ratio:
        assert found["stamp error p99, ms"].ours <= found["stamp error p99, ms"].raw + BUSY_MS
    if row.drawn:
        assert found["drawn / bare"].ours >= 0.9
    if row.cpu_ratio:
        assert 1 <= found["CPU a token / bare"].ours < 5
    if row.a_stream_kib:
        assert (found["streams held at once"].ours, found["memory a stream, KiB"].held) == (row.streams, True)
