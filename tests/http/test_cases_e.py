"""What broke other tools, group E: the load's shape. Open loop is in test_cases_open.py."""

import asyncio
import time
from dataclasses import replace

import numpy as np
from case import asked, facts
from scripted import DONE, Answer, Request, c, f, scripted, well
from test_worker import PLAN, Prompt, exhausted, shard, until

from loadgen import verdict

MS = 1_000_000
LATE_P99_MS_MAX = 50.0


async def test_e04_no_barrier_between_requests() -> None:
    """Streams are refilled one by one: while a slow request runs, the others ask many times."""
    slow, quick = well(1000), well(50)
    rows = (await asked(lambda _request, number: quick if number else slow, 20, concurrency=4)).rows
    longest = max(rows, key=lambda row: row["done_ns"] - row["sent_ns"])
    meanwhile = [row for row in rows if longest["sent_ns"] < row["sent_ns"] < longest["done_ns"]]
    assert len(meanwhile) > 3 * 3


async def test_e06_the_exact_count_over_any_workers() -> None:
    """Seven workers, a hundred requests, a hundred prompts: each is asked once."""
    prompts = tuple(Prompt(f"id-{i}", "code", ({"role": "user", "content": f"prompt {i}"},)) for i in range(100))
    plan = replace(PLAN, prompts=prompts, requests=100)
    async with scripted(well(5)) as server:
        given = shard(server.url, concurrency=7, workers=7, plan=plan)
        boards = [until(exhausted) for _ in range(7)]
        await asyncio.gather(*(board.drive(replace(given, worker=k)) for k, board in enumerate(boards)))
    texts = [request.json["messages"][0]["content"] for request in server.requests]
    assert sorted(texts) == sorted(f"prompt {i}" for i in range(100))
    assert sorted(row["prompt_id"] for board in boards for row in board.rows) == sorted(prompt.id for prompt in prompts)


async def test_e09_a_client_that_lags_is_told() -> None:
    """Against the server's own stamps the client is 50 ms late at most (p99), or its lag is told."""
    steps = [(20.0 * i, lambda: c(f"{time.monotonic_ns()} ")) for i in range(1, 21)]
    async with scripted(Answer([*steps, (400, f("length") + DONE)])) as server:
        plan = replace(PLAN, requests=300)
        given = shard(server.url, concurrency=100, stagger_s=0.4, keep_text=True, plan=plan)
        board = await until(exhausted).drive(given)
    start_ns = board.start_utc_ns - (time.time_ns() - time.monotonic_ns())
    late_ms = [
        (start_ns + seen - int(told)) / MS
        for row in board.rows
        for seen, told in zip(row["chunk_ns"], row["text"].split(), strict=True)
    ]
    health = [row for beat in board.beats for row in beat.get("health", [])]
    judged = verdict.judge(facts(board.rows, health, 100))
    lag = next(one for one in (*judged.reasons, *judged.margins) if one.rule == "loop_lag_p99")
    assert len(late_ms) == 300 * 20
    assert lag.measured is not None
    assert np.quantile(late_ms, 0.99) < LATE_P99_MS_MAX or lag in judged.reasons


async def test_e10_concurrency_does_not_decay() -> None:
    """Fifty streams stay fifty until the requests run out."""

    def service(_request: Request, number: int) -> Answer:
        return well(150 + 40 * (number % 6))

    rows = (await asked(service, 500, concurrency=50)).rows
    begin, end = (sorted(row["planned_ns"] for row in rows)[number] for number in (50, -1))
    moments = [begin + (end - begin) * i // 200 for i in range(200)]
    # By the plan exactly fifty, whatever the machine does; in fact fewer by what refilling took.
    assert {_under_way(rows, moment, "planned_ns") for moment in moments} == {50}
    held = [_under_way(rows, moment, "sent_ns") for moment in moments]
    assert max(held) == 50
    assert min(np.mean(held[:100]), np.mean(held[100:])) > 40


def _under_way(rows: list[dict], at_ns: int, since: str) -> int:
    """How many of the requests were under way at that moment, from their stamp `since` on."""
    return sum(row[since] <= at_ns < row["done_ns"] for row in rows)
