"""Open loop over real sockets: absolute times whatever the server does, a bound that delays and tells, a clean stop."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
from case import asked
from scripted import Answer, scripted, well
from test_worker import IDENTITY_VALUES, PLAN, Board, check, exhausted, shard, until

from loadgen import board
from loadgen.arrivals import Process, Replay
from loadgen.config import Load
from loadgen.plan import Plan, due
from loadgen.worker import drive

S, MS = 1_000_000_000, 1_000_000
LATE_MS = 900.0  # a busy machine may be so late, never early


def clocked(rate: float, requests: int | None = None, arrival: str = "constant") -> Plan:
    return replace(PLAN, requests=requests, arrivals=Process(rate, arrival, None, 1))


def identity(rate: float) -> dict[str, Any]:
    return {**IDENTITY_VALUES, "concurrency": None, "rate": rate}


async def sent(script: Any, rate: float, requests: int, places: int | None = None) -> list[dict[str, Any]]:
    """The rows of `requests` requests at a constant rate, asked to their end."""
    given = {"plan": clocked(rate), "concurrency": places, "identity": identity(rate)}
    return (await asked(script, requests, **given)).rows


def late_ms(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array([(row["sent_ns"] - row["planned_ns"]) / MS for row in rows])


async def test_absolute_times_whatever_the_server_does() -> None:
    """Answers take ten gaps each: requests go out at the times of the plan all the same, and none refills another."""
    rows = await sent(well(500, 510), 20, 20)
    assert [row["planned_ns"] for row in rows] == [int(seq * S / 20) for seq in range(20)]
    assert late_ms(rows).min() >= 0
    assert np.median(late_ms(rows)) < LATE_MS
    assert {row["refill_ns"] for row in rows} == {None}
    assert [(row["seq"], row["planned_tokens"], row["outcome"]) for row in rows] == [(i, 2, "ok") for i in range(20)]


async def test_two_workers_send_the_one_sequence() -> None:
    """Each request once, by the worker whose it is, at its time; each worker asks both of two endpoints."""
    plan = clocked(100, 60, "poisson")
    async with scripted(well(5, 6)) as server, scripted(well(5, 6)) as other:
        urls = (server.url, other.url)
        given = shard(server.url, base_urls=urls, plan=plan, workers=2, concurrency=None)
        boards = [until(exhausted) for _ in range(2)]
        await asyncio.gather(*(one.drive(replace(given, worker=k)) for k, one in enumerate(boards)))
    for one in boards:
        check(one)
        endpoints = [row["endpoint"] for row in one.rows]
        assert [endpoints.count(url) for url in urls] == [15, 15]
    assert (len(server.requests), len(other.requests)) == (30, 30)
    rows = sorted((row for one in boards for row in one.rows), key=lambda row: row["seq"])
    assert [(row["seq"], row["planned_ns"]) for row in rows] == list(due(plan, 1, 0))
    assert all(row["worker"] == row["seq"] % 2 for row in rows)


async def test_a_trace_says_when_and_how_long() -> None:
    """Each request asks for its own number of tokens with a prompt of about its own length."""
    trace = Replay(np.array([0, 0, 100 * MS]), np.array([100, 3, 50]), np.array([2, 2, 1]))
    async with scripted(well(5, 6)) as server:
        run = await until(exhausted).drive(
            shard(server.url, plan=replace(PLAN, arrivals=trace, requests=3), concurrency=None)
        )
    check(run)
    rows = sorted(run.rows, key=lambda row: row["seq"])
    assert [(row["planned_ns"], row["planned_tokens"]) for row in rows] == [(0, 2), (0, 2), (100 * MS, 1)]
    asked_for = [(one.json["max_tokens"], len(one.json["messages"][0]["content"])) for one in server.requests]
    assert sorted(asked_for) == [(1, 200), (2, 12), (2, 400)]


async def test_stop_counts_who_came_due_and_cuts_the_rest() -> None:
    """One place, held for ever: whoever has come since is unsent, with the time it was planned for; nobody else is."""
    async with scripted(Answer([(10, b": nothing\n\n")], end="hang")) as server:
        given = shard(server.url, plan=clocked(10), concurrency=1)
        run = await until(lambda beat: beat["t_ns"] > 1.5 * S).drive(given)
    check(run)
    ended_ns = run.beats[-1]["t_ns"]
    assert run.outcomes == {"cut": 1, "unsent": len(run.rows) - 1}
    assert len(run.rows) == ended_ns * 10 // S + 1
    assert sorted(row["planned_ns"] for row in run.rows) == [int(i * S / 10) for i in range(len(run.rows))]


async def test_the_real_board_gives_the_window_and_ends_it() -> None:
    """A window after one duration, its requests waited for, nothing cut that was sent in it."""
    run = await boarded(well(100, 200), 50, Load(kind="open", rate=50, window_s=1.0))
    span = run.beats[-1]["window"]
    inside = [row for row in run.rows if row["sent_ns"] and span[0] <= row["sent_ns"] < span[1]]
    assert span[0] >= 0.2 * S
    assert span[1] - span[0] == S
    assert len([row for row in run.rows if span[0] <= row["planned_ns"] < span[1]]) == 50
    assert {row["outcome"] for row in inside} == {"ok"}
    assert run.result["reason"] == "stopped by the board"


async def boarded(script: Any, rate: float, load: Load) -> Board:
    """One worker and the real board, expecting a request to take 0.1 s; the test's own board keeps what was said."""
    real = board.Board(load, 1, 0.1, False)
    kept = Board(lambda _beat: {})

    async def tell(beat: dict[str, Any]) -> dict[str, Any]:
        answer = real.beat(beat)
        kept.beats.append({**beat, "window": answer["window"]})
        return answer

    async with scripted(script) as server:
        given = shard(server.url, plan=clocked(rate), concurrency=load.max_in_flight, identity=identity(rate))
        kept.result = await asyncio.wait_for(drive(given, tell, kept.rows.extend), 60)
    return kept
