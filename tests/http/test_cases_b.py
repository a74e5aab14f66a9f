"""Streams that broke other tools, group B: what is a token, and the times that hang on it."""

from dataclasses import replace

import pytest
from case import asked, at, facts, ms, near, numbers, played
from scripted import DONE, Answer, Request, c, event, f, g, plain, r, u
from test_worker import PLAN

from loadgen import verdict

ONE = (100, c("A") + f("stop") + u(2, 1) + DONE)
STREAM_OPTIONS_REFUSED = plain("400 Bad Request", b'{"error":{"message":"unknown field stream_options"}}')


def warnings(rows: list[dict]) -> dict[str, str]:
    """What the verdict shows beside its judgement because it is above a limit."""
    margins = verdict.as_json(verdict.judge(facts(rows)))["margins"]
    return {one["rule"]: verdict.margin(one) for one in margins if one["ok"] is None and one["note"] and one["limit"]}


async def test_b01_a_role_is_no_token() -> None:
    """Role-only openings start no clock and make no gap."""
    opening = ((5, r({"role": "assistant", "content": None})), (10, r({"role": "assistant", "content": ""})))
    steps = (*opening, (400, c("A")), (450, c("B") + f("stop") + u(3, 2) + DONE))
    row = played(*steps)
    found = numbers([row])
    assert (found["ttft_ms"]["mean"], row["output_tokens"]) == (400, 2)
    assert (found["chunk_gap_ms"]["mean"], found["chunk_gap_ms"]["n"]) == (50, 1)
    (wired,) = (await asked(Answer(steps))).rows
    assert near(ms(wired, "first_token_ns"), 400)


def test_b02_reasoning_is_output() -> None:
    """An answer that never left its thoughts has tokens, a TTFT and gaps, and no time of an answer."""
    thought = [(200, "Okay"), (240, ","), (280, " so")]
    steps = [(at_ms, r({"reasoning_content": text})) for at_ms, text in thought]
    row = played((5, r({"role": "assistant", "content": ""})), *steps, (280, f("length") + u(9, 3) + DONE))
    found = numbers([row])
    assert (row["outcome"], row["output_tokens"], found["ttft_ms"]["mean"]) == ("ok", 3, 200)
    assert (found["chunk_gap_ms"]["mean"], found["chunk_gap_ms"]["n"]) == (40, 2)
    assert (row["first_answer_ns"], found["first_answer_ms"]["n"]) == (None, 0)


def test_b04_an_answer_of_tool_calls_alone() -> None:
    """Name and arguments of a call are output."""
    named = {"index": 0, "id": "c1", "type": "function", "function": {"name": "get_w", "arguments": ""}}
    parts = [{"index": 0, "function": {"arguments": part}} for part in ('{"q":', "1}")]
    steps = [(at_ms, r({"tool_calls": [call]})) for at_ms, call in zip((150, 200, 250), (named, *parts), strict=True)]
    row = played((5, r({"role": "assistant", "content": None})), *steps, (250, f("tool_calls") + u(20, 9) + DONE))
    found = numbers([row])
    assert (row["outcome"], row["output_tokens"], row["token_source"]) == ("ok", 9, "usage")
    assert (found["ttft_ms"]["mean"], found["e2e_ms"]["mean"]) == (150, 250)


def test_b05_several_tokens_an_event() -> None:
    """Time per token by the server's count; gaps between events are their own figure beside tokens an event."""

    def counted(n: int) -> bytes:
        return c("abc", usage={"prompt_tokens": 5, "completion_tokens": n})

    row = played((100, counted(1)), (400, counted(4)), (700, counted(7) + f("length") + u(5, 7) + DONE))
    found = numbers([row])
    assert (row["output_tokens"], row["chunk_tokens"], found["ttft_ms"]["mean"]) == (7, [1, 3, 3], 100)
    assert (found["tpot_ms"]["mean"], found["chunk_gap_ms"]["mean"]) == (100, 300)
    assert found["tokens_per_chunk"] == pytest.approx(7 / 3)


def test_b06_speculative_decoding() -> None:
    """/generate: the server's count, not the number of events; repeated text is there once."""
    row = played(
        (100, g("a b", 2)), (150, g("a b c d e", 5)), (200, g("a b c d e f", 6, finish_reason={"type": "length"})),
        (200, DONE), api="generate",
    )  # fmt: skip
    assert (row["outcome"], row["output_tokens"], len(row["chunk_ns"])) == ("ok", 6, 3)
    assert (row["text"], at(row)[0]) == ("a b c d e f", 100)


@pytest.mark.parametrize("texts", [("a", "ab", "abc", "abcd", "abcde"), ("a", "b", "c", "d", "e")])
def test_b07_cumulative_or_incremental(texts: tuple[str, ...]) -> None:
    """Five tokens and one text in both modes."""
    row = played(*((i, g(text, i)) for i, text in enumerate(texts, 1)), (9, DONE), api="generate")
    assert (row["output_tokens"], row["text"], row["chunk_tokens"]) == (5, "abcde", [1] * 5)


def test_b08_usage_with_empty_choices() -> None:
    """Events without choices are read for what they have."""
    prelude = event({"choices": [], "prompt_filter_results": []})
    row = played((50, prelude), (100, c("A") + f("stop") + u(7, 1) + DONE))
    assert (row["outcome"], row["output_tokens"], row["prompt_tokens"]) == ("ok", 1, 7)


async def test_b10_late_bookkeeping() -> None:
    """The request ends for its times at the last token; the stream's end stands apart."""
    steps = ((100, c("A")), (200, c("B") + f("stop")), (700, u(3, 2)), (900, DONE))
    row = played(*steps)
    found = numbers([row])
    assert (found["e2e_ms"]["mean"], found["tpot_ms"]["mean"], ms(row, "done_ns")) == (200, 100, 900)
    (wired,) = (await asked(Answer(steps))).rows
    assert near(ms(wired, "last_token_ns"), 200)
    assert near(ms(wired, "done_ns"), 900)
    assert wired["last_token_ns"] < wired["done_ns"]


def test_b11_answers_of_one_token() -> None:
    """They have a TTFT and no time per token: neither 0 nor NaN, nor part of a mean."""
    rows = [played((100, c("A") + f("length") + u(5, 1) + DONE)) for _ in range(3)]
    rows.append(played((100, c("A")), (150, c("B")), (200, c("C") + f("length") + u(5, 3) + DONE)))
    found = numbers(rows)
    assert (found["tpot_ms"]["n"], found["tpot_ms"]["mean"], found["ttft_ms"]["n"]) == (1, 50, 4)
    assert numbers(rows[:3])["tpot_ms"] == {"mean": None, "p50": None, "p90": None, "p99": None, "n": 0}


def test_b12_an_answer_without_a_token() -> None:
    """It is `empty`, a failure, and no part of any latency."""
    rows = [*(played(ONE) for _ in range(9)), played((100, DONE))]
    found = numbers(rows)
    assert (found["ttft_ms"]["mean"], found["ttft_ms"]["n"]) == (100, 9)
    assert (found["failed"], found["outcomes"]) == (1, {"empty": 1, "ok": 9})
    assert rows[-1]["first_token_ns"] is None


async def test_b13_no_usage_or_usage_refused() -> None:
    """Events stand in and are called so; a refusal of stream_options is told, and null leaves the field out."""
    without = Answer([(10, c("A") + c("B") + f("stop") + DONE)])
    (row,) = (await asked(without)).rows
    assert (row["outcome"], row["output_tokens"], row["token_source"]) == ("ok", 2, "events")

    def strict(request: Request, _number: int) -> Answer:
        return STREAM_OPTIONS_REFUSED if "stream_options" in request.json else without

    refused = (await asked(strict)).rows[0]
    assert (refused["outcome"], refused["error"]) == ("http_status", "HTTP 400: unknown field stream_options")
    (row,) = (await asked(strict, plan=replace(PLAN, body={"stream_options": None}))).rows
    assert (row["outcome"], row["token_source"]) == ("ok", "events")


def test_b14_a_proxy_that_hands_over_in_clumps() -> None:
    """The numbers stay as measured, and the verdict shows that most events shared a read."""
    clump = played((1500, c("x") * 60 + f("length") + u(5, 60) + DONE))
    found = numbers([clump])
    assert (found["ttft_ms"]["mean"], found["e2e_ms"]["mean"], clump["output_tokens"]) == (1500, 1500, 60)
    assert warnings([clump])["chunks_per_read"].startswith("chunks per read 60 (limit 2: most events share a read")
    assert warnings([played(ONE)]) == {}


async def test_b15_streaming_is_silently_off() -> None:
    """One JSON body is no stream: not ok, named as such, and without a TTFT."""
    whole = {
        "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    body = event(whole).removeprefix(b"data: ").strip()
    answer = plain("200 OK", body, "Content-Type: application/json")
    (row,) = (await asked(replace(answer, steps=[(300, body)]))).rows
    assert (row["outcome"], row["first_token_ns"], row["chunk_ns"]) == ("malformed", None, [])
    assert "streaming is off" in row["error"]
    assert (row["prompt_tokens"], row["output_tokens"], row["token_source"]) == (3, 2, "usage")
    assert numbers([row])["ttft_ms"]["n"] == 0
