"""A chunked body kept read by read: the short way of most reads gives what the framing alone gives, within the caps."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loadgen.trace
from loadgen.body import Body
from loadgen.framing import SHORT_READ_BYTES, SIZE_LINES, Chunked
from loadgen.record import Outcome
from loadgen.trace import Limits, Trace

Ends = list[tuple[Outcome | None, str | None]]


def chunk(data: bytes, upper: bool = False) -> bytes:
    return (b"%X\r\n%s\r\n" if upper else b"%x\r\n%s\r\n") % (len(data), data)


def taken(reads: list[bytes], limits: Limits | None = None) -> tuple[Trace, Ends, Body]:
    """Reads until the body is over, as a connection hands them on."""
    trace, ends = Trace(), list[tuple[Outcome | None, str | None]]()
    body = Body(trace, limits or Limits(), lambda outcome, error: ends.append((outcome, error)))
    for data in reads:
        if not ends:
            body.take(data)
    return trace, ends, body


def plainly(reads: list[bytes]) -> tuple[bytes, bool]:
    """What the framing alone makes of them, and whether it broke."""
    chunked, out = Chunked(), b""
    try:
        for data in reads:
            if not chunked.ended:
                out += chunked.feed(data)
    except ValueError:
        return out, True
    return out, False


PIECES = st.one_of(
    st.binary(min_size=1, max_size=40).map(chunk),
    st.binary(min_size=1, max_size=400).map(lambda data: chunk(data, upper=True)),
    st.sampled_from(
        [chunk(b"5\r\nhello\r\n"), chunk(b"\r\n"), b"0\r\n\r\n", b"000\r\nA: b\r\n\r\n", b"5;x=y\r\nhello\r\n"]
    ),
    st.sampled_from([b"5\r\nhell\r\n", b"6\r\nhello\r\n", b"\r\n", b"?", b"05\r\nhello\r\n", chunk(b"x" * 5000)]),
    st.binary(max_size=6),
)


@given(pieces=st.lists(PIECES, max_size=12), seed=st.integers(0, 2**32))
@settings(max_examples=500, deadline=None)
def test_r15_any_bytes_in_any_cuts_are_kept_as_the_framing_says(pieces: list[bytes], seed: int) -> None:
    """Whole chunks, several, parts of one, or garbage a read: the same bytes, the same end, nothing raised."""
    rng = random.Random(seed)
    raw = b"".join(pieces)
    places = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.randrange(12)))
    cuts = [raw[i:j] for i, j in pairwise([0, *places, len(raw)])]
    for reads in (pieces, cuts, [raw[i : i + 1] for i in range(len(raw))]):
        trace, ends, body = taken(reads)
        kept, broke = plainly(reads)
        assert (b"".join(trace.parts), len(trace.stamps)) == (kept, len(trace.parts))
        assert body.size == len(kept)
        assert trace.stamps == sorted(trace.stamps)
        assert ends == [] or (ends[0][0] is Outcome.MALFORMED) is broke


def test_every_short_length_has_its_size_line() -> None:
    """A read of one whole chunk is known by its length; no other read is taken for one."""
    for size in [*range(1, 300), *range(4080, 4090)]:
        data = chunk(b"x" * size)
        assert len(data) >= SHORT_READ_BYTES or data.startswith(SIZE_LINES[len(data)])
    for length in range(40):
        assert not (b"0\r\n" + b"\r\n" * length)[:length].startswith(SIZE_LINES[length])


def test_bytes_behind_the_end_are_told() -> None:
    """The end is called once; what came behind it in the same read shows."""
    trace, ends, body = taken([chunk(b"a"), chunk(b"b") + b"0\r\n\r\nHTTP"])
    assert (trace.parts, ends, body.extra) == ([b"a", b"b"], [(None, None)], True)


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("whole", [True, False])
def test_caps_hold_to_the_byte(size: int, whole: bool) -> None:
    """A response of as many bytes as its cap is taken, one more is not, whichever way it came."""
    cap = size * 10
    raw = chunk(b"x" * size)
    reads = [raw] * 10 if whole else [raw[:2], raw[2:]] * 10
    _, ends, body = taken(reads, Limits(response_bytes=cap))
    assert (body.size, ends) == (cap, [])
    _, ends, body = taken([*reads, *reads], Limits(response_bytes=cap))
    assert body.size <= cap
    assert [outcome for outcome, _ in ends] == [Outcome.TOO_LARGE]


def test_reads_are_capped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of one byte fill the memory long before the bytes' cap does."""
    monkeypatch.setattr(loadgen.trace, "READS_MAX", 20)
    trace, ends, _ = taken([chunk(b"x")] * 30)
    assert (len(trace.parts), [outcome for outcome, _ in ends]) == (20, [Outcome.TOO_LARGE])
    assert "20 reads" in str(ends[0][1])


def ended_after(part: bytes, tokens: int, events: int = 100_000) -> tuple[int, Ends]:
    """How many events of an answer without end are kept where `tokens` were asked for, and how it ends."""
    ends = Ends()
    trace = Trace(asked_tokens=tokens)
    body = Body(trace, Limits(), lambda outcome, error: ends.append((outcome, error)))
    while not ends and len(trace.parts) < events:
        body.take(chunk(part))
    return len(trace.parts), ends


@pytest.mark.parametrize("size", [40, 250, 900, 5000])
@pytest.mark.parametrize("tokens", [16, 512])
def test_r15_a_server_that_does_not_heed_max_tokens_is_given_up(size: int, tokens: int) -> None:
    """More than four events for each token that was asked for: told by twice as many, or at a KiB a token."""
    kept, ends = ended_after(b"data: " + b"x" * size + b"\n\n", tokens)
    most = 4 * tokens + 64
    assert most < kept <= max(2 * (most + 1), 1024 * tokens // size + 1)
    assert [outcome for outcome, _ in ends] == [Outcome.TOO_LARGE]
    assert f"{most} events for {tokens} tokens" in str(ends[0][1])


def test_r15_an_answer_of_large_events_is_none_of_those() -> None:
    """As many events as tokens, each with the probabilities of many tokens: however long, it is an answer."""
    assert ended_after(b"data: " + b"x" * 6000 + b"\n\n", 512, events=520) == (520, [])


def test_r15_what_an_answer_says_is_no_event() -> None:
    """An answer about streams, repeated whole in every event as /generate does: one event each."""
    part = b"data: " + 200 * b'{"text": "data: data: ' + b'"}\n\n'
    assert ended_after(part, 512, events=520) == (520, [])
