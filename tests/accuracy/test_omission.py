"""A server that stands still for 2 s in every 20: open loop shows it to the size that arithmetic says."""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import CLIENT_RULES, measured, server_reasons

pytestmark = pytest.mark.slow
OPEN = ("-m", "+variant=baseline", "engine=sim", "load=open", "load.rate=6", "load.window_s=80")
# Of 480 requests 24 lie above p95 and 5 above p99: chance moves these by some tenths of a second.
CHANCE_S = 0.35


def quantiles_s(folder: Path) -> list[float]:
    """p50, p95 and p99 of the time from the planned moment to the first token."""
    rows = pq.read_table(folder / "r6" / "requests.parquet")
    rows = rows.filter(rows["in_window"])
    waited_ns = rows["first_token_ns"].to_numpy() - rows["planned_ns"].to_numpy()
    return [float(value) for value in np.quantile(waited_ns / 1e9, (0.5, 0.95, 0.99))]


def test_a_stall_is_seen_by_who_came_meanwhile(tmp_path: Path) -> None:
    """A tenth of the requests wait 0 to 2 s: p95 is about 1 s and p99 about 1.8 s above the run without; both VALID."""
    python = tmp_path / "stalling_python"
    python.write_text(
        f'#!/bin/sh\n[ "$STALL" = none ] || set -- "$@" --sim-fault "$STALL"\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    stalls = ("variant.env.STALL=none,stall:2:20", f"engine.python={python}")
    _, points, said = measured(tmp_path, *OPEN, *stalls, limit_s=400)
    assert len(points) == 2, said
    assert [reason for reason in server_reasons(points) if reason["rule"] not in {*CLIENT_RULES, "lateness_p99"}] == []
    without, stalled = (quantiles_s(path.parent.parent) for path in sorted(tmp_path.glob("outputs/**/r6/point.json")))
    print(without, stalled)
    for place, more_s in ((1, 1.0), (2, 1.8)):
        assert stalled[place] - without[place] == pytest.approx(more_s, abs=CHANCE_S)
    assert stalled[0] - without[0] < 0.1
