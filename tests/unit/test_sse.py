"""The parser against streams that broke others: framing, dialects, tokens, ends; and any bytes in any cuts."""

import hashlib
import json
import random
import time
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.sse import Parsed, Reader

MS = 1_000_000
DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def r(delta: object, **more: object) -> bytes:
    return event({"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more})


def c(text: str, **more: object) -> bytes:
    return r({"content": text}, **more)


def f(reason: str) -> bytes:
    return event({"id": "r1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def usage(prompt: int, completion: int) -> dict[str, object]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}


def u(prompt: int, completion: int) -> bytes:
    return event({"id": "r1", "choices": [], **usage(prompt, completion)})


def g(text: str, tokens: int, **meta: object) -> bytes:
    return event({"text": text, "meta_info": {"completion_tokens": tokens, "prompt_tokens": 4, **meta}})


def read(*steps: tuple[int, bytes], api: str = "chat", **options: object) -> Parsed:
    """Parses `steps` of (milliseconds, bytes), keeping the text."""
    reader = Reader(api, keep_text=True, **options)  # type: ignore[arg-type]
    for at_ms, data in steps:
        reader.feed(at_ms * MS, data)
    return reader.finish()


def at(parsed: Parsed) -> list[int]:
    return [stamp // MS for stamp in parsed.chunk_ns]


A04 = ((200, c("A") + c("B") + c("C")), (500, c("D") + f("stop") + u(3, 4) + DONE))


# A. Framing and decoding


def test_a01_a_character_cut_between_reads_is_whole() -> None:
    """Multi-byte characters survive a read for each byte."""
    body = c("中文😀") + f("stop") + u(5, 3) + DONE
    parsed = read(*((100, body[i : i + 1]) for i in range(len(body))))
    assert (parsed.text, parsed.output_tokens, parsed.malformed) == ("中文😀", 3, None)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a02_no_replacement_character_comes_from_a_cut(cut: int) -> None:
    """A cut inside a character puts no U+FFFD into the text."""
    body = c("😀")
    place = body.index("😀".encode()) + cut
    assert read((1, body[:place]), (2, body[place:] + DONE)).text == "😀"


def test_a02_bytes_that_are_no_text_are_malformed() -> None:
    """A byte FF in the content is told as malformed, not raised and not replaced."""
    parsed = read((1, c("x").replace(b'"x"', b'"\xff"') + DONE))
    assert parsed.malformed
    assert parsed.text is None


def test_a04_events_of_one_read_share_its_stamp() -> None:
    """Every event of a read is seen, with the read's stamp."""
    parsed = read(*A04)
    assert (at(parsed), parsed.output_tokens) == ([200, 200, 200, 500], 4)


def test_a05_an_event_arrives_with_its_blank_line() -> None:
    """An event cut in its JSON and before its blank line counts when the blank line is there."""
    parsed = read(
        (100, b'data: {"choices":[{"ind'), (180, b'ex":0,"delta":{"content":"A"}}]}'), (200, b"\n"), (220, b"\n"),
        (300, f("stop") + u(2, 1) + DONE),
    )  # fmt: skip
    assert (at(parsed), parsed.malformed) == ([220], None)


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_a06_other_line_ends_change_nothing(end: bytes) -> None:
    """CRLF and lone CR give the numbers of LF."""
    assert read(*((ms, data.replace(b"\n", end)) for ms, data in A04)) == read(*A04)


def test_a06_crlf_cut_between_cr_and_lf() -> None:
    """A CR at a read's end waits for nothing, and its LF is not a second line end."""
    parsed = read((1, c("A").replace(b"\n", b"\r\n")[:-1]), (2, b"\n" + c("B") + DONE))
    assert (at(parsed), parsed.text) == ([1, 2], "AB")


def test_a08_data_needs_no_space() -> None:
    """`data:` without a space is read, also in the end mark."""
    parsed = read((100, c("A").replace(b"data: ", b"data:")), (200, b"data:[DONE]\n\n"))
    assert (at(parsed), parsed.done_seen) == ([100], True)


def test_a09_a10_comments_are_nothing_and_start_no_clock() -> None:
    """Comments and empty events are no events: neither output nor malformed."""
    parsed = read(
        (50, b":\n\n"), (100, b": ping\n\n"), (300, b": x-cost=0.01\n" + c("A")), (350, b": ping\n\n"),
        (400, f("stop") + u(2, 1) + DONE),
    )  # fmt: skip
    assert (at(parsed), parsed.first_chunk_ns, parsed.malformed) == ([300], 300 * MS, None)


@pytest.mark.parametrize("kib", [66, 130, 260, 700])
def test_a11_a_very_long_event_is_read(kib: int) -> None:
    """An event of hundreds of KiB in reads of 16 KiB is one event."""
    body = c("x" * (kib << 10)) + DONE
    parsed = read(*((i, body[i : i + 16384]) for i in range(0, len(body), 16384)))
    assert (len(parsed.text or ""), len(parsed.chunk_ns)) == (kib << 10, 1)


def test_a12_several_data_lines_are_one_event() -> None:
    """Data lines are joined before they are parsed."""
    parsed = read((100, b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"hi"}}]}\n\n'), (200, DONE))
    assert (parsed.text, parsed.malformed) == ("hi", None)


def test_a13_a_broken_event_is_told() -> None:
    """Broken JSON in the middle marks the response; what is whole is still counted."""
    broken = b'data: {"choices":[{"index":0,"delta":{"conte\n\n'
    parsed = read((100, c("A")), (150, broken), (200, c("C") + f("stop") + u(3, 3) + DONE))
    assert parsed.malformed == "an event is not a JSON object"
    assert parsed.text == "AC"


def test_data_after_the_end_mark_is_ignored() -> None:
    """Nothing after [DONE] counts, a second [DONE] included."""
    parsed = read((1, c("A") + DONE + c("B") + DONE), (2, c("C")))
    assert (parsed.text, parsed.done_seen) == ("A", True)


def test_an_end_mark_without_its_blank_line_counts() -> None:
    """A body that ends right behind [DONE] ended well; one that ends in an event did not break it."""
    assert read((1, c("A") + b"data: [DONE]")).done_seen
    cut = read((1, c("A") + c("B")[:-20]))
    assert (cut.text, cut.malformed, cut.done_seen) == ("A", None, False)


def test_r15_caps_end_the_reading() -> None:
    """An event or a response beyond its cap is too large, however it is cut."""
    long = c("x" * 200)
    for steps in ([(1, long)], [(1, long[i : i + 7]) for i in range(0, len(long), 7)]):
        assert "event" in (read(*steps, event_bytes=100).too_large or "")
    assert "response" in (read((1, c("A") + long), response_bytes=200).too_large or "")
    assert read((1, long + DONE), event_bytes=1000).too_large is None


# B. Tokens and the first of them


def test_b01_a_role_is_no_token() -> None:
    """Role-only and empty deltas do not start the clock."""
    parsed = read(
        (5, r({"role": "assistant", "content": None})), (10, r({"role": "assistant", "content": ""})),
        (400, c("A")), (450, c("B") + f("stop") + u(3, 2) + DONE),
    )  # fmt: skip
    assert (at(parsed), parsed.first_chunk_ns) == ([400, 450], 5 * MS)


def test_b02_reasoning_is_output_and_no_answer() -> None:
    """Reasoning deltas are generated tokens; the answer has its own first stamp and its own hash."""
    thought = [(200, r({"reasoning_content": "Okay"})), (240, r({"reasoning_content": ","}))]
    parsed = read((5, r({"role": "assistant", "content": ""})), *thought, (280, f("length") + u(9, 2) + DONE))
    assert (at(parsed), parsed.first_answer_ns, parsed.answer_sha256) == ([200, 240], None, None)
    answered = read(*thought, (300, c("A") + DONE))
    assert answered.first_answer_ns == 300 * MS
    assert answered.answer_sha256 == hashlib.sha256(b"A").hexdigest()


def test_b04_tool_calls_are_output() -> None:
    """An answer of tool calls alone has a first token."""
    calls = [r({"tool_calls": [{"index": 0, "function": {"name": "w", "arguments": part}}]}) for part in ("", "{}")]
    parsed = read(
        (5, r({"role": "assistant", "content": None})), (150, calls[0]), (200, calls[1]), (250, u(20, 9) + DONE)
    )
    assert (at(parsed), parsed.output_tokens) == ([150, 200], 9)


def test_b05_usage_in_every_event_gives_tokens_per_chunk() -> None:
    """The growth of a continuous count is each chunk's tokens."""
    parsed = read(
        *((ms, c("abc", **usage(5, n))) for ms, n in ((100, 1), (400, 4), (700, 7))), (701, f("length") + DONE)
    )
    assert (parsed.chunk_tokens, parsed.output_tokens, parsed.token_source) == ([1, 3, 3], 7, "usage")


def test_an_empty_delta_whose_count_grew_is_output() -> None:
    """A token without text counts at its event; a role beside a count does not."""
    parsed = read(
        (1, r({"role": "assistant", "content": ""}, **usage(5, 1))), (2, r({"content": ""}, **usage(5, 1))),
        (3, r({"content": ""}, **usage(5, 2))), (4, c("é", **usage(5, 3)) + DONE),
    )  # fmt: skip
    assert (at(parsed), parsed.chunk_tokens) == ([3, 4], [2, 1])


def test_a_count_that_comes_only_at_the_end_is_no_token() -> None:
    """The whole count beside the finish reason does not make that event a chunk."""
    last = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **usage(5, 9)})
    parsed = read((1, c("a")), (2, c("b")), (3, last + DONE))
    assert (at(parsed), parsed.chunk_tokens, parsed.output_tokens) == ([1, 2], None, 9)


@pytest.mark.parametrize(
    ("texts", "tokens", "whole"),
    [
        (["a b", "a b c d e", "a b c d e f"], [2, 5, 6], "a b c d e f"),
        (["a", "ab", "abc", "abcd", "abcde"], [1, 2, 3, 4, 5], "abcde"),
        (["a", "b", "c", "d", "e"], [1, 2, 3, 4, 5], "abcde"),
        ([" the", " the", " cat"], [1, 2, 3], " the the cat"),
        (["", "é", "é", "éa"], [1, 2, 3, 4], "éa"),
    ],
)
def test_b06_b07_cumulative_and_incremental_text(texts: list[str], tokens: list[int], whole: str) -> None:
    """/generate repeats its text or not; either way the text is there once and the count is the server's."""
    steps = [(i, g(text, n)) for i, (text, n) in enumerate(zip(texts, tokens, strict=True))]
    parsed = read(*steps, (99, DONE), api="generate")
    assert (parsed.text, parsed.output_tokens, len(parsed.chunk_ns)) == (whole, tokens[-1], len(texts))
    assert sum(parsed.chunk_tokens or []) == tokens[-1]


def test_generate_tells_its_verify_steps() -> None:
    """meta_info brings verify steps, cached tokens and a finish reason with a type."""
    parsed = read(
        (1, g("a", 3, cached_tokens=2, spec_verify_ct=1, finish_reason={"type": "length", "length": 3}) + DONE),
        api="generate",
    )
    assert (parsed.spec_verify_steps, parsed.cached_tokens, parsed.prompt_tokens, parsed.finish_reason) == (
        1,
        2,
        4,
        "length",
    )


def test_chat_tells_its_verify_steps_where_asked() -> None:
    """The extra chunk of return_spec_tokens_details is read; details of usage too."""
    spec = event({"choices": [], "sglext": {"spec_tokens_details": {"spec_verify_ct": 7}}})
    cached = event(
        {
            "choices": [],
            "usage": {"completion_tokens": 20, "prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}},
        }
    )
    parsed = read((1, c("a") + f("length") + spec + cached + DONE))
    assert (parsed.spec_verify_steps, parsed.cached_tokens, parsed.output_tokens) == (7, 4, 20)


def test_completions_text_is_output() -> None:
    """text_completion events carry text; an empty last one does not."""

    def piece(text: str, reason: str | None = None) -> bytes:
        return event({"choices": [{"index": 0, "text": text, "finish_reason": reason}]})

    parsed = read((1, piece("a")), (2, piece("b")), (3, piece("", "stop") + u(2, 2) + DONE), api="completions")
    assert (at(parsed), parsed.text, parsed.finish_reason) == ([1, 2], "ab", "stop")


def test_b08_b12_events_without_choices_or_output() -> None:
    """Empty choices are tolerated; an answer without output has neither stamps nor a hash."""
    parsed = read((50, event({"choices": [], "prompt_filter_results": []})), (100, c("A") + f("stop") + u(7, 1) + DONE))
    assert (at(parsed), parsed.prompt_tokens) == ([100], 7)
    empty = read((100, DONE))
    assert (empty.first_token_ns, empty.last_token_ns, empty.answer_sha256, empty.output_tokens) == (
        None,
        None,
        None,
        0,
    )


def test_b10_late_bookkeeping_is_not_the_last_token() -> None:
    """Usage and the end mark come late; the last token does not."""
    parsed = read((100, c("A")), (200, c("B") + f("stop")), (700, u(3, 2)), (900, DONE))
    assert (parsed.last_token_ns, parsed.done_seen) == (200 * MS, True)


def test_b13_without_usage_events_are_counted_and_said_so() -> None:
    """The source of the count is told."""
    parsed = read((100, c("A") + c("B") + f("stop") + DONE))
    assert (parsed.output_tokens, parsed.token_source, parsed.chunk_tokens) == (2, "events", None)


# Ends


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": {"object": "error", "message": "bad", "code": 400}}, "bad"),
        ({"error": "gone"}, "gone"),
        ({"object": "error", "message": "worker died"}, "worker died"),
        ({"error": {"code": 500}}, "500"),
        ({"error": {"message": "x" * 999}}, "x" * 200),
    ],
)
def test_c01_c02_an_error_in_the_stream_is_told(error: object, message: str) -> None:
    """An error event is kept with its message (200 characters at most); output before it stays."""
    parsed = read((100, c("A")), (150, c("B")), (200, event(error) + DONE))
    assert (parsed.error, len(parsed.chunk_ns)) == (message, 2)


def test_an_aborted_answer_is_an_error() -> None:
    """A server that gives up by its finish reason has not finished."""
    reason = {"type": "abort", "message": "no memory", "status_code": 503}
    assert read((1, g("a", 1, finish_reason=reason) + DONE), api="generate").error == "finish reason abort: no memory"
    assert read((1, c("a") + f("abort") + DONE)).error == "finish reason abort"


def test_an_event_named_error_is_an_error() -> None:
    """The event field may say it."""
    assert read((1, b'event: error\ndata: {"message":"no"}\n\n')).error == "no"


@pytest.mark.parametrize(
    "counts",
    [[-1], ["7"], [True], [2**31], [1.5], [5, 3], [0], [[]]],
)
def test_usage_that_contradicts_itself_or_the_events_is_malformed(counts: list[object]) -> None:
    """Counts that are none, that fall, or that are 0 beside output make a response malformed."""
    body = c("a") + b"".join(event({"choices": [], "usage": {"completion_tokens": n}}) for n in counts) + DONE
    parsed = read((1, body))
    assert parsed.malformed
    assert parsed.chunk_tokens is None


def test_null_usage_is_no_usage() -> None:
    """usage: null, as one release sends it in every event, says nothing."""
    parsed = read((1, c("a", usage=None) + f("stop") + DONE))
    assert (parsed.token_source, parsed.malformed) == ("events", None)


def test_bytes_that_are_no_stream_are_malformed() -> None:
    """A page of HTML holds no event; no bytes at all are no contradiction."""
    assert read((1, b"<h1>Service Unavailable</h1>")).malformed
    assert read().malformed is None


HOSTILE = [
    b"data: " + b"[" * 10_000 + b"]" * 10_000 + b"\n\n",
    b'data: {"a":' * 5000 + b"\n\n",
    b"data: \x00\x00\n\n",
    b'data: {"choices":{"0":1},"usage":[1]}\n\n',
    b'data: {"choices":[1,"a",null,[],{"delta":5},{"delta":{"content":{"a":1}}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"\\ud800"},"finish_reason":[1]}]}\n\n',
    b'data: {"text":5,"meta_info":7,"sglext":{"spec_tokens_details":[1]}}\n\n',
    b'data: {"error":[1,2]}\n\n',
    b"data: 1\n\ndata: null\n\ndata: \"x\"\n\n",
    b"event: error\n\nretry: x\n\nid\n\ndata\n\n",
]  # fmt: skip


@pytest.mark.parametrize("api", ["chat", "completions", "generate"])
@pytest.mark.parametrize("body", HOSTILE)
def test_r15_hostile_events_are_never_raised(api: str, body: bytes) -> None:
    """Whatever JSON a server thinks of, parsing ends with a Parsed."""
    assert isinstance(read((1, body), api=api), Parsed)


PIECES = st.sampled_from(
    [
        c("A"), c("é😀"), r({"role": "assistant"}), r({"reasoning_content": "x"}), f("stop"), u(3, 4), DONE,
        c("q", **usage(1, 2)), g("ab", 1), g("abc", 2),
        b": ping\n\n", b"\n", b"\r", b"\r\n", b"data:", b"data: {", b"\xff",
        event({"error": {"message": "no"}}), c("A").replace(b"\n", b"\r\n"), *HOSTILE[2:],
    ]
)  # fmt: skip


@given(
    api=st.sampled_from(["chat", "completions", "generate"]),
    pieces=st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=12),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=300, deadline=None)
def test_r15_any_bytes_in_any_cuts_read_the_same(api: str, pieces: list[bytes], seed: int) -> None:
    """Never an exception, and the cuts do not change what was read."""
    body = b"".join(pieces)
    whole = read((1, body), api=api)
    rng = random.Random(seed)
    places = sorted(rng.randrange(len(body) + 1) for _ in range(rng.randrange(9)))
    cuts = [body[i:j] for i, j in zip([0, *places], [*places, len(body)], strict=True)]
    assert asdict(read(*((1, cut) for cut in cuts), api=api)) == asdict(whole)
    assert asdict(read(*((1, body[i : i + 1]) for i in range(len(body))), api=api)) == asdict(whole)


@pytest.mark.parametrize("kind", [b"x", b"\n", c("A"), b"data: \n", b"\r"])
def test_r15_work_is_linear_in_the_bytes(kind: bytes) -> None:
    """Ten times the bytes in reads of one byte take nothing like a hundred times the work."""

    def spent(size: int) -> float:
        body = (kind * (size // len(kind) + 1))[:size]
        reader = Reader("chat")
        began = time.process_time()
        for i in range(size):
            reader.feed(i, body[i : i + 1])
        reader.finish()
        return time.process_time() - began

    small = min(spent(10_000) for _ in range(3))
    assert spent(100_000) < 50 * max(small, 0.002)
