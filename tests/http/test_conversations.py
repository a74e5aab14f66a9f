"""Conversations over real sockets: what was said is sent back, turn by turn, and what a failed turn ends."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from case import arrays, asked, held, ms
from scripted import DONE, Answer, Request, c, f, plain, r, scripted, u, well
from test_worker import NS, check, exhausted, shard, until

from loadgen.plan import Plan, Prompt

TURNS = 3


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def conversation(name: str, turns: int = TURNS) -> Prompt:
    """A conversation whose questions are its name and their number."""
    return Prompt(name, "chat", (user(f"{name} 1"),), tuple(user(f"{name} {turn}") for turn in range(2, turns + 1)))


TALK = Plan((conversation("A"), conversation("B")), 2, True, 0.0, 0, turns=TURNS)


def said(request: Request) -> list[str]:
    """The contents of the messages of a request."""
    return [message["content"] for message in request.json["messages"]]


def telling(request: Request, _number: int) -> Answer:
    """An answer that is its own: two tokens, the last question repeated."""
    return Answer([(5, c("re: ")), (10, c(said(request)[-1]) + f("length") + u(5, 2) + DONE)])


async def talk(script: Any, requests: int, plan: Plan = TALK, **changes: Any) -> tuple[list[dict], list[Request]]:
    """The rows of a talk with a scripted server, by number, and what the server was asked, in order."""
    async with scripted(script) as server:
        given = shard(server.url, concurrency=1, plan=replace(plan, requests=requests), **changes)
        board = await until(exhausted).drive(given)
    check(board)
    return sorted(board.rows, key=lambda row: row["seq"]), server.requests


async def test_the_servers_own_answers_are_sent_back() -> None:
    """Each turn holds all that was said before it, roles in turns; rows know conversation and turn."""
    rows, requests = await talk(telling, 6)
    for number, name in enumerate("AB"):
        history: list[str] = []
        for turn, request in enumerate(requests[TURNS * number : TURNS * (number + 1)], 1):
            assert said(request) == [*history, f"{name} {turn}"]
            roles = [message["role"] for message in request.json["messages"]]
            assert roles == ["user", "assistant"] * (turn - 1) + ["user"]
            history += [f"{name} {turn}", f"re: {name} {turn}"]
    assert [(row["conversation"], row["turn"], row["prompt_id"]) for row in rows] == [
        (0, 1, "A"), (0, 2, "A"), (0, 3, "A"), (1, 1, "B"), (1, 2, "B"), (1, 3, "B"),
    ]  # fmt: skip
    assert all("text" not in row for row in rows)
    assert len({row["answer_sha256"] for row in rows}) == 6


async def test_hidden_output_is_not_sent_back() -> None:
    """Reasoning is the server's own matter: the answer's text alone goes back, and may be empty."""
    thought = Answer([(5, r({"reasoning_content": "hm"})), (9, c("yes") + f("length") + u(5, 2) + DONE)])
    only = Answer([(5, r({"reasoning_content": "hm"}) + f("length") + u(5, 1) + DONE)])
    _, requests = await talk(lambda _request, number: only if number == 1 else thought, 3)
    assert said(requests[2]) == ["A 1", "yes", "A 2", "", "A 3"]


async def test_a_failed_turn_ends_its_conversation() -> None:
    """What would follow is not asked and, of a counted plan, is left over as unsent; the stream takes the next one."""
    gone = plain("500 Oops", b'{"error":{"message":"you said: re: A 1 and more of it"}}')
    rows, requests = await talk(lambda request, number: gone if number == 1 else telling(request, number), 6)
    assert [said(request)[-1] for request in requests] == ["A 1", "A 2", "B 1", "B 2", "B 3"]
    assert [row["outcome"] for row in rows] == ["ok", "http_status", "unsent", "ok", "ok", "ok"]
    assert (rows[2]["conversation"], rows[2]["turn"]) == (0, 3)
    truncated = Answer([(5, c("half"))])
    rows, _ = await talk(lambda request, number: truncated if number == 0 else telling(request, number), 6)
    assert [row["outcome"] for row in rows[:3]] == ["truncated", "unsent", "unsent"]


async def test_a_lost_connection_ends_its_conversation() -> None:
    """The stream pauses before it goes on, and by then the row is long made: it must not wait for it."""
    lost = Answer([(5, c("half"))], end="rst")
    rows, _ = await talk(lambda request, number: lost if number == 1 else telling(request, number), 6)
    assert [row["outcome"] for row in rows] == ["ok", "connection_lost", "unsent", "ok", "ok", "ok"]


async def test_errors_do_not_repeat_a_conversation() -> None:
    """An error that echoes the server's earlier answer, sent back as history, is cut as an echo of the prompt is."""
    answer = "a secret that only the answer held"
    first = Answer([(5, c(answer) + f("length") + u(5, 2) + DONE)])
    echo = plain("400 Bad", b'{"error":{"message":"cannot read: ' + answer.encode() + b'"}}')
    rows, _ = await talk(lambda _request, number: echo if number else first, 3)
    assert "the request's own text" in rows[1]["error"]
    assert "only the answer" not in rows[1]["error"]


async def test_the_next_turn_follows_at_once() -> None:
    """Reading the answer is our delay: it counts as refill, from the end of the answer on, and is short."""
    rows, _ = await talk(telling, 6)
    assert rows[0]["refill_ns"] is None
    for before, row in pairwise(rows):
        assert row["planned_ns"] == before["done_ns"]
        assert row["refill_ns"] == row["sent_ns"] - before["done_ns"]


async def test_think_time_lies_between_turns() -> None:
    """Not before a first turn; it is no refill, and a stream that waits for its user is held."""
    rows, _ = await talk(well(100, 200), 6, replace(TALK, think_s=0.2))
    for before, row in pairwise(rows):
        pause = NS // 5 if row["turn"] > 1 else 0
        assert row["planned_ns"] == before["done_ns"] + pause
        assert row["refill_ns"] == row["sent_ns"] - row["planned_ns"]
    assert held(rows, 1, 0.2) > 0.9
    assert held(rows, 1, 0.0) < 0.8


async def test_a_conversation_stays_with_its_endpoint() -> None:
    """Endpoints take conversations in turns: the server that knows the prefix gets the next turn."""
    async with scripted(telling) as one, scripted(telling) as other:
        plan = replace(TALK, requests=24)
        board = await until(exhausted).drive(shard(one.url, base_urls=(one.url, other.url), concurrency=4, plan=plan))
    check(board)
    assert (len(one.requests), len(other.requests)) == (12, 12)
    assert {row["conversation"] % 2: row["endpoint"] for row in board.rows} == {0: one.url, 1: other.url}
    for row in board.rows:
        assert row["endpoint"] == (one.url, other.url)[row["conversation"] % 2]


async def test_a_stop_leaves_the_turns_behind_it_unsent() -> None:
    """A counted plan that is stopped in mid-conversation accounts for each of its requests."""
    async with scripted(Answer([(5, c("A"))], end="hang")) as server:
        given = shard(server.url, concurrency=2, plan=replace(TALK, requests=12))
        board = await until(lambda beat: beat["t_ns"] > 0.3 * NS).drive(given)
    check(board)
    assert board.outcomes == {"cut": 2, "unsent": 10}
    assert sorted(row["seq"] for row in board.rows) == list(range(12))


async def test_single_requests_are_no_conversation() -> None:
    """The columns are null where nothing is said twice."""
    (row,) = (await asked(well(5))).rows
    assert (row["conversation"], row["turn"], row["planned_prompt_tokens"]) == (None, None, None)
    assert arrays([row])["turn"].dtype.kind == "f"
    assert ms(row, "done_ns") > 0
