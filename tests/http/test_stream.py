"""One exchange against a server that does what it should not: outcomes, stamps, bounds, and what is left behind."""

import asyncio
import socket
import time
from dataclasses import replace

import aiohttp
import pytest
import uvloop
from aiohttp.client_proto import ResponseHandler
from scripted import DONE, LAST_CHUNK, STREAM_HEAD, Answer, Scripted, c, event, f, plain, scripted, well

from loadgen import row
from loadgen.framing import Chunked
from loadgen.record import Outcome
from loadgen.sse import Parsed, Reader
from loadgen.stream import Wire, exchange, session
from loadgen.trace import Limits, Trace

QUICK = Limits(connect_s=5, first_token_s=10, stall_s=10, total_s=20)
BODY = b'{"stream":true}'
SSE = "Content-Type: text/event-stream"
GZIP, ZSTD = "Content-Encoding: gzip", "Content-Encoding: zstd"
SLOW_DOWN = plain("429 Too Many", b'{"error":{"message":"slow down"}}', "Retry-After: 2")
HEAD = (
    b"POST /p?q=1 HTTP/1.1\r\nHost: h:1\r\nAccept: text/event-stream\r\nAccept-Encoding: identity\r\n"
    b"User-Agent: loadgen\r\nContent-Type: application/json\r\n"
)
COUNTED = plain("200 OK", b"x" * 999, SSE).head


@pytest.fixture(params=["uvloop", "asyncio"], scope="module")
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()


def parse(trace: Trace) -> Parsed:
    reader = Reader("chat", keep_text=True)
    for stamp, data in zip(trace.stamps, trace.parts, strict=True):
        reader.feed(stamp, data)
    return reader.finish()


async def ask(server: Scripted, limits: Limits = QUICK) -> tuple[Trace, Parsed, Outcome, str | None]:
    """One request; its trace, what it carried, and how it is judged."""
    async with session(limits) as http:
        trace = await exchange(http, server.url, {}, BODY, limits, "chat")
    parsed = parse(trace)
    return trace, parsed, *row.outcome_of(trace, parsed)


async def outcome_of(answer: Answer, limits: Limits = QUICK) -> tuple[Outcome, str | None, Trace, Parsed]:
    async with scripted(answer) as server:
        trace, parsed, outcome, error = await ask(server, limits)
    assert len(server.requests) == 1, "no request is retried"
    return outcome, error, trace, parsed


# The stream as it should be


async def test_a_whole_answer_has_every_stamp_in_order() -> None:
    """sent <= head <= tokens <= done, a duration of the connect, and no error."""
    written: list[int] = []

    def noted() -> bytes:
        written.append(time.monotonic_ns())
        return c("x")

    steps = [(20, noted), (40, noted), (60, noted), (60, f("length") + DONE)]
    outcome, error, trace, parsed = await outcome_of(Answer(steps))
    assert (outcome, error, parsed.text) == (Outcome.OK, None, "xxx")
    stamps = [trace.began_ns, trace.sent_ns, trace.headers_ns, *parsed.chunk_ns, trace.done_ns]
    assert stamps == sorted(stamps)  # type: ignore[type-var]
    assert trace.connect_ns is not None
    assert trace.sent_ns >= trace.began_ns + trace.connect_ns  # type: ignore[operator]
    assert all(read >= sent for read, sent in zip(parsed.chunk_ns, written, strict=True))
    # Each when it came, not all at the end: as far apart as they were written, however late the machine was.
    assert parsed.chunk_ns[2] - parsed.chunk_ns[0] >= 0.5 * (written[2] - written[0])


async def test_head_body_and_end_in_one_read() -> None:
    """Everything in one write is a whole answer all the same."""
    body = c("A") + f("stop") + DONE
    one = STREAM_HEAD + b"%x\r\n%s\r\n" % (len(body), body) + LAST_CHUNK
    outcome, _, trace, parsed = await outcome_of(Answer(head=one, chunked=False))
    assert (outcome, parsed.text, trace.connect_ns is None) == (Outcome.OK, "A", False)


async def test_every_byte_a_read_of_its_own() -> None:
    """Head, chunk sizes, events and the end may be cut anywhere."""
    body = c("é😀") + f("stop") + DONE
    raw = STREAM_HEAD + b"%x;ext=1\r\n%s\r\n" % (len(body), body) + b"0\r\nTrailer: x\r\n\r\n"
    steps = [(0.0, raw[i : i + 1]) for i in range(len(raw))]
    outcome, _, _, parsed = await outcome_of(Answer(steps, head=b"", chunked=False))
    assert (outcome, parsed.text) == (Outcome.OK, "é😀")


async def test_several_chunks_in_one_read() -> None:
    """Chunks of one read give their bytes under one stamp."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in (c("A"), c("B"), f("stop") + DONE))
    outcome, _, trace, parsed = await outcome_of(Answer([(10, chunks + LAST_CHUNK)], end="hang", chunked=False))
    assert (outcome, parsed.text, len(set(parsed.chunk_ns)), len(trace.parts)) == (Outcome.OK, "AB", 1, 1)


async def test_a_provisional_head_is_passed_over() -> None:
    """100 Continue before the real head changes nothing."""
    outcome, _, trace, _ = await outcome_of(replace(well(10), head=b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM_HEAD))
    assert (outcome, trace.http_status) == (Outcome.OK, 200)


@pytest.mark.parametrize("length", [True, False])
async def test_a_stream_that_is_not_chunked(length: bool) -> None:
    """A told length, or the connection's end, ends a body as well."""
    body = c("A") + f("stop") + DONE
    told = f"Content-Length: {len(body)}" if length else "Connection: close"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{told}\r\n\r\n".encode()
    answer = Answer([(10, c("A")), (20, f("stop") + DONE)], head, "clean" if length else "fin", chunked=False)
    outcome, _, trace, parsed = await outcome_of(answer)
    assert (outcome, parsed.text, trace.http_status) == (Outcome.OK, "A", 200)


async def test_connections_go_back_to_the_pool() -> None:
    """Streams that ended well leave their connections to the next requests, which have no connect time."""
    async with scripted(well(1)) as server, session(QUICK) as http:
        for _ in range(4):
            traces = await asyncio.gather(*(exchange(http, server.url, {}, BODY, QUICK, "chat") for _ in range(32)))
        assert server.connections == 32
        assert server.peak == 32
        assert all(trace.connect_ns is None and trace.outcome is None for trace in traces)


async def test_a_pool_of_more_than_a_hundred() -> None:
    """No limit of the library's own: 150 requests are 150 at the server."""
    async with scripted(well(500)) as server, session(QUICK) as http:
        await asyncio.gather(*(exchange(http, server.url, {}, BODY, QUICK, "chat") for _ in range(150)))
        assert server.peak == 150


async def test_the_request_says_what_it_must() -> None:
    """Identity, no cookies, JSON, and the key where there is one."""
    answer = replace(well(1), head=STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\n\r\n"))
    async with scripted(answer) as server, session(QUICK, api_key="sk-canary") as http:
        for _ in range(2):
            await exchange(http, server.url, {"X-Request-Id": "p.0.code"}, BODY, QUICK, "chat")
    head = server.requests[1].head
    assert "Accept-Encoding: identity" in head
    assert "Content-Type: application/json" in head
    assert "X-Request-Id: p.0.code" in head
    assert "Authorization: Bearer sk-canary" in head
    assert "Cookie" not in head
    assert server.requests[1].body == BODY


# Ends that are none


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_c06_a_cut_stream_keeps_what_came(end: str) -> None:
    """A connection that breaks in the body is connection_lost, with the tokens that came."""
    outcome, error, trace, parsed = await outcome_of(Answer([(10, c("A")), (20, c("B"))], end=end))
    assert (outcome, len(parsed.chunk_ns)) == (Outcome.CONNECTION_LOST, 2)
    assert error
    assert trace.done_ns is not None


async def test_c05_a_clean_end_without_a_finish_is_truncated() -> None:
    """The protocol's end is not the answer's."""
    assert (await outcome_of(Answer([(10, c("A"))])))[0] is Outcome.TRUNCATED
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    assert (await outcome_of(Answer([(10, c("A"))], head, "fin", chunked=False)))[0] is Outcome.TRUNCATED


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_a_connection_that_breaks_behind_the_end_mark_harms_nothing(end: str) -> None:
    """The answer was whole."""
    assert (await outcome_of(Answer([(10, c("A") + DONE)], end=end)))[0] is Outcome.OK


async def test_a_server_that_closes_without_a_word() -> None:
    """No head at all is connection_lost, and is not tried again."""
    outcome, error, trace, _ = await outcome_of(Answer(head=b"", end="fin"))
    assert (outcome, trace.http_status, trace.headers_ns) == (Outcome.CONNECTION_LOST, None, None)
    assert error


@pytest.mark.parametrize("line", [b"zz\r\n", b"-5\r\nhello\r\n", b"3\r\nhello\r\n", b"\r\n", b"f" * 9000])
async def test_broken_chunked_framing_is_malformed(line: bytes) -> None:
    """Framing that is none ends the exchange at once."""
    outcome, error, _, parsed = await outcome_of(
        Answer([(5, b"%x\r\n%s\r\n" % (len(c("A")), c("A"))), (10, line)], end="hang", chunked=False)
    )
    assert (outcome, parsed.text) == (Outcome.MALFORMED, "A")
    assert error


@pytest.mark.parametrize(
    "head",
    [b"\xff\xfe\x00 garbage canary\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000],
)
async def test_a_head_that_is_none_is_malformed(head: bytes) -> None:
    """Not HTTP, or a head without bounds: malformed, and its bytes are not repeated."""
    outcome, error, _, _ = await outcome_of(Answer(head=head, end="hang"))
    assert outcome is Outcome.MALFORMED
    assert "canary" not in str(error)
    assert "yyyy" not in str(error)


async def test_bytes_behind_the_end_cost_the_connection() -> None:
    """A connection with bytes behind its response serves no other request."""
    async with scripted(replace(well(1), behind=b"HTTP/1.1 200 OK\r\n\r\n")) as server, session(QUICK) as http:
        first = await exchange(http, server.url, {}, BODY, QUICK, "chat")
        second = await exchange(http, server.url, {}, BODY, QUICK, "chat")
    assert (first.outcome, second.outcome, server.connections) == (None, None, 2)


async def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    """A pooled connection that is gone costs no request."""
    async with scripted(well(1)) as server, session(QUICK) as http:
        await exchange(http, server.url, {}, BODY, QUICK, "chat")
        server.writers[0].close()
        await asyncio.sleep(0.1)
        again = await exchange(http, server.url, {}, BODY, QUICK, "chat")
    assert (again.outcome, server.connections, len(server.requests)) == (None, 2, 2)


# Answers that are no stream


@pytest.mark.parametrize(
    ("answer", "outcome", "error"),
    [
        (SLOW_DOWN, "http_status", "HTTP 429: slow down"),
        (plain("503 Gone", b"<h1>canary</h1>", "Content-Type: text/html"), "http_status", "HTTP 503"),
        (plain("500 No", b""), "http_status", "HTTP 500"),
        (plain("500 No", b"\xff\xfe"), "http_status", "HTTP 500"),
        (plain("400 Bad", b'{"object":"error","message":"bad","code":400}'), "http_status", "HTTP 400: bad"),
        (plain("422 Bad", b'{"detail":"no"}'), "http_status", "HTTP 422: no"),
        (plain("204 Empty", b""), "http_status", "HTTP 204"),
        (plain("307 There", b"", "Location: http://127.0.0.1:1/"), "redirect", None),
        (plain("302 There", b"", "Location: /other"), "redirect", None),
        (plain("200 OK", b"\x1f\x8b\x08" + b"x" * 50, SSE, GZIP), "encoding", None),
        (plain("200 OK", b"xx", SSE, ZSTD), "encoding", None),
        (plain("200 OK", b'{"choices":[]}', "Content-Type: application/json"), "malformed", None),
        (plain("200 OK", b"<h1>hello</h1>", "Content-Type: text/html"), "malformed", None),
        (plain("200 OK", b"", "Content-Type: text/event-stream"), "truncated", None),
        (Answer([(5, DONE)]), "empty", None),
        (Answer([(5, event({"error": {"message": "out of memory"}}) + DONE)]), "error_event", "out of memory"),
        (Answer([(5, c("A")), (6, event({"error": {"message": "died"}}))], end="rst"), "error_event", "died"),
    ],
)  # fmt: skip
async def test_each_answer_has_its_outcome(answer: Answer, outcome: str, error: str | None) -> None:
    """Status, redirect, encoding, JSON, nothing: each its own outcome, and never a body in the message."""
    got, said, trace, _ = await outcome_of(answer)
    assert got == outcome
    assert said
    assert error is None or said == error
    assert "canary" not in said
    assert trace.http_status is not None


async def test_r15_an_endless_error_page_is_read_to_its_bound() -> None:
    """4 KiB of an error are enough, whatever follows."""
    head = b"HTTP/1.1 500 No\r\nContent-Length: 9999999\r\n\r\n"
    outcome, _, _, _ = await outcome_of(Answer([(0, b"x" * 100_000)], head, "hang", chunked=False))
    assert outcome is Outcome.HTTP_STATUS


async def test_r16_a_compressed_bomb_is_not_opened() -> None:
    """A compressed chunked stream is `encoding`, at its head."""
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    outcome, _, trace, _ = await outcome_of(Answer([(0, b"\x1f\x8b" * 1000)], head, "hang"))
    assert outcome is Outcome.ENCODING
    assert trace.size < 10_000


async def test_r15_a_response_beyond_its_cap() -> None:
    """The caps end the exchange, and say so."""
    limits = replace(QUICK, response_bytes=10_000)
    outcome, error, trace, _ = await outcome_of(Answer([(0, c("x" * 1000))] * 20, end="hang"), limits)
    assert (outcome, "10000" in str(error)) == (Outcome.TOO_LARGE, True)
    assert sum(map(len, trace.parts)) <= 10_000


# Deadlines


@pytest.mark.parametrize(
    ("answer", "limits", "outcome"),
    [
        (Answer(head=b"", end="hang"), Limits(first_token_s=0.2), "timeout_first_token"),
        (Answer(end="hang"), Limits(first_token_s=0.2), "timeout_first_token"),
        (Answer([(i * 40, b": ping\n\n") for i in range(100)]), Limits(first_token_s=0.3), "timeout_first_token"),
        (Answer([(5, c("A"))], end="hang"), Limits(stall_s=0.2), "timeout_stall"),
        (Answer([(5, c("A")), *((i * 40, b": ping\n\n") for i in range(100))]), Limits(stall_s=0.3), "timeout_stall"),
        (Answer([(i * 40, c("A")) for i in range(100)]), Limits(total_s=0.3), "timeout_total"),
        (Answer([(5, c("A"))], COUNTED, "hang", False), Limits(stall_s=0.2), "timeout_stall"),
        (Answer([(5, c("A") + DONE)], end="hang"), Limits(stall_s=0.2), "ok"),
    ],
)  # fmt: skip
async def test_r04_each_deadline_has_its_outcome(answer: Answer, limits: Limits, outcome: str) -> None:
    """First token, stall and total end an exchange, with drips too; what was whole stays whole."""
    began = time.monotonic()
    got, error, trace, _ = await outcome_of(answer, limits)
    assert got == outcome
    assert outcome == "ok" or "s" in str(error)
    assert trace.done_ns is not None
    assert time.monotonic() - began < 10


async def test_a_slow_stream_within_its_deadlines_is_left_alone() -> None:
    """Output that keeps coming is no stall, however often the watch looks."""
    # A pause of the whole test for as long would be one: so the limit is one that machines do not reach.
    outcome, _, _, parsed = await outcome_of(well(*range(0, 2100, 60)), Limits(stall_s=1, first_token_s=1))
    assert (outcome, len(parsed.chunk_ns)) == (Outcome.OK, 35)


async def test_r04_a_server_that_never_reads_ends_by_the_first_token_deadline() -> None:
    """A request that cannot even be written whole is bounded too."""

    async def never(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(3600)

    server = await asyncio.start_server(never, "127.0.0.1", 0, limit=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    limits = Limits(first_token_s=0.3)
    async with session(limits) as http:
        trace = await exchange(http, url, {}, b"x" * 30_000_000, limits, "chat")
    server.close()
    assert trace.outcome is Outcome.TIMEOUT_FIRST_TOKEN


# Connecting


async def test_nobody_listens() -> None:
    """A refused connect is `connect`, with a reason and without a sent stamp."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    async with session(QUICK) as http:
        trace = await exchange(http, url, {}, BODY, QUICK, "chat")
    assert (trace.outcome, trace.sent_ns, bool(trace.error)) == (Outcome.CONNECT, None, True)


async def test_a_name_that_does_not_exist() -> None:
    """A name without an address is `connect`."""
    async with session(QUICK) as http:
        trace = await exchange(http, "http://nowhere.invalid:80", {}, BODY, QUICK, "chat")
    assert trace.outcome in (Outcome.CONNECT, Outcome.TIMEOUT_CONNECT)


async def test_a_connect_that_is_not_answered() -> None:
    """A full backlog is `timeout_connect` when its time is over."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        held = [socket.socket() for _ in range(4)]
        for one in held:
            one.setblocking(False)
            one.connect_ex(address)
        limits = Limits(connect_s=0.3)
        async with session(limits) as http:
            trace = await exchange(http, f"http://127.0.0.1:{address[1]}", {}, BODY, limits, "chat")
        for one in held:
            one.close()
    assert (trace.outcome, bool(trace.error)) == (Outcome.TIMEOUT_CONNECT, True)


# Cancellation


@pytest.mark.parametrize(
    ("answer", "tokens"), [(Answer(head=b"", end="hang"), 0), (Answer([(1, c("A"))], end="hang"), 1)]
)
async def test_a_cut_exchange_keeps_its_trace(answer: Answer, tokens: int) -> None:
    """Cancelled in mid-stream: the cancellation passes, the trace holds what came, the connection is closed."""
    async with scripted(answer) as server, session(QUICK) as http:
        trace = Trace()
        running = asyncio.create_task(exchange(http, server.url, {}, BODY, QUICK, "chat", trace))
        while len(trace.parts) < tokens or not server.requests:
            await asyncio.sleep(0.005)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (trace.outcome, len(parse(trace).chunk_ns)) == (Outcome.CUT, tokens)
        assert trace.done_ns is not None
        assert not http.connector._acquired  # type: ignore[union-attr]


async def test_a_cut_while_connecting() -> None:
    """Cancelled before anything was sent: cut, without a sent stamp."""
    async with scripted(well(1)) as server, session(QUICK) as http:
        trace = Trace()
        running = asyncio.create_task(exchange(http, server.url, {}, BODY, QUICK, "chat", trace))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (trace.outcome, trace.sent_ns) == (Outcome.CUT, None)


async def test_stale_timers_and_owners_touch_no_later_exchange() -> None:
    """A short exchange's deadlines do not reach the next one on its connection."""
    short = Limits(first_token_s=0.6, stall_s=0.6, total_s=0.6)
    async with scripted(lambda _r, n: well(1) if n == 0 else well(900)) as server, session(QUICK) as http:
        first = await exchange(http, server.url, {}, BODY, short, "chat")
        second = await exchange(http, server.url, {}, BODY, QUICK, "chat")
    assert (first.outcome, second.outcome, server.connections) == (None, None, 1)


# Framing, and the library's private names


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunked_framing_in_any_cuts(size: int) -> None:
    """The body comes out the same however the bytes are cut."""
    parts = [c("A"), b"\r\n", b"0\r\n\r\n", b"x" * 300]
    raw = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts) + b"000;x=y\r\nA: b\r\n\r\n"
    chunked = Chunked()
    body = b"".join(chunked.feed(raw[i : i + size]) for i in range(0, len(raw), size))
    assert (body, chunked.ended, chunked.extra) == (b"".join(parts), True, False)


async def test_the_private_names_that_the_body_path_stands_on() -> None:
    """The pinned aiohttp still builds its connections by `_factory` and hands heads on by `feed_data`."""
    assert aiohttp.__version__ == "3.14.5"
    async with session(QUICK) as http:
        connector = http.connector
        assert isinstance(connector, aiohttp.TCPConnector)
        wire = connector._factory()
        assert isinstance(wire, Wire)
        assert isinstance(wire, ResponseHandler)
        assert http.timeout.total is None
        assert connector.limit == 0
        request, head = http.route("http://h:1/p?q=1")
        assert (request.url.host, head) == ("h", HEAD)
    for name in (
        "data_received",
        "feed_data",
        "connection_lost",
        "connection_made",
        "force_close",
        "set_exception",
        "set_response_params",
    ):
        assert callable(getattr(ResponseHandler, name))
