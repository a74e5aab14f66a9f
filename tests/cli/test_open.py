"""Open loop as a user runs it: rates as levels, one of them too high and told as such; a trace."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from running import Ended

FAST = ("+variant=baseline", "engine=sim", "engine.sim_speed=30", "workload.max_tokens=64")
# Of the client; whether it was quick enough is the machine's business.
CLIENT = {"loop_lag_p99", "loop_lag_max", "lateness_p99", "worker_cpu_p95", "gc_pause_max", "rate_held"}


def reasons(point: dict) -> set[str]:
    return {reason["rule"] for reason in point["verdict"]["reasons"]}


def test_two_rates_of_one_server(cli: Callable[..., Ended]) -> None:
    """Levels in folders and rows of their own, both latencies; four times what the server can do is overload."""
    load = ("load=open", "load.rate=[5,60]", "load.window_s=4", "cluster.workers=2")
    ended = cli(*FAST[:2], "engine.sim_speed=10", *load)
    assert ended.code == 6, ended.err
    well, over = ended.points()
    assert [line["rate"] for line in ended.ledger()] == [5, 60]
    assert [(point["load"]["rate"], point["load"]["arrival"]) for point in (well, over)] == [
        (5, "poisson"),
        (60, "poisson"),
    ]
    assert well["launch_id"] == over["launch_id"]
    # To the nanosecond, which is what it is made of: the difference of two decimals is not always the whole one.
    assert round(well["window"]["end_s"] - well["window"]["start_s"], 9) == 4
    assert reasons(well) <= CLIENT
    assert well["summary"]["ttft_planned_ms"]["p50"] >= well["summary"]["ttft_ms"]["p50"] > 0
    rows = pq.read_table(ended.results / "r5" / "requests.parquet")
    assert set(rows["rate"].to_pylist()) == {5}
    assert rows["concurrency"].null_count == len(rows)
    assert pc.all(pc.equal(rows["outcome"].filter(rows["in_window"]), "ok")).as_py()
    assert "overload" in reasons(over)
    assert "steady" not in reasons(over)
    assert over["summary"]["ttft_ms"] == {"mean": None, "p50": None, "p90": None, "p99": None, "n": 0}
    assert "lower load.rate (its tokens were those of" in ended.out
    assert "concur" not in ended.out


@pytest.mark.slow
def test_a_trace_is_replayed_whole(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """Its requests, its lengths, its times; a run that is done is resumed by skipping it."""
    path = tmp_path / "trace.jsonl"
    came = [{"timestamp": 200 * i, "input_length": 20 + i, "output_length": 8 + i, "hash_ids": [0]} for i in range(12)]
    path.write_text("".join(json.dumps(one) + "\n" for one in came))
    load = ("load=open", f"load.trace={path}", "load.trace_speed=2")
    ended = cli(*FAST, *load)
    assert ended.code in (0, 6), ended.err
    (point,) = ended.points()
    assert reasons(point) <= CLIENT
    assert (point["load"]["arrival"], point["load"]["requests"], point["load"]["rate"]) == ("trace", 12, 10)
    rows = pq.read_table(ended.results / "trace" / "requests.parquet").sort_by("seq")
    assert rows["planned_ns"].to_pylist() == [100_000_000 * i for i in range(12)]
    assert rows["planned_tokens"].to_pylist() == rows["output_tokens"].to_pylist() == [8 + i for i in range(12)]
    assert "mean rate 10 (12 requests)" in ended.err
    assert "whole run" in ended.out
    if ended.code == 0:
        again = cli(*FAST, *load, "resume=true", folder=ended.folder)
        assert again.code == 0
        assert len(again.ledger()) == 1
