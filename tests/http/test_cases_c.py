"""Streams that broke other tools, group C: failures counted as successes, and the reverse."""

import socket
from dataclasses import replace

import pytest
from case import asked, facts, ms, near, numbers, played
from scripted import DONE, STREAM_HEAD, Answer, c, event, f, plain, u, well
from test_worker import LIMITS, PLAN, check, exhausted, shard, until

from loadgen import verdict

OUT_OF_MEMORY = event({"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}})
ENGINE_DEAD = event({"error": {"message": "engine dead", "code": 500}})
HUNG = Answer(head=b"", end="hang")


def normal(last_ms: int, seq: int = 0) -> dict:
    """A good answer of two tokens."""
    return played((100, c("A")), (last_ms, c("B") + f("stop") + u(2, 2) + DONE), seq=seq)


def reasons(rows: list[dict]) -> str:
    """What speaks against a Point of these rows, as it is printed."""
    judged = verdict.as_json(verdict.judge(facts(rows)))
    return "\n".join(f"{verdict.margin(one)}: {one['advice']}" for one in judged["reasons"])


def test_c01_an_error_before_any_token() -> None:
    """A 200 with an error event failed, keeps the server's words, and is credited with no token."""
    row = played((50, OUT_OF_MEMORY + DONE), asked_tokens=128)
    assert (row["outcome"], row["error"], row["output_tokens"]) == ("error_event", "out of memory", 0)
    good = [normal(1000, seq) for seq in range(3)]
    assert numbers([*good, row])["output_tokens_per_s"] == numbers(good)["output_tokens_per_s"]


def test_c02_an_error_after_some_tokens() -> None:
    """It failed, keeps its tokens, and lowers no mean."""
    broken = played((100, c("A")), (150, c("B")), (200, ENGINE_DEAD + DONE))
    found = numbers([*(normal(1000, seq) for seq in range(9)), broken])
    assert (found["outcomes"], found["failed"]) == ({"error_event": 1, "ok": 9}, 1)
    assert (found["e2e_ms"]["mean"], found["e2e_ms"]["n"]) == (1000, 9)
    assert (broken["output_tokens"], broken["error"]) == (2, "engine dead")


@pytest.mark.parametrize("chunked", [True, False])
async def test_c05_neither_finish_reason_nor_end_mark(chunked: bool) -> None:
    """A protocol that ended well does not make the answer whole."""
    closing = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    head, end = (STREAM_HEAD, "clean") if chunked else (closing, "fin")
    (row,) = (await asked(Answer([(20, c("A"))], head, end, chunked))).rows
    assert (row["outcome"], row["output_tokens"]) == ("truncated", 1)


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_c06_a_connection_cut_in_mid_body(end: str) -> None:
    """What came is kept with its times, and the transport's fault has a name and words."""
    (row,) = (await asked(Answer([(100, c("A")), (150, c("B"))], end=end))).rows
    assert (row["outcome"], row["output_tokens"], row["text"]) == ("connection_lost", 2, "AB")
    assert row["error"]
    assert near(ms(row, "first_token_ns"), 100)


@pytest.mark.parametrize("after", ["2", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_c08_429_with_retry_after(after: str) -> None:
    """One row each, asked once each; the good ones' TTFT knows nothing of them."""
    slow = plain("429 Too Many Requests", b'{"error":{"message":"slow down"}}', f"Retry-After: {after}")
    rows = (await asked(lambda _request, number: slow if number % 3 == 2 else well(20), 30)).rows
    found = numbers(rows)
    assert found["outcomes"] == {"http_status": 10, "ok": 20}
    failed = {(row["http_status"], row["error"], row["retry_after"]) for row in rows if row["outcome"] != "ok"}
    assert failed == {(429, "HTTP 429: slow down", after)}
    assert {row["retry_after"] for row in rows if row["outcome"] == "ok"} == {None}
    assert found["ttft_ms"]["n"] == 20
    assert near(found["ttft_ms"]["p50"], 20)


async def test_c09_a_page_from_a_balancer() -> None:
    """HTML, nothing and bytes that are no text are each a row with its status, and the next request is asked."""
    pages = [
        plain("503 Service Unavailable", b"<h1>Service Unavailable</h1>", "Content-Type: text/html"),
        plain("500 Internal Server Error", b""),
        plain("500 Internal Server Error", b"\xff\xfe"),
        well(5),
    ]
    rows = (await asked(lambda _request, number: pages[number], 4, concurrency=1)).rows
    assert [(row["outcome"], row["http_status"]) for row in rows] == [
        ("http_status", 503), ("http_status", 500), ("http_status", 500), ("ok", 200),
    ]  # fmt: skip
    assert all(row["error"] for row in rows[:3])


async def test_c10_a_timeout_has_its_phase_and_its_limit_in_words() -> None:
    """Never an empty message: no first token, and silence between tokens."""
    silent = [HUNG, Answer([(10, c("A"))], end="hang")]
    limits = replace(LIMITS, first_token_s=0.5, stall_s=0.5)
    rows = (await asked(lambda _request, number: silent[number], 2, concurrency=1, limits=limits)).rows
    assert [row["outcome"] for row in rows] == ["timeout_first_token", "timeout_stall"]
    assert all("0.5 s" in row["error"] for row in rows)
    assert rows[1]["output_tokens"] == 1


def test_c11_failed_requests_stay_out_of_latencies() -> None:
    """Latencies of the eight that ended well; failures by kind, and 0 where there are none."""
    failed = [played((10, b""), seq=8), played((5000, b""), seq=9)]
    for row, outcome in zip(failed, ("http_status", "timeout_first_token"), strict=True):
        row["outcome"] = outcome
    good = [normal(200, seq) for seq in range(8)]
    found = numbers([*good, *failed])
    assert (found["ttft_ms"]["mean"], found["ttft_ms"]["n"], found["failed"]) == (100, 8, 2)
    assert found["outcomes"] == {"http_status": 1, "ok": 8, "timeout_first_token": 1}
    assert numbers(good)["failed"] == 0


async def test_r04_c12_a_server_that_hangs_with_its_socket_open() -> None:
    """The first-token deadline ends each of them, the run ends, every request has its row."""
    limits = replace(LIMITS, first_token_s=0.5)
    rows = (await asked(lambda _request, number: well(5) if number < 20 else HUNG, 50, limits=limits)).rows
    found = numbers(rows)
    assert found["outcomes"] == {"ok": 20, "timeout_first_token": 30}
    assert (found["censored"], found["ttft_ms"]["n"]) == (30, 20)


async def test_c13_a_timed_out_stream_is_refilled() -> None:
    """Five hang: all the same a hundred are asked, and the ten streams go on to the end."""
    limits = replace(LIMITS, first_token_s=0.5)
    board = await asked(lambda _request, number: HUNG if number < 5 else well(40), 100, concurrency=10, limits=limits)
    assert board.outcomes == {"ok": 95, "timeout_first_token": 5}
    late = max(row["done_ns"] for row in board.rows if row["outcome"] != "ok")
    begun = [row for row in board.rows if row["refill_ns"] is not None and row["planned_ns"] in _ends_of_failed(board)]
    assert len(begun) == 5
    assert any(_in_flight(board.rows, row["sent_ns"]) == 10 for row in board.rows if row["sent_ns"] >= late)


def _ends_of_failed(board) -> set[int]:
    return {row["done_ns"] for row in board.rows if row["outcome"] != "ok"}


def _in_flight(rows: list[dict], at_ns: int) -> int:
    return sum(row["sent_ns"] <= at_ns < row["done_ns"] for row in rows)


async def test_c14_everything_fails() -> None:
    """A closed port and a wrong model: a row for every request, nothing divided by zero, the cause in the reason."""
    missing = plain("404 Not Found", b'{"error":{"message":"model not found"}}')
    rows = (await asked(missing, 20)).rows
    assert numbers(rows)["outcomes"] == {"http_status": 20}
    assert numbers(rows)["ttft_ms"]["p50"] is None
    assert "20 x http_status (HTTP 404: model not found)" in reasons(rows)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        given = shard(f"http://127.0.0.1:{free.getsockname()[1]}", concurrency=20, plan=replace(PLAN, requests=20))
        board = await until(exhausted).drive(given)
    check(board)
    assert board.outcomes == {"connect": 20}
    assert "20 x connect (Connection refused: " in reasons(board.rows)
