"""Streams that broke other tools, group A: framing and decoding. Times are exact where no socket is needed."""

import pytest
from case import asked, at, ms, near, numbers, played
from scripted import DONE, Answer, c, f, u

A04 = ((200, c("A") + c("B") + c("C")), (500, c("D") + f("stop") + u(3, 4) + DONE))
A09 = (
    (50, b":\n\n"),
    (100, b": ping\n\n"),
    (300, b": x-cost=0.01\n" + c("A")),
    (350, b": ping\n\n"),
    (400, f("stop") + u(2, 1) + DONE),
)


async def test_a01_a_character_cut_between_network_chunks() -> None:
    """One byte a chunk: the text is whole and the request ok."""
    body = c("中文😀")
    steps = [(100.0, body[i : i + 1]) for i in range(len(body))]
    (row,) = (await asked(Answer([*steps, (100, f("stop") + u(5, 3) + DONE)]))).rows
    assert (row["outcome"], row["text"], row["output_tokens"]) == ("ok", "中文😀", 3)


def test_a02_no_replacement_character() -> None:
    """A cut inside a character leaves no U+FFFD; bytes that are no text are malformed, and nothing is raised."""
    body = c("😀")
    for cut in (1, 2, 3):
        place = body.index("😀".encode()) + cut
        assert played((1, body[:place]), (2, body[place:] + DONE))["text"] == "😀"
    bad = played((1, c("?").replace(b"?", b"\xff") + f("stop") + DONE))
    assert (bad["outcome"], bad["text"]) == ("malformed", None)


def test_a04_several_events_in_one_read() -> None:
    """Every event counts, all with the stamp of their read."""
    row = played(*A04)
    found = numbers([row])
    assert (at(row), row["output_tokens"], row["outcome"]) == ([200, 200, 200, 500], 4, "ok")
    assert (found["ttft_ms"]["mean"], found["e2e_ms"]["mean"]) == (200, 500)
    assert (found["chunk_gap_ms"]["mean"], found["chunk_gap_ms"]["n"]) == (100, 3)


async def test_a05_an_event_cut_inside_its_json() -> None:
    """It counts once, when its blank line is there."""
    steps = ((100, b'data: {"choices":[{"ind'), (180, b'ex":0,"delta":{"content":"A"}}]}'), (200, b"\n"), (220, b"\n"))
    row = played(*steps, (300, f("stop") + u(2, 1) + DONE))
    assert (row["outcome"], at(row), row["output_tokens"]) == ("ok", [220], 1)
    (wired,) = (await asked(Answer([*steps, (300, f("stop") + u(2, 1) + DONE)]))).rows
    assert (wired["outcome"], wired["output_tokens"]) == ("ok", 1)
    assert near(ms(wired, "first_token_ns"), 220)


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
async def test_a06_other_line_ends(end: bytes) -> None:
    """CRLF and lone CR give A04's numbers, played and over a socket."""
    steps = [(at_ms, data.replace(b"\n", end)) for at_ms, data in A04]
    assert {**played(*steps), "bytes": 0} == {**played(*A04), "bytes": 0}
    (row,) = (await asked(Answer(steps))).rows
    assert (row["outcome"], row["text"], row["output_tokens"]) == ("ok", "ABCD", 4)
    assert near(ms(row, "first_token_ns"), 200)


def test_a08_data_without_a_space() -> None:
    """`data:{` is an event, `data:[DONE]` the end."""
    row = played((100, c("A").replace(b"data: ", b"data:")), (200, b"data:[DONE]\n\n"))
    assert (row["outcome"], row["output_tokens"], at(row), row["done_seen"]) == ("ok", 1, [100], True)


def test_a09_comments_and_empty_events() -> None:
    """They are nothing: no token, nothing malformed."""
    row = played(*A09)
    assert (row["outcome"], row["output_tokens"], row["text"]) == ("ok", 1, "A")


async def test_a10_a_comment_starts_no_clock() -> None:
    """TTFT is the first output's, played and over a socket."""
    assert numbers([played(*A09)])["ttft_ms"]["mean"] == 300
    (row,) = (await asked(Answer(A09))).rows
    assert near(ms(row, "first_token_ns"), 300)


@pytest.mark.parametrize("kib", [66, 130, 260, 700])
async def test_a11_a_very_long_event(kib: int) -> None:
    """No line limit of a library ends it; 16 KiB a write."""
    body = c("x" * (kib << 10))
    steps = [(5.0, body[i : i + 16384]) for i in range(0, len(body), 16384)]
    (row,) = (await asked(Answer([*steps, (5, f("stop") + DONE)]))).rows
    assert (row["outcome"], len(row["text"]), len(row["chunk_ns"])) == ("ok", kib << 10, 1)


def test_a12_one_event_over_several_data_lines() -> None:
    """The lines are joined before they are parsed."""
    wrapped = b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"hi"}}]}\n\n'
    row = played((100, wrapped), (200, f("stop") + u(2, 1) + DONE))
    assert (row["outcome"], row["output_tokens"], row["text"]) == ("ok", 1, "hi")


async def test_a13_broken_json_in_the_middle() -> None:
    """The request is malformed with what it had, the next one is asked all the same, the summary counts it."""
    broken = b'data: {"choices":[{"index":0,"delta":{"conte\n\n'
    bad = Answer([(10, c("A")), (15, broken), (20, c("C") + f("stop") + u(2, 3) + DONE)])
    good = Answer([(10, c("A") + f("stop") + u(2, 1) + DONE)])
    rows = (await asked(lambda _request, number: good if number else bad, 3)).rows
    assert [row["outcome"] for row in rows].count("malformed") == 1
    spoilt = next(row for row in rows if row["outcome"] == "malformed")
    assert (spoilt["text"], spoilt["error"]) == ("AC", "an event is not a JSON object")
    assert numbers(rows)["outcomes"] == {"malformed": 1, "ok": 2}
