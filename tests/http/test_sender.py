"""Open loop over real sockets: absolute times whatever the server does, a bound that delays and tells, a clean stop."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
from case import arrays, asked, facts, numbers, refusal
from scripted import Answer, Request, plain, scripted, well
from test_cases_f import strict
from test_worker import IDENTITY_VALUES, PLAN, Board, check, exhausted, shard, until

from loadgen import board, verdict
from loadgen.arrivals import Process, Replay
from loadgen.config import Load
from loadgen.facts import facts_of, health_columns
from loadgen.plan import Plan, due
from loadgen.series import in_window
from loadgen.store import to_json
from loadgen.worker import drive

S, MS = 1_000_000_000, 1_000_000
LATE_MS = 400.0  # a busy machine may be so late, never early


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
    """Each request once, by the worker whose it is, at its time."""
    plan = clocked(100, 60, "poisson")
    async with scripted(well(5, 6)) as server:
        given = shard(server.url, plan=plan, workers=2, concurrency=None)
        boards = [until(exhausted) for _ in range(2)]
        await asyncio.gather(*(one.drive(replace(given, worker=k)) for k, one in enumerate(boards)))
    for one in boards:
        check(one)
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


# What broke other tools, as far as it is about arrivals


async def test_e01_no_drift() -> None:
    """A thousand sends at 200 a second: the last one after five seconds, whatever each send costs."""
    rows = await sent(well(0, 1), 200, 1000)
    last_s = (rows[-1]["sent_ns"] - rows[0]["planned_ns"]) / S
    told = "lateness_p99" in {reason.rule for reason in verdict.judge(facts(rows)).reasons}
    assert last_s >= 4.995  # drift would show as lateness that grows
    assert np.quantile(late_ms(rows), 0.99) < 20 or told


async def test_e02_waiting_for_a_place_is_shown() -> None:
    """Ten a second into one place of half a second: service time and waiting, each under its own name."""
    found = numbers(await sent(well(500), 10, 8, places=1))
    assert found["waited"] == 7
    for name, expected_ms in (("ttft_ms", 500), ("lateness_ms", 1400), ("e2e_planned_ms", 1900), ("e2e_ms", 500)):
        assert expected_ms - 2 <= found[name]["mean"] <= expected_ms + LATE_MS, name
    assert found["ttft_planned_ms"]["mean"] == found["e2e_planned_ms"]["mean"]


async def test_e03_a_burst_of_freed_places_is_counted() -> None:
    """Ten answers end together, ten requests go out together: what came in a tenth of a second is in the summary."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    def together(_request: Request, _number: int) -> Answer:
        return well(1000 - (loop.time() - began_s) * 1000 % 1000)

    rows = await sent(together, 20, 40, places=10)
    stamps = sorted(row["sent_ns"] for row in rows)
    most = max(sum(first <= stamp < first + S // 10 for stamp in stamps) for first in stamps)
    assert numbers(rows)["sent_in_100_ms_max"] == most >= 8


async def test_e08_what_could_not_be_sent_is_told() -> None:
    """Five hundred a second into places for fifty: offered and achieved side by side, and the Point is INVALID."""
    run = await boarded(well(200), 500, Load(kind="open", rate=500, window_s=1.5, max_in_flight=10))
    cols = arrays(run.rows)
    span = run.beats[-1]["window"]
    cols["in_window"] = in_window(cols, *span)
    shares = {"failed_share_max": 0.01, "short_share_max": 0.01}
    told = facts_of(cols, health_columns([]), tuple(span), concurrency=None, **shares)
    judged = verdict.judge(told)
    assert told.open is not None
    assert told.open.offered_per_s == 500
    assert 0 < (told.open.achieved_per_s or 0) <= 60  # whole rounds of ten
    assert {"rate_held", "overload"} <= {reason.rule for reason in judged.reasons}
    late = late_ms([row for row in run.rows if row["sent_ns"] is not None and row["outcome"] == "ok"])
    assert late[-1] > late[len(late) // 2] > late[0]


async def test_f05_no_rate_is_infinite_and_no_value_is_null() -> None:
    """A rate is a finite number; a rate of which no request was answered gives strict JSON without NaN."""
    for rate in (float("inf"), float("nan")):
        assert "give requests a second" in refusal({"kind": "open", "concurrency": None, "rate": rate})
    rows = await sent(plain("503 Busy", json.dumps({"error": "busy"}).encode()), 50, 10)
    found = strict(to_json({**numbers(rows), "verdict": verdict.as_json(verdict.judge(facts(rows)))}))
    assert (found["requests"], found["failed"], found["ttft_planned_ms"]["p50"]) == (10, 10, None)
    assert found["offered_per_s"] > 0
