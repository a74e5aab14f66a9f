"""The hot path's targets, each within its bound or within 0.2 ms of the bare protocol's in the same minutes.

What bench.OUT_OF_REACH names is printed only.
"""

from pathlib import Path

import bench
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """truthd; skips where the benchmark cannot run."""
    if why := bench.missing():
        pytest.skip(f"the benchmark cannot run here: {why}")
    return bench.build(tmp_path_factory.mktemp("bench"))


@pytest.mark.parametrize("row", bench.ROWS, ids=lambda row: row.name)
def test_the_worker_is_near_the_bare_protocol(binary: Path, row: bench.Row) -> None:
    """Stamps, times, tokens drawn, CPU and memory of a row hold."""
    found = bench.figures(row, *bench.measured(binary, row))
    print(bench.table(row.name, found))
    assert bench.missed(row.name, found) == []


def test_two_workers_cost_what_one_does(binary: Path) -> None:
    """A token's CPU is within 10 % of what it is for one worker, and both draw all."""
    found = bench.two_workers(binary)
    print(bench.table(bench.TWO.name, found))
    assert bench.missed(bench.TWO.name, found) == []
