"""drive() against real servers: the loop held full, the talk with the board, the window, and every way to stop."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from scripted import DONE, Answer, c, event, f, plain, scripted, well

import loadgen.run
from loadgen.errors import ConfigError
from loadgen.outbox import request_id
from loadgen.plan import Plan, Prompt
from loadgen.record import HEALTH, IDENTITY, REQUEST, Outcome, names
from loadgen.row import private
from loadgen.streams import pause_s
from loadgen.worker import Limits, Shard, drive

NS = 1_000_000_000
PROMPTS = tuple(
    Prompt(f"{kind}-1", kind, ({"role": "user", "content": f"a question about {kind} canary"},))
    for kind in ("code", "chat")
)
PLAN = Plan(PROMPTS, 2, True, 0.0, 0)
LIMITS = Limits(connect_s=5, first_token_s=20, stall_s=20, total_s=30)
IDENTITY_VALUES = {"variant": "baseline", "point_id": "p1", "concurrency": 4, "started_at": datetime.now(UTC)}

Answerer = Callable[[dict[str, Any]], Any]


def shard(url: str, **changes: Any) -> Shard:
    """A small Shard against `url`."""
    plain_shard = Shard(0, 1, 4, PLAN, "p1", (url,), "chat", "m", 0.0, LIMITS, IDENTITY_VALUES)
    return replace(plain_shard, **changes)


@dataclass
class Board:
    """The board as a test sees it: `answer` decides after the start, beats and rows are kept."""

    answer: Answerer
    beats: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    writes: int = 0
    result: dict[str, Any] = field(default_factory=dict)
    start_in_s: float = 0.05
    start_utc_ns: int = 0

    async def tell(self, beat: dict[str, Any]) -> dict[str, Any]:
        self.beats.append(beat)
        if beat["phase"] == "ready":
            if len(self.beats) < 3:
                return {}
            self.start_utc_ns = time.time_ns() + int(self.start_in_s * NS)
            return {"start_utc_ns": self.start_utc_ns}
        if beat["phase"] == "done":
            return {"go": False}
        answer = self.answer(beat)
        return await answer if asyncio.iscoroutine(answer) else answer

    @property
    def running(self) -> list[dict[str, Any]]:
        return [beat for beat in self.beats if beat["phase"] == "running"]

    @property
    def outcomes(self) -> dict[str, int]:
        kinds = [row["outcome"] for row in self.rows]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    async def drive(self, given: Shard) -> "Board":
        self.result = await asyncio.wait_for(drive(given, self.tell, self.write), 60)
        return self

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.rows += rows
        self.writes += 1


def until(stop: Callable[[dict[str, Any]], bool], window: Any = None) -> Board:
    """A board that says go until a beat satisfies `stop`."""
    return Board(lambda beat: {"go": not stop(beat), "window": window})


def exhausted(beat: dict[str, Any]) -> bool:
    return beat["exhausted"]


def check(board: Board) -> None:
    """What must hold after every run."""
    result, rows = board.result, board.rows
    asked = [row for row in rows if row["outcome"] != "unsent"]
    assert result["sent"] == len(asked) == result["finished"] + result["cut"]
    assert result["unsent"] == len(rows) - len(asked)
    assert result["failed"] == sum(row["outcome"] not in ("ok", "cut", "unsent") for row in rows)
    assert len({row["seq"] for row in rows}) == len(rows)
    assert all(list(row)[: len(names(IDENTITY + REQUEST))] == names(IDENTITY + REQUEST) for row in rows)
    assert board.beats[-1]["phase"] == "done" or result["reason"].startswith("board")
    told = [end for beat in board.beats for end in beat.get("ends", [])]
    if board.beats[-1]["phase"] == "done":
        assert len(told) == len(asked)
    for row in asked:
        order = [
            row[name] for name in ("planned_ns", "sent_ns", "headers_ns", "first_token_ns", "last_token_ns", "done_ns")
        ]
        stamps = [stamp for stamp in order if stamp is not None]
        assert stamps == sorted(stamps)


# The loop


async def test_a_plan_of_n_requests_is_asked_once_each() -> None:
    """Every number once, all prompts, then `exhausted`; nothing is refilled behind it."""
    async with scripted(well(10, 20)) as server:
        board = await until(exhausted).drive(shard(server.url, plan=replace(PLAN, requests=20)))
    check(board)
    assert board.outcomes == {"ok": 20}
    assert sorted(row["seq"] for row in board.rows) == list(range(20))
    assert len(server.requests) == 20
    assert server.peak == 4
    assert board.result["reason"] == "stopped by the board"
    row = min(board.rows, key=lambda row: row["seq"])
    assert (row["variant"], row["prompt_kind"], row["worker"], row["endpoint"]) == ("baseline", "code", 0, server.url)
    assert (row["output_tokens"], row["token_source"], row["short"], row["planned_tokens"]) == (2, "usage", False, 2)
    assert row["refill_ns"] is None
    assert sum(row["refill_ns"] is not None for row in board.rows) == 16


async def test_requests_say_what_the_plan_says() -> None:
    """Body and X-Request-Id are the plan's; the key comes from the environment and goes nowhere else."""
    async with scripted(well(5)) as server:
        await until(exhausted).drive(shard(server.url, plan=replace(PLAN, requests=4)))
    heads = sorted(
        line
        for request in server.requests
        for line in request.head.splitlines()
        if line.lower().startswith("x-request-id")
    )
    assert heads == [f"X-Request-Id: p1.{seq}.{PROMPTS[seq % 2].kind}" for seq in range(4)]
    assert {request.path for request in server.requests} == {"/v1/chat/completions"}
    assert all(request.json["max_tokens"] == 2 and request.json["stream"] for request in server.requests)


@pytest.mark.parametrize(("api", "path"), [("completions", "/v1/completions"), ("generate", "/generate")])
async def test_other_apis(api: str, path: str) -> None:
    """completions and generate go to their paths and are parsed as such, /v1 in the address or not."""
    meta = {"completion_tokens": 2, "prompt_tokens": 3, "spec_verify_ct": 1, "finish_reason": {"type": "length"}}
    generated = event({"text": "a b", "meta_info": meta})
    completed = event(
        {"choices": [{"index": 0, "text": "a b", "finish_reason": "length"}], "usage": {"completion_tokens": 2}}
    )
    answer = Answer([(5, (generated if api == "generate" else completed) + DONE)])
    async with scripted(answer) as server:
        board = await until(exhausted).drive(shard(server.url + "/v1", api=api, plan=replace(PLAN, requests=2)))
    assert {request.path for request in server.requests} == {path}
    assert [(row["outcome"], row["output_tokens"]) for row in board.rows] == [("ok", 2)] * 2
    assert {row["spec_verify_steps"] for row in board.rows} == ({1} if api == "generate" else {None})


async def test_workers_share_a_plan_exactly() -> None:
    """Three workers on seven streams ask every number once and hold seven together."""
    async with scripted(well(20, 40)) as server:
        given = shard(server.url, concurrency=7, workers=3, plan=replace(PLAN, requests=40))
        boards = [until(exhausted) for _ in range(3)]
        await asyncio.gather(*(board.drive(replace(given, worker=k)) for k, board in enumerate(boards)))
    for board in boards:
        check(board)
    assert sorted(row["seq"] for board in boards for row in board.rows) == list(range(40))
    assert server.peak == 7


async def test_streams_start_staggered() -> None:
    """The first requests are spread over stagger_s; later ones follow at once."""
    async with scripted(well(5)) as server:
        board = await until(lambda beat: beat["t_ns"] > 0.6 * NS).drive(shard(server.url, stagger_s=0.4))
    first = sorted(row["planned_ns"] for row in board.rows if row["refill_ns"] is None)
    assert first == pytest.approx([0.4 * NS * share for share in (0, 0.236068, 0.618034, 0.854102)], abs=1000)
    assert all(row["sent_ns"] >= row["planned_ns"] for row in board.rows if row["refill_ns"] is None)
    assert max(beat["in_flight"] for beat in board.beats if "in_flight" in beat) <= 4


async def test_a_failed_request_leaves_its_stream_full() -> None:
    """Every third answer is a 429: one row each, no retry, the others unharmed."""
    slow = plain("429 Too Many", b'{"error":{"message":"slow down"}}', "Retry-After: 2")
    async with scripted(lambda _request, number: slow if number % 3 == 0 else well(10)) as server:
        board = await until(exhausted).drive(shard(server.url, plan=replace(PLAN, requests=30)))
    check(board)
    assert board.outcomes == {"http_status": 10, "ok": 20}
    assert len(server.requests) == 30
    failed = [row for row in board.rows if row["outcome"] == "http_status"]
    assert {(row["http_status"], row["error"], row["first_token_ns"]) for row in failed} == {
        (429, "HTTP 429: slow down", None)
    }


async def test_fewer_tokens_than_asked_are_short() -> None:
    """Under ignore_eos a well-ended answer with fewer tokens is ok, and marked; without it is not."""
    async with scripted(well(5)) as server:
        board = await until(exhausted).drive(shard(server.url, plan=replace(PLAN, requests=2)))
        other = await until(exhausted).drive(shard(server.url, plan=replace(PLAN, requests=2, ignore_eos=False)))
    assert [(row["outcome"], row["short"]) for row in board.rows] == [("ok", True)] * 2
    assert [row["short"] for row in other.rows] == [False] * 2


async def test_text_only_where_asked() -> None:
    """Answers stay out of the rows unless they were asked for; the hash is there always."""
    async with scripted(well(5, 6)) as server:
        given = shard(server.url, plan=replace(PLAN, requests=1))
        without = await until(exhausted).drive(given)
        kept = await until(exhausted).drive(replace(given, keep_text=True))
    assert "text" not in without.rows[0]
    assert kept.rows[0]["text"] == "xx"
    assert without.rows[0]["answer_sha256"] == kept.rows[0]["answer_sha256"]


# The board


async def test_ready_is_repeated_until_there_is_a_start() -> None:
    """Ready says who, and again, until the start; a no before it ends with nothing sent."""
    async with scripted(well(5)) as server:
        board = await until(exhausted).drive(shard(server.url, plan=replace(PLAN, requests=1)))
        ready = [beat for beat in board.beats if beat["phase"] == "ready"]
        assert len(ready) == 3
        assert ready[0].keys() == {"worker", "phase", "host", "pid"}

        async def no(_beat: dict[str, Any]) -> dict[str, Any]:
            return {"go": False}

        result = await drive(shard(server.url), no, board.rows.extend)
    assert (result["sent"], result["reason"]) == (0, "stopped before the start")
    assert len(server.requests) == 1


async def test_times_count_from_the_start() -> None:
    """Rows are relative to the start that the board named, on the worker's monotonic clock."""
    async with scripted(well(5)) as server:
        board = until(exhausted)
        board.start_in_s = 0.3
        await board.drive(shard(server.url, plan=replace(PLAN, requests=4)))
        wall_ns = time.time_ns() - board.start_utc_ns
    assert all(0 <= row["sent_ns"] <= row["done_ns"] <= wall_ns for row in board.rows)


async def test_a_beat_says_how_things_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are cumulative, ends and health are each told once."""
    monkeypatch.setattr(loadgen.run, "BEAT_S", 0.25)
    async with scripted(well(50, 100)) as server:
        board = await until(lambda beat: beat["t_ns"] > 0.6 * NS).drive(shard(server.url))
    check(board)
    beats = board.running
    assert beats[0].keys() == {
        "worker", "phase", "t_ns", "sent", "finished", "failed", "in_flight", "reads", "done_tokens", "done_reads",
        "first_round_ns", "ends", "drained", "exhausted", "health",
    }  # fmt: skip
    for name in ("t_ns", "sent", "finished", "reads", "done_tokens", "done_reads"):
        values = [beat[name] for beat in beats]
        assert values == sorted(values)
    assert all(beat["in_flight"] <= 4 for beat in beats)
    assert beats[-1]["first_round_ns"] > 0
    done, sent = sum(len(beat["ends"]) for beat in beats), beats[-1]["sent"]
    assert done == beats[-1]["finished"] <= sent
    health = [row for beat in board.beats for row in beat.get("health", [])]
    assert len(health) >= 2
    assert all(list(row) == names(HEALTH) for row in health)
    assert sum(len(row["loop_lag_ms"]) for row in health) > 20
    assert all(row["rss_bytes"] > 0 and row["descriptors"] > 0 and row["cpu_share"] >= 0 for row in health)
    assert health[0]["variant"] == "baseline"


async def test_rows_are_handed_on_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows do not wait for the end."""
    monkeypatch.setattr(loadgen.run, "BEAT_S", 0.25)
    seen: list[int] = []
    async with scripted(well(10, 20)) as server:
        board = until(lambda beat: beat["t_ns"] > 0.65 * NS)
        whole = board.answer
        board.answer = lambda beat: seen.append(len(board.rows)) or whole(beat)  # type: ignore[func-returns-value]
        await board.drive(shard(server.url))
    assert seen[-1] > 0
    assert sorted(seen) == seen


async def test_the_window_is_drained_while_refilling_goes_on() -> None:
    """Requests sent in the window are waited for, others go on being sent, and `drained` is told at once."""
    window = [int(0.3 * NS), int(0.9 * NS)]
    async with scripted(lambda _request, number: well(10, 20) if number % 50 else well(10, 1500)) as server:
        board = await until(lambda beat: beat["drained"], window).drive(shard(server.url))
    check(board)
    inside = [row for row in board.rows if window[0] <= row["sent_ns"] < window[1]]
    assert inside
    assert {row["outcome"] for row in inside} == {"ok"}
    last = max(row["done_ns"] for row in inside)
    drained = next(beat for beat in board.running if beat["drained"])
    assert drained["t_ns"] >= last
    assert any(row["sent_ns"] > last - NS // 2 and row["sent_ns"] > window[1] for row in board.rows)
    assert not any(beat["drained"] for beat in board.running if beat["t_ns"] < last)


async def test_stop_cuts_what_is_in_flight() -> None:
    """No go: nothing more is sent, what is under way is `cut` with what it has."""
    async with scripted(Answer([(10, c("A"))], end="hang")) as server:
        board = await until(lambda beat: beat["t_ns"] > 0.3 * NS).drive(shard(server.url))
    check(board)
    assert board.outcomes == {"cut": 4}
    assert all(len(row["chunk_ns"]) == 1 and row["done_ns"] for row in board.rows)
    assert len(server.requests) == 4


async def test_a_stop_leaves_unsent_rows_of_a_counted_plan() -> None:
    """Numbers that were never sent are rows too, written in few pieces: of a large count most may be unsent."""
    async with scripted(Answer([(10, c("A"))], end="hang")) as server:
        given = shard(server.url, plan=replace(PLAN, requests=5000))
        board = await until(lambda beat: beat["t_ns"] > 0.3 * NS).drive(given)
    check(board)
    assert board.outcomes == {"cut": 4, "unsent": 4996}
    assert sorted(row["seq"] for row in board.rows) == list(range(5000))
    assert board.writes < 50


@pytest.mark.parametrize("silent", [True, False])
async def test_a_board_that_is_gone_stops_the_worker(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer in time, or an error instead of one: stop, with the reason, and all rows written."""
    monkeypatch.setattr(loadgen.run, "BOARD_SILENCE_S_MAX", 0.5)

    async def gone(_beat: dict[str, Any]) -> dict[str, Any]:
        if silent:
            await asyncio.sleep(3600)
        raise RuntimeError("the board's node is lost")

    async with scripted(well(20, 40)) as server:
        board = await Board(gone).drive(shard(server.url))
    check(board)
    assert board.result["reason"].startswith("board silent" if silent else "board lost: RuntimeError")
    assert board.outcomes["ok"] > 0


async def test_a_slow_board_delays_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the board thinks, for longer than the time between two beats, streams go on."""
    monkeypatch.setattr(loadgen.run, "BEAT_S", 0.25)
    meanwhile: list[int] = []

    async def slow(beat: dict[str, Any]) -> dict[str, Any]:
        before = len(server.requests)
        await asyncio.sleep(0.4)
        if go := beat["t_ns"] < 0.8 * NS:  # behind a stop nothing is sent
            meanwhile.append(len(server.requests) - before)
        return {"go": go}

    async with scripted(well(10, 20)) as server:
        board = await Board(slow).drive(shard(server.url))
    check(board)
    # Some eighty of four streams on an idle machine; streams that wait for the board send one each.
    assert meanwhile
    assert min(meanwhile) > 2 * 4


async def test_a_worker_that_is_behind_with_its_rows_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to stop while long answers wait to be parsed: it goes on beating until all are rows."""
    monkeypatch.setattr(loadgen.run, "BEAT_S", 0.02)
    board = until(lambda beat: beat["sent"] == 4 and not beat["in_flight"])
    async with scripted(Answer([(10, c("A") * 100_000 + DONE)])) as server:
        await board.drive(shard(server.url, plan=replace(PLAN, requests=4, max_tokens=100_000)))
    check(board)
    counts = [beat["finished"] for beat in board.running if beat["sent"] == 4 and not beat["in_flight"]]
    assert len(counts) > 3
    assert counts[0] < counts[-1] <= 4


async def test_rows_that_cannot_be_written_end_the_run() -> None:
    """A full disk is raised from drive(), with nothing left running."""

    def full(_rows: list[dict[str, Any]]) -> None:
        raise OSError(28, "No space left on device")

    async with scripted(well(10)) as server:
        board = until(lambda _beat: False)
        before = len(asyncio.all_tasks())
        with pytest.raises(OSError, match="No space"):
            await asyncio.wait_for(drive(shard(server.url), board.tell, full), 30)
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() if "Streams" in repr(task) or "Run." in repr(task)] == []
        assert before <= len(asyncio.all_tasks())


async def test_a_cancelled_drive_leaves_nothing_running() -> None:
    """Cancelled from outside: streams end and connections close."""
    async with scripted(Answer([(10, c("A"))], end="hang")) as server:
        running = asyncio.create_task(until(lambda _beat: False).drive(shard(server.url)))
        while len(server.requests) < 4:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [task for task in asyncio.all_tasks() if "Streams" in repr(task) or "Run." in repr(task)] == []


# A server that dies


async def test_r03_a_vanished_server_is_not_stormed() -> None:
    """In flight: connection_lost. Afterwards at most one connect try a stream in the time a driver needs."""
    async with scripted(Answer([(10, c("A"))], end="hang")) as server:
        board = until(lambda beat: beat["t_ns"] > 1.2 * NS)
        running = asyncio.create_task(board.drive(shard(server.url)))
        while len(server.requests) < 4:
            await asyncio.sleep(0.01)
        server.vanish()
        await running
    check(board)
    assert board.outcomes["connection_lost"] == 4
    assert board.outcomes.get("connect", 0) <= 4
    assert all(row["sent_ns"] is None and row["error"] for row in board.rows if row["outcome"] == "connect")


async def test_nobody_listens_at_all() -> None:
    """A closed port: rows that say so, and ends that can be placed in time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    board = await until(lambda beat: beat["failed"] >= 4).drive(shard(url))
    check(board)
    assert set(board.outcomes) == {"connect"}
    assert all(began is not None for beat in board.beats for began, _, _ in beat.get("ends", []))


def test_pauses_grow_only_for_connections() -> None:
    """A lost connection waits 0.2 s, doubling to 2 s; a failed connect outlasts a driver's notice; the rest nothing."""
    assert [pause_s(Outcome.CONNECTION_LOST, streak) for streak in (1, 2, 3, 4, 5, 50)] == [
        0.2,
        0.4,
        0.8,
        1.6,
        2.0,
        2.0,
    ]
    assert pause_s(Outcome.CONNECT, 1) == 3.0
    assert [pause_s(outcome, 1) for outcome in (None, Outcome.HTTP_STATUS, Outcome.TIMEOUT_STALL)] == [0, 0, 0]


# What must not be told


async def test_the_key_and_the_prompt_stay_out_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that echoes both in its error finds neither in a row."""
    monkeypatch.setenv("CANARY_KEY", "sk-canary-0123456789")

    def echo(request: Any, _number: int) -> Answer:
        key = next(line for line in request.head.splitlines() if line.startswith("Authorization"))
        said = (
            {"error": {"message": f"bad key {key}"}}
            if _number % 2
            else {"error": {"message": f"bad input: {request.json['messages']}"}}
        )
        return plain("400 Bad", json.dumps(said).encode())

    async with scripted(echo) as server:
        given = shard(server.url, plan=replace(PLAN, requests=8), api_key_env="CANARY_KEY")
        board = await until(exhausted).drive(given)
    assert board.outcomes == {"http_status": 8}
    assert "canary" not in repr(board.rows)
    assert "canary" not in repr(board.beats)
    assert all(row["error"].startswith("HTTP 400: bad") for row in board.rows)


async def test_a_key_that_is_not_set_is_said_so() -> None:
    """A named variable that is not there is a configuration error, before anything is sent."""
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        await drive(shard("http://127.0.0.1:1", api_key_env="NO_SUCH_KEY"), Board(lambda _b: {}).tell, print)


async def test_a_key_that_no_header_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key read from a file with its line end would break the request's head apart: refused, and not repeated."""
    monkeypatch.setenv("CANARY_KEY", "sk-canary\n")
    with pytest.raises(ConfigError, match="CANARY_KEY holds a line end") as refused:
        await drive(shard("http://127.0.0.1:1", api_key_env="CANARY_KEY"), Board(lambda _b: {}).tell, print)
    assert "sk-canary" not in str(refused.value)


def test_r13_r17_private_cuts_echoes_only() -> None:
    """What repeats the request is cut, wherever it begins; all else stays."""
    prompt = "Summarise the following contract between the parties"
    assert private("bad: the following contract between", [prompt], None) in (
        "... (the request's own text)",
        "bad: ... (the request's own text)",
    )
    assert private("HTTP 500: CUDA out of memory", [prompt], None) == "HTTP 500: CUDA out of memory"
    assert private("key sk-1 is wrong", [], "sk-1") == "key *** is wrong"
    assert private("key is sk-canary-5", [], "sk-canary-55e1") == "key is ***"
    assert private("no such key: sk-", [], "sk-canary-55e1") == "no such key: sk-"
    assert private("cannot parse: yes, twelve", ["", "no", "yes, twelve"], None) == (
        "cannot parse: ... (the request's own text)"
    )
    assert private("no such model", ["no", "model"], None) == "no such model"
    assert private(None, [prompt], "k") is None


async def test_r17_an_error_that_repeats_the_answer_so_far() -> None:
    """Half an answer in a server's complaint, or in a finish reason, is cut as an echo of the question is."""
    half = "the canary sings of what it was told at night"
    told = event({"error": {"message": f"cannot parse: {half}"}})
    odd = Answer([(1, c(half[:20])), (2, c(half[20:]) + f(half) + DONE)])
    broken = Answer([(1, c(half[:20])), (2, c(half[20:]) + told)])
    async with scripted(lambda _request, number: odd if number % 2 else broken) as server:
        board = await until(exhausted).drive(shard(server.url, plan=replace(PLAN, requests=8)))
    assert board.outcomes == {"error_event": 4, "ok": 4}
    assert "canary" not in repr(board.rows)
    assert {row["error"] for row in board.rows if row["error"]} == {"cannot p... (the request's own text)"}
    assert {row.get("text") for row in board.rows} == {None}


async def test_each_worker_asks_every_endpoint() -> None:
    """Two workers, two endpoints, an even concurrency: none has an endpoint of its own, which a slow one would bend."""
    async with scripted(well(5)) as one, scripted(well(5)) as other:
        pair = shard(one.url, base_urls=(one.url, other.url), workers=2, plan=replace(PLAN, requests=24))
        boards = [await until(exhausted).drive(replace(pair, worker=number)) for number in range(2)]
    for board in boards:
        endpoints = [row["endpoint"] for row in board.rows]
        assert [endpoints.count(url) for url in (one.url, other.url)] == [6, 6]
    assert sorted(row["seq"] for board in boards for row in board.rows) == list(range(24))


def test_request_ids_are_plain() -> None:
    """No character that a header or a log could trip over."""
    assert request_id("p1", 7, "über\r\nX: y") == "p1.7._ber__X:_y"
    assert request_id("p1", 7, "k" * 100_000) == "p1.7." + "k" * 64


def test_worker_imports_nothing_of_the_control_plane() -> None:
    """A worker's modules load without Ray, Hydra or pyarrow."""
    code = "import sys, loadgen.worker; print(sorted({'ray', 'hydra', 'pyarrow', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
