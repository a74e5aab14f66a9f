"""What broke other tools, group F: statistics and clocks."""

import asyncio
import json
import time
from contextvars import ContextVar
from dataclasses import replace

import numpy as np
import pytest
from case import asked, at, near, numbers, played
from scripted import DONE, c, f, scripted, u, well
from test_worker import PLAN, shard

from loadgen.board import Board
from loadgen.clocks import Offset, Reading, offset
from loadgen.columns import fitted, table
from loadgen.config import Load
from loadgen.record import IDENTITY, REQUEST, REQUESTS, names
from loadgen.rowstream import to_json
from loadgen.summary import distribution
from loadgen.worker import Shard, drive

NS = 1_000_000_000
WALL_SKEW_NS: ContextVar[int] = ContextVar("WALL_SKEW_NS", default=0)


def answered(first_ms: int, seq: int = 0) -> dict:
    """A good answer of one token."""
    return played((first_ms, c("A") + f("stop") + u(2, 1) + DONE), seq=seq)


def strict(text: bytes | str) -> dict:
    """JSON without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_f01_no_percentile_is_above_the_maximum() -> None:
    """Quantiles are of raw rows; of a single request all are equal, and one that too few rows carry is null."""
    rows = [answered(596), *(answered(230 + 2 * i, 1 + i) for i in range(49))]
    found = numbers(rows)["ttft_ms"]
    assert found["p50"] <= found["p90"] <= 596
    assert (found["n"], found["p99"]) == (50, None)
    many = distribution(np.array([596.0, *np.linspace(230, 340, 400)]))
    assert many["p90"] <= many["p99"] <= 596
    alone = numbers(rows[:1])["ttft_ms"]
    assert alone["mean"] == alone["p50"] == alone["p90"] == 596


def test_f04_two_numbers_have_two_names() -> None:
    """Gaps are pooled, time per token is a mean over requests; each under its own name."""
    two = played((100, c("A")), (1100, c("B") + f("stop") + u(2, 2) + DONE))
    steps = [(100 + 10 * i, c("x")) for i in range(101)]
    found = numbers([two, played(*steps, (1100, f("stop") + u(2, 101) + DONE), seq=1)])
    assert found["chunk_gap_ms"]["mean"] == pytest.approx(19.8, abs=0.01)
    assert found["tpot_ms"]["mean"] == pytest.approx(505)


def test_f05_no_value_is_null_everywhere() -> None:
    """Without one good request JSON stays strict, and Parquet has null: never NaN, never 0."""
    rows = [played((100, DONE), seq=seq) for seq in range(3)]
    found = strict(to_json(numbers(rows)))
    assert (found["requests"], found["failed"], found["ttft_ms"]["mean"]) == (3, 3, None)
    bare = [{name: row.get(name) for name in names(IDENTITY + REQUEST)} for row in rows]
    columns = fitted(table(bare, IDENTITY + REQUEST), REQUESTS)
    assert columns["first_token_ns"].null_count == columns["rate"].null_count == 3
    floats = table([{"rate": float("nan")}], IDENTITY)
    assert floats["rate"].null_count == 1


async def test_f06_the_wall_clock_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds back in mid-run: every duration is what it was."""
    real, jumped_ns = time.time_ns, []
    monkeypatch.setattr(time, "time_ns", lambda: real() - sum(jumped_ns))
    monkeypatch.setattr(time, "time", lambda: (real() - sum(jumped_ns)) / NS)

    def answer(_request: object, number: int) -> object:
        if number == 8:
            jumped_ns.append(5 * NS)
        return well(20, 40)

    rows = (await asked(answer, 40)).rows
    _unharmed(rows)
    assert jumped_ns


async def test_f06_wall_clocks_of_two_workers_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds apart: durations know nothing of it, both begin together, and no stamp is clamped."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + WALL_SKEW_NS.get())
    board = Board(Load(kind="closed", concurrency=4), 2, 0.0, True)
    rows: list[dict] = []

    async def tell(beat: dict) -> dict:
        # A task of its own has the board's clock, not the worker's.
        return await asyncio.create_task(_on_the_boards_clock(board, beat))

    async def skewed(skew_ns: int, given: Shard) -> None:
        WALL_SKEW_NS.set(skew_ns)
        await asyncio.wait_for(drive(given, tell, rows.extend), 60)

    async with scripted(well(20, 40)) as server:
        given = shard(server.url, concurrency=4, workers=2, plan=replace(PLAN, requests=20))
        shards = [replace(given, worker=0), replace(given, worker=1)]
        await asyncio.gather(*map(skewed, (0, 3 * NS), shards))
    _unharmed(rows)
    assert (len(rows), {row["worker"] for row in rows}) == (20, {0, 1})
    assert max(row["done_ns"] for row in rows) < 2.5 * NS


async def _on_the_boards_clock(board: Board, beat: dict) -> dict:
    WALL_SKEW_NS.set(0)
    return {**board.beat(beat), "host": "elsewhere"}


@pytest.mark.parametrize(("told", "found"), [(105, 0), (99, -6), (1105, 1000), (-895, -1000)])
def test_f06_the_shortest_way_tells_how_far_clocks_are_apart(told: int, found: int) -> None:
    """Of several readings the one with the shortest round trip counts; on one host there is nothing to tell."""
    slow = [Reading(0, told + 400, 1000), Reading(0, told - 300, 900)]
    assert offset([slow[0], Reading(100, told, 110), slow[1]], same_host=False) == Offset(found, 10)
    assert offset(slow, same_host=True) == Offset(0, 0)


def _unharmed(rows: list[dict]) -> None:
    assert {row["outcome"] for row in rows} == {"ok"}
    assert all(near(at(row)[0], 20) and near(at(row)[1], 40) for row in rows)
    assert all((row["refill_ns"] or 0) >= 0 <= row["done_ns"] - row["last_token_ns"] for row in rows)
