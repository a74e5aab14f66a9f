"""The form of a server's events: what is learned from one, and that reading by it changes nothing."""

import json
import random
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.form import FORM_BYTES_MAX, Form, learn
from loadgen.sse import Parsed, Reader


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def chat(delta: object, finish: object = None, **more: object) -> bytes:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return event({"id": "a1-b", "object": "chat.completion.chunk", "created": 17, "choices": choices, **more})


def completion(text: str, **more: object) -> bytes:
    return event({"id": "cmpl-7", "choices": [{"index": 0, "text": text, "finish_reason": None}], **more})


def counted(completion_tokens: int, **more: object) -> dict[str, object]:
    return {"usage": {"prompt_tokens": 5, "completion_tokens": completion_tokens, **more}}


def text_of(form: Form | None, data: bytes) -> str | None:
    found = form.pattern.fullmatch(data) if form else None
    return found and str(found["text"], "utf-8")


@pytest.mark.parametrize(
    ("api", "one", "other", "answer", "counts"),
    [
        ("chat", chat({"content": " a"}), chat({"content": "é😀 b"}), True, False),
        ("chat", chat({"content": "a"}, created=1), chat({"content": "b"}, created=99), True, False),
        ("chat", chat({"content": "a"}, stamp="01"), chat({"content": "b"}, stamp="92"), True, False),
        ("chat", chat({"content": "a"}, **counted(1)), chat({"content": "b"}, **counted(20)), True, True),
        ("chat", chat({"content": "a"}, **counted(1, prompt_tokens_details={"cached_tokens": 4})),
         chat({"content": "b"}, **counted(2, prompt_tokens_details={"cached_tokens": 44})), True, True),
        ("chat", chat({"content": None, "reasoning": "a"}), chat({"content": None, "reasoning": "b"}), False, False),
        ("completions", completion("a", usage=None), completion("b", usage=None), True, False),
    ],
)  # fmt: skip
def test_a_token_teaches_the_form_of_the_next(api: str, one: bytes, other: bytes, answer: bool, counts: bool) -> None:
    """Text, ids, times and counts may differ."""
    form = learn(api, one)
    assert form is not None
    assert (form.answer, form.counts) == (answer, counts)
    choice = json.loads(other[6:])["choices"][0]
    assert text_of(form, other) in (choice.get("text"), *choice.get("delta", {}).values())


@pytest.mark.parametrize(
    "data",
    [
        chat({"role": "assistant", "content": ""}),
        chat({}, finish="stop"),
        chat({"content": "a"}, finish="length"),
        chat({"content": "a"}, error={"message": "no"}),
        chat({"content": "a"}, object="error"),
        chat({"content": "a"}, sglext={}),
        chat({"content": "a\nb"}),
        chat({"content": "a", "reasoning_content": "b"}),
        chat({"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}),
        chat({"content": "x" * FORM_BYTES_MAX}),
        chat({"content": "a"}, extra=[{"n": i} for i in range(40)]),
        chat({"content": "a"}, content="b"),
        event({"content": "a", "choices": [{"delta": {"con\\tent": 1}}]}),
        b'data: {"choices":[{"delta":{"content" : "b"}}],"x\\"content":"a"}\n\n',
        chat({"content": "a"}).replace(b"data: ", b"data:"),
        b"data: [DONE]\n\n",
        b"data: {\n\n",
        b"data: {}\n\n",
        b"",
    ],
)
def test_what_is_no_plain_token_teaches_nothing(data: bytes) -> None:
    """Roles, ends, errors, escapes, two texts, long events: the whole path reads them."""
    assert learn("chat", data) is None


def test_a_form_takes_nothing_that_means_more() -> None:
    """An end, an escape, a number that is none: not of the form, however near."""
    form = learn("chat", chat({"content": "a"}, **counted(3)))
    assert form is not None
    for other in (
        chat({"content": "a"}, finish="stop", **counted(4)),
        chat({"content": 'a"b'}, **counted(4)),
        chat({"content": "a\\"}, **counted(4)),
        chat({"content": ""}, **counted(4)),
        chat({"content": "a"}, **counted(-4)),
        chat({"content": "a"}, **counted(10**18)),
        chat({"content": "a"}, **counted(4)).replace(b":4", b":04"),
        chat({"content": "a"}, **counted(4)).replace(b":4", b":4.5"),
        chat({"content": "a"}, **counted(4))[:-1],
    ):
        assert text_of(form, other) is None


def read(api: str, reads: list[bytes], form: Form | None, at_once: int, **options: int) -> tuple[Parsed, Form | None]:
    """By feed_all() in groups, or by feed() where `at_once` is 0."""
    reader = Reader(api, keep_text=True, form=form, **options)
    if not at_once:
        for number, data in enumerate(reads):
            reader.feed(number, data)
    else:
        for start in range(0, len(reads), at_once):
            group = reads[start : start + at_once]
            reader.feed_all(range(start, start + len(group)), group)
    return reader.finish(), reader.form


TOKENS = st.sampled_from(
    [
        chat({"content": "A"}), chat({"content": "B"}), chat({"content": "é😀"}), chat({"content": "q\n"}),
        chat({"content": "A"}, created=18), chat({"content": "A"}).replace(b'"A"', b'"\xff"'),
        chat({"content": "A"}).replace(b'"A"', b'"\xed\xa0\x80"'), chat({"content": "A"}).replace(b"17", b"017"),
        chat({"content": "C"}, **counted(1)), chat({"content": "D"}, **counted(9)),
        chat({"content": "D"}, **counted(-1)), chat({"content": "D"}, **counted(2**31)),
        chat({"content": "D"}, **counted(10**17)),
        chat({"content": "E"}, **counted(3, prompt_tokens_details={"cached_tokens": 4})),
        chat({"content": None, "reasoning_content": "r"}), chat({"content": None, "reasoning_content": "rr"}),
        chat({"content": None, "reasoning_content": "r"}).replace(b'"r"', b'"\xff"'),
        chat({"role": "assistant", "content": ""}), chat({}, finish="stop"), chat({"content": "z"}, finish="abort"),
        chat({"content": "e"}, error="no"), completion("t"), completion("u"), completion("v", **counted(4)),
        event({"text": "ab", "meta_info": {"completion_tokens": 1}}), b"data: [DONE]\n\n", b": ping\n\n",
        b"\n", b"\r", b"\r\n", b"data:", b"\xef\xbb\xbf", chat({"content": "A"}).replace(b"\n", b"\r\n"),
    ]
)  # fmt: skip


@given(
    api=st.sampled_from(["chat", "completions", "generate"]),
    pieces=st.lists(st.one_of(TOKENS, TOKENS, st.binary(max_size=9)), max_size=16),
    seed=st.integers(0, 2**32),
    taught=st.sampled_from([None, chat({"content": "A"}), chat({"content": "C"}, **counted(1)), completion("t")]),
    event_bytes=st.sampled_from([120, 1 << 20]),
    response_bytes=st.sampled_from([900, 1 << 20]),
)
@settings(max_examples=600, deadline=None)
def test_reading_by_forms_changes_nothing(
    api: str, pieces: list[bytes], seed: int, taught: bytes | None, event_bytes: int, response_bytes: int
) -> None:
    """Any bytes in any cuts, with any form known before: every column as the whole path has it."""
    rng = random.Random(seed)
    reads = list(pieces)
    if rng.random() < 0.5:
        body = b"".join(pieces)
        places = sorted(rng.randrange(len(body) + 1) for _ in range(rng.randrange(9)))
        reads = [body[i:j] for i, j in zip([0, *places], [*places, len(body)], strict=True)]
    options = {"event_bytes": event_bytes, "response_bytes": response_bytes}
    whole, _ = read(api, reads, None, 0, **options)
    form = learn(api, taught) if taught else None
    quick, form = read(api, reads, form, rng.randrange(1, 9), **options)
    assert asdict(quick) == asdict(whole)
    again, _ = read(api, reads, form, 99, **options)
    assert asdict(again) == asdict(whole)


def test_most_tokens_are_read_by_their_form() -> None:
    """A stream of plain tokens is learned at its second one, and the next response begins with that."""
    reads = [chat({"role": "assistant", "content": ""}), *(chat({"content": f"w{i}"}) for i in range(50))]
    _, form = read("chat", reads, None, 8)
    assert form is not None
    assert all(text_of(form, data) for data in reads[1:])
    fresh = Reader("chat", form=form)
    fresh.feed_all(range(51), reads)
    assert fresh.form is form
