"""Searches as a user asks for them, on one Ray: the largest level that keeps an objective, and a crossover."""

import json
from collections.abc import Callable

import pytest
from running import Ended

SIM = ("engine=sim", "workload.max_tokens=48", "load=search", "load.requests=32")
TRIES_MAX = 4  # a client that was too slow makes Points INVALID; going on measures them again


def finished(cli: Callable[..., Ended], *arguments: str) -> Ended:
    """The command, gone on with while Points are INVALID, which on a busy machine is no fault of a search."""
    ended = cli(*arguments)
    for _ in range(TRIES_MAX - 1):
        if ended.code != 6:
            break
        ended = cli(*arguments, "resume=true", folder=ended.folder)
    assert ended.code in (0, 6), ended.err
    return ended


def said(ended: Ended) -> str:
    """What the search said at its end, the last line of all."""
    last = ended.out.splitlines()[-1]
    assert last.startswith("search: ")
    return last.removeprefix("search: ")


def measured(ended: Ended) -> dict[int, dict]:
    """The summaries of VALID Points by concurrency."""
    valid = [point for point in ended.points() if point["verdict"]["status"] == "VALID"]
    return {point["load"]["concurrency"]: point["summary"] for point in valid}


@pytest.mark.slow
def test_the_largest_concurrency_that_keeps_a_time_per_token(cli: Callable[..., Ended]) -> None:
    """By the profile kept at 2 streams (5 ms) and not at 8 (8 ms and the prefills in between); noise only adds.

    At 2 streams a pause of the server has to take 160 ms to make one of 32 requests late; the client's own are INVALID.
    """
    asked = ("+variant=baseline", *SIM, "engine.sim_speed=2.5", "load.search=slo", "load.concurrency=[2,16]")
    ended = finished(cli, *asked, "slo.tpot_p99_ms=8.5")
    assert len({point["launch_id"] for point in ended.points() if point["verdict"]["status"] == "VALID"}) >= 1
    assert "SLO time per token p99 <= 8.5 ms · search slo to a factor of 1.1, at most 16 levels a run" in ended.err
    told = measured(ended)
    for numbers in told.values():
        slo = numbers["slo"]["tpot_p99_ms"]
        assert (slo["limit_ms"], slo["requests"], numbers["slo"]["met"]) == (
            8.5,
            32,
            None if slo["over"] < 3 else False,
        )
        assert numbers["goodput_share"] == 1 - slo["over"] / 32
    assert "goodput" in ended.out
    if ended.code == 0:
        kept = [level for level, numbers in told.items() if not numbers["slo"]["tpot_p99_ms"]["over"]]
        missed = [level for level, numbers in told.items() if numbers["slo"]["tpot_p99_ms"]["over"]]
        assert 2 <= max(kept) < min(missed) <= 8
        assert min(missed) <= 1.1 * max(kept) or min(missed) == max(kept) + 1
        assert said(ended).startswith(
            f"baseline keeps time per token p99 <= 8.5 ms up to concurrency {max(kept)} (missed at {min(missed)}: "
        )
        assert "not proven: 0 of 32 requests over, 459 prove it" in said(ended)
        again = cli(*asked, "slo.tpot_p99_ms=8.5", "resume=true", folder=ended.folder)
        assert (again.code, len(again.ledger()), said(again)) == (0, len(ended.ledger()), said(ended))


@pytest.mark.slow
def test_a_search_without_a_crossover_ends_after_one_block(cli: Callable[..., Ended]) -> None:
    """The tree is far slower at every level: no further block is started, and the comparison is printed."""
    asked = ("-m", "+variant=baseline,eagle_topk4_v1", *SIM, "engine.sim_speed=10", "load.concurrency=[4,16]")
    ended = finished(cli, *asked, "slo.ttft_p99_ms=500")
    assert {line["block"] for line in ended.ledger()} == {0}
    if ended.code == 0:
        assert said(ended).startswith("eagle_topk4_v1 is worse from 4 to 16 (closest 0.")
        assert said(ended).endswith(", 1 block): a crossover, if there is one, lies above 16")
        assert "run baseline at every load that was measured" in ended.out
        assert "resume=true" not in ended.out


@pytest.mark.slow
def test_a_crossover_is_searched_block_by_block(cli: Callable[..., Ended]) -> None:
    """By the profile the chain passes the baseline at 4 streams: blocks are added until it is known, or it says so."""
    asked = ("-m", "+variant=baseline,eagle_topk1_v2", "engine=sim", "engine.sim_speed=10", "workload.max_tokens=192")
    load = ("load=search", "load.concurrency=[1,32]", "load.window_min_s=2", "load.search_blocks_max=6")
    ended = finished(cli, *asked, *load)
    blocks = {line["block"] for line in ended.ledger()}
    assert blocks == set(range(len(blocks)))
    # The start is the unit of replication: no server serves two blocks.
    launches = {(point["variant"], point["block"]): point["launch_id"] for point in ended.points()}
    assert len(set(launches.values())) == len(launches)
    assert said(ended).startswith("eagle_topk1_v2 ")
    if "narrower than a factor of 1.5" in said(ended):
        assert len(blocks) >= 4
        low, high = map(float, said(ended).split("[")[1].split("]")[0].split(", "))
        assert 1.5 < low < high < 10
        assert high <= 1.51 * low
    else:
        assert (
            "load.search_blocks_max" in said(ended) or "no single number" in said(ended) or "crossover" in said(ended)
        )
    assert [json.loads(path.read_text())["block"] for path in sorted(ended.results.rglob("block1/*/point.json"))]
