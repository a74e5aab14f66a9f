"""R14 to R16: no hops that nobody asked for, and a server that does its worst costs a row and bounded memory."""

import asyncio
import contextlib
import functools
import gzip
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import DONE, LAST_CHUNK, STREAM_HEAD, Answer, Scripted, c, event, f, plain, scripted, u, well

from loadgen.record import Outcome
from loadgen.row import Asked, build, outcome_of
from loadgen.sse import Reader
from loadgen.stream import Session, exchange, session
from loadgen.trace import Limits
from server.ask import Access, ask

QUICK = Limits(connect_s=5, first_token_s=10, stall_s=10, total_s=20)
SHORT = Limits(connect_s=5, first_token_s=1, stall_s=1, total_s=2)
REDIRECTS = ("301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent")
MIB = 1 << 20
PAGES_BYTES = 20 * MIB  # what a client may grow by beside what it has to keep
CAP_BYTES = 2 * MIB
STREAMS = 16
# A fresh process, so that the peak of its memory is that of the requests.
CLIENT = """
import asyncio, json, sys, uvloop
from loadgen.stream import exchange, session
from loadgen.trace import Limits

def peak():
    lines = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) * 1024  # getrusage() counts what the parent had before the fork

async def main(warm, url, streams, cap):
    limits = Limits(connect_s=5, first_token_s=60, stall_s=60, total_s=60, response_bytes=cap)
    async with session(limits) as http:
        asked = [(warm, 1), (url, streams)]
        for address, count in asked:
            before = peak()
            tries = (exchange(http, address, {}, b"{}", limits, "chat") for _ in range(count))
            traces = await asyncio.gather(*tries)
    print(json.dumps({"grew": peak() - before, "outcomes": [trace.outcome for trace in traces]}))

uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


@pytest.fixture(scope="module")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy()


# R14


@contextlib.asynccontextmanager
async def trap() -> AsyncIterator[tuple[str, list[int]]]:
    """An address that nobody may ever connect to, and how often somebody did."""
    seen: list[int] = []

    def caught(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(1)
        writer.close()

    async with await asyncio.start_server(caught, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


async def small(server: Scripted) -> Any:
    return await asyncio.to_thread(ask, server.url, "/health", timeout_s=5.0, access=Access("canary-key"))


@pytest.mark.parametrize("status", REDIRECTS)
async def test_r14_a_redirect_is_an_outcome(status: str) -> None:
    """Whatever kind it is, nobody goes there: neither a measured request nor a small question."""
    async with trap() as (address, caught):
        away = plain(status, b"", f"Location: {address}/v1/chat/completions")
        async with scripted(away) as server, session(QUICK, api_key="canary-key") as http:
            trace = await exchange(http, server.url, {}, b"{}", QUICK, "chat")
            answer = await small(server)
    assert trace.outcome is Outcome.REDIRECT
    assert "give the final address" in str(trace.error)
    assert answer.status == int(status[:3])
    assert (len(server.requests), caught) == (2, [])


async def test_r14_no_proxy_no_netrc_no_cookies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the environment and the home folder say of proxies and passwords is not followed; a cookie is not kept."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password canary\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    baked = Answer(well(1).steps, STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=canary; Path=/\r\n\r\n"))
    async with trap() as (address, caught), scripted(baked) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, address)
        async with session(QUICK) as http:
            for _ in range(2):
                assert (await exchange(http, server.url, {}, b"{}", QUICK, "chat")).outcome is None
        await small(server)
    assert caught == []
    heads = [request.head.lower() for request in server.requests]
    assert len(heads) == 3
    assert not [head for head in heads if "cookie" in head or "proxy" in head]
    assert ["authorization" in head for head in heads] == [False, False, True]
    assert "canary-key" in heads[2]
    assert "basic" not in heads[2]


# R15


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def raw(*parts: bytes) -> Answer:
    """Bytes as they are; nothing follows."""
    return Answer([(0, b"".join(parts))], head=b"", end="hang", chunked=False)


HEAD = b"HTTP/1.1 200 OK\r\n"
WORST = {
    "a head without end": (raw(HEAD, b"".join(b"X-%d: %s\r\n" % (i, b"y" * 4000) for i in range(2000))), "malformed"),
    "short lines without end": (raw(HEAD, b"a: b\r\n" * 500_000), "malformed"),
    "provisional heads in one read": (raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 50_000), "malformed"),
    "trailers without end": (raw(STREAM_HEAD, b"0\r\n", b"a: b\r\n" * 500_000), "malformed"),
    "extensions without end": (raw(STREAM_HEAD, b"5;a=" + b"x" * 100_000), "malformed"),
    "a size beyond all bounds": (raw(STREAM_HEAD, b"f" * 8000, b"\r\n", c("A")), "timeout_stall"),
    "a length below nothing": (raw(HEAD, b"Content-Length: -5\r\n\r\n", c("A")), "malformed"),
    "two lengths": (raw(HEAD, b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", c("A")), "malformed"),
    "chunks and a length": (raw(STREAM_HEAD[:-2], b"Content-Length: 5\r\n\r\n", chunk(c("A"))), "malformed"),
    "another protocol": (raw(HEAD.replace(b"200 OK", b"101 Switch"), b"Upgrade: h2c\r\n\r\n"), "http_status"),
    "HTTP/2": (raw(b"\0\0\0\4\0\0\0\0\0"), "malformed"),
    "no head": (raw(c("A")), "malformed"),
    "deep JSON": (raw(STREAM_HEAD, chunk(b"data: " + b"[" * 10_000 + b"\n\n"), LAST_CHUNK), "malformed"),
    "NUL bytes": (raw(STREAM_HEAD, chunk(b"\0" * 5000), LAST_CHUNK), "malformed"),
    "one line": (raw(STREAM_HEAD, chunk(b"data: " + b"x" * 100_000), LAST_CHUNK), "malformed"),
    "tokens below nothing": (raw(STREAM_HEAD, chunk(c("A") + u(5, -1) + DONE), LAST_CHUNK), "malformed"),
    "two ends, and more behind": (raw(STREAM_HEAD, chunk(c("A") + DONE + DONE + c("B")), LAST_CHUNK), "ok"),
    "an error that never ends": (
        raw(b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n", b"x" * MIB),
        "http_status",
    ),
}


async def row_of(http: Session, url: str, limits: Limits) -> dict[str, Any]:
    """One exchange, parsed and judged, as a worker does it."""
    trace = await exchange(http, url, {}, b"{}", limits, "chat")
    reader = Reader("chat")
    for stamp, data in zip(trace.stamps, trace.parts, strict=True):
        reader.feed(stamp, data)
    parsed = reader.finish()
    outcome, error = outcome_of(trace, parsed)
    return build(Asked(0, "p", "k", 8, True, planned_ns=0), trace, parsed, outcome, error, 0, {})


@pytest.mark.parametrize("name", WORST)
async def test_r15_the_worst_is_a_row(name: str) -> None:
    """An outcome of its own and words for it, soon; the next request is answered."""
    answer, outcome = WORST[name]
    async with scripted(lambda _r, number: well(1) if number else answer) as server, session(SHORT) as http:
        row = await row_of(http, server.url, SHORT)
        assert row["outcome"] == outcome, row["error"]
        assert (outcome == "ok") or (row["error"] and len(row["error"]) <= 200)
        async with session(SHORT) as afresh:
            assert (await row_of(afresh, server.url, SHORT))["outcome"] == "ok"


PIECES = st.sampled_from(
    [
        HEAD, STREAM_HEAD, STREAM_HEAD[:-2], b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 503 No\r\n",
        b"Content-Length: 20\r\n", b"Content-Encoding: br\r\n", b"Transfer-Encoding: chunked\r\n", b"Location: /x\r\n",
        LAST_CHUNK, chunk(c("A")), chunk(f("stop") + DONE), chunk(c("B"))[:-9], b"5\r\nhello", b"zz\r\n",
        event({"error": {"message": "no"}}), c("A"), DONE, b"\0", b"\xff\xfe", u(3, 4),
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(st.one_of(PIECES, st.binary(max_size=30)), max_size=10))
def test_r15_any_bytes_are_a_row(pieces: list[bytes]) -> None:
    """Heads, chunks, events and garbage in any order, then a closed connection: one row, nothing raised, one try."""

    async def tried() -> tuple[dict[str, Any], int]:
        told = Answer([(0, piece) for piece in pieces if piece], head=b"", end="fin", chunked=False)
        async with scripted(told) as server, session(SHORT) as http:
            return await row_of(http, server.url, SHORT), len(server.requests)

    row, requests = asyncio.run(tried())
    assert row["outcome"] in set(Outcome)
    assert requests == 1
    stamps = [row[name] for name in ("sent_ns", "headers_ns", "first_token_ns", "last_token_ns", "done_ns")]
    assert [stamp for stamp in stamps if stamp] == sorted(stamp for stamp in stamps if stamp)


async def grown(answer: Answer, streams: int, cap: int) -> tuple[int, set[str | None]]:
    """By how many bytes a fresh client grows with so many requests, and how they end."""
    async with scripted(lambda request, _number: well(1) if request.path == "/warm" else answer) as server:
        words = (sys.executable, "-c", CLIENT, f"{server.url}/warm", f"{server.url}/", str(streams), str(cap))
        paths = os.pathsep.join(filter(None, sys.path))
        client = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
        )
        told, _ = await client.communicate()
    found = json.loads(told)
    return found["grew"], set(found["outcomes"])


def endless(part: bytes) -> Answer:
    """More than any cap, as fast as it is taken."""
    return Answer([(0, part)] * (8 * CAP_BYTES // len(part)), end="hang")


@pytest.mark.parametrize("part", [b"x" * 65_536, c("x" * 4000)], ids=["one line", "events"])
async def test_r15_memory_stays_below_the_caps(part: bytes) -> None:
    """Streams that never end hold a worker's memory to their number times the cap of one."""
    grew, outcomes = await grown(endless(part), STREAMS, CAP_BYTES)
    assert outcomes == {"too_large"}
    assert STREAMS * CAP_BYTES / 2 < grew < STREAMS * CAP_BYTES + PAGES_BYTES


# R16


@functools.cache
def packed() -> bytes:
    return gzip.compress(b"\0" * (64 * MIB), 9) * 16


def encoded(name: str, chunked: bool) -> Answer:
    """A bomb: a megabyte that would be a gigabyte."""
    bomb = packed()
    head = (
        STREAM_HEAD if chunked else HEAD + b"Content-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    )
    head = head.replace(b"\r\n\r\n", b"\r\nContent-Encoding: " + name.encode() + b"\r\n\r\n")
    return Answer([(0, bomb)], head, "hang", chunked=chunked)


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "with a length"])
@pytest.mark.parametrize("name", ["gzip", "GZip", "x-gzip", "deflate", "br", "zstd", "aws-chunked"])
async def test_r16_what_is_encoded_is_not_opened(name: str, chunked: bool) -> None:
    """Whatever it is called: outcome `encoding` at its head."""
    async with scripted(encoded(name, chunked)) as server, session(SHORT) as http:
        row = await row_of(http, server.url, SHORT)
    assert (row["outcome"], row["output_tokens"]) == ("encoding", 0)
    assert "Accept-Encoding: identity" in server.requests[0].head


async def test_r16_a_bomb_costs_no_memory() -> None:
    """A gigabyte behind a megabyte: the client grows by less than 20 MB."""
    grew, outcomes = await grown(encoded("gzip", chunked=True), 4, 64 * MIB)
    assert outcomes == {"encoding"}
    assert grew < PAGES_BYTES


async def test_r16_a_small_question_does_not_open_it_either() -> None:
    """An answer that is compressed all the same is no JSON, and no error."""
    told = plain("200 OK", gzip.compress(b'{"a": 1}'), "Content-Encoding: gzip", "Content-Type: application/json")
    async with scripted(told) as server:
        answer = await small(server)
    assert "Accept-Encoding: identity" in server.requests[0].head
    assert (answer.status, answer.json()) == (200, None)
