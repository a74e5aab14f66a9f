"""Loads and workloads as a user asks for them, on one Ray: rates, a trace, made prompts, conversations, no server."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from neighbour import CLIENT_RULES, of_the_server
from running import TINY, Ended

from loadgen.dataset import read_dataset

FAST = ("+variant=baseline", "engine=sim", "engine.sim_speed=30", "workload.max_tokens=64")
# Of the client; whether it was quick enough, and began in time, is the machine's business.
CLIENT = {*CLIENT_RULES, "lateness_p99", "rate_held", "start_skew"}
QUICK = ("engine=sim", "engine.sim_speed=20", "load.concurrency=3", "load.requests=24", "output.text=true")
NOTHING_ANSWERS_S_MAX = 15.0


def reasons(point: dict) -> set[str]:
    return {reason["rule"] for reason in point["verdict"]["reasons"]}


def of_others(point: dict) -> set[str]:
    """What is neither of the client nor a pause of its own."""
    return {reason["rule"] for reason in of_the_server(point["verdict"]["reasons"])} - CLIENT


@pytest.mark.slow
def test_two_rates_of_one_server(cli: Callable[..., Ended]) -> None:
    """Levels in folders and rows of their own, both latencies; four times what the server can do is overload."""
    load = ("load=open", "load.rate=[10,120]", "load.window_s=2", "cluster.workers=2")
    ended = cli(*FAST[:2], "engine.sim_speed=20", *load)
    assert ended.code == 6, ended.err
    well, over = ended.points()
    assert [line["rate"] for line in ended.ledger()] == [10, 120]
    assert [(point["load"]["rate"], point["load"]["arrival"]) for point in (well, over)] == [
        (10, "poisson"),
        (120, "poisson"),
    ]
    assert well["launch_id"] == over["launch_id"]
    # To the nanosecond, which is what it is made of: the difference of two decimals is not always the whole one.
    assert round(well["window"]["end_s"] - well["window"]["start_s"], 9) == 2
    assert of_others(well) == set()
    assert well["summary"]["ttft_planned_ms"]["p50"] >= well["summary"]["ttft_ms"]["p50"] > 0
    rows = pq.read_table(ended.results / "r10" / "requests.parquet")
    assert set(rows["rate"].to_pylist()) == {10}
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
    assert of_others(point) == set()
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


@pytest.mark.slow
def test_three_workloads_of_one_server(cli: Callable[..., Ended]) -> None:
    """Random, shared prefixes and conversations on a server with a prefix cache, lengths drawn for each request."""
    lengths = "workload.output_tokens={dist: uniform, min: 16, max: 64}"
    asked = ("-m", "+variant=baseline", "++variant.args.disable_radix_cache=false", lengths, *QUICK)
    ended = cli(*asked, "workload=random,shared_prefix,multi_turn")
    assert ended.code in (0, 6), ended.err
    rows = read_dataset(ended.results)
    of = {name: rows.filter(pc.equal(rows["workload"], name)) for name in ("random", "shared_prefix", "multi_turn")}
    assert {name: len(found) for name, found in of.items()} == dict.fromkeys(of, 24)
    assert pc.all(pc.equal(rows["outcome"], "ok")).as_py()
    assert rows["output_tokens"].to_pylist() == rows["planned_tokens"].to_pylist()
    assert 16 <= pc.min(rows["planned_tokens"]).as_py() < pc.max(rows["planned_tokens"]).as_py() <= 64
    cached = {name: pc.sum(found["cached_tokens"]).as_py() or 0 for name, found in of.items()}
    assert cached["random"] == 0
    assert cached["shared_prefix"] > 0
    assert cached["multi_turn"] > 0
    assert sorted(set(of["multi_turn"]["turn"].to_pylist())) == [1, 2, 3, 4]
    assert ended.err.count("warning: prompts of random words") == 1
    shown = " ".join(ended.out.split())
    assert shown.count("prompts of random words") == 1
    assert shown.count("prompt tokens found in the server's cache") == 2
    assert len(list(ended.results.rglob("launch.json"))) == 1
    by_name = {point["workload"]: point for point in ended.points()}
    assert [bool(by_name[name]["caveats"]) for name in of] == [True, False, False]


def test_an_engine_that_does_not_answer_is_exit_3(cli: Callable[..., Ended]) -> None:
    """Nothing listens at engine.url: known within its bound, with the address, as a line of the ledger."""
    begun_s = time.monotonic()
    ended = cli("+variant=baseline", *TINY, "engine=external", "engine.url='http://127.0.0.1:9'")
    assert time.monotonic() - begun_s < NOTHING_ANSWERS_S_MAX
    assert ended.code == 3
    assert "nothing answers at http://127.0.0.1:9" in ended.err
    assert "Traceback" not in ended.err
    assert [(line["status"], line["exit_code"]) for line in ended.ledger()] == [("FAILED", 3)]
