"""Workloads and several endpoints as a user runs them: what the dataset holds, and what the tables say."""

import json
from collections.abc import Callable

import pyarrow.compute as pc
from fake_api import Api, serving
from running import Ended

from loadgen.dataset import read_dataset

KEY = "a-key-of-the-test"
QUICK = ("engine=sim", "engine.sim_speed=20", "load.concurrency=3", "load.requests=24", "output.text=true")


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


def test_two_endpoints_share_a_load(cli: Callable[..., Ended]) -> None:
    """Two servers in turns: rows and launch.json say which, and each is asked as often."""
    with serving(Api(KEY, "yes")) as one, serving(Api(KEY, "yes")) as other:
        plain = ("+variant=baseline", "engine=external", "engine.api_key_env=THE_KEY", "load.concurrency=2")
        load = ("load.requests=40", "workload.max_tokens=4", "load.failed_share_max=1")
        ended = cli(*plain, *load, f"engine.url=['{one.url}','{other.url}']", env={"THE_KEY": KEY})
    assert ended.code in (0, 6), ended.err
    assert [point["files"]["server_log"] for point in ended.points()] == [None]
    endpoints = read_dataset(ended.results)["endpoint"].to_pylist()
    assert {url: endpoints.count(url) for url in set(endpoints)} == {one.url: 20, other.url: 20}
    (launch,) = (json.loads(path.read_text()) for path in ended.results.rglob("launch.json"))
    assert [endpoint["url"] for endpoint in launch["endpoints"]] == [one.url, other.url]
