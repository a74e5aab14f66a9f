"""One HTTP exchange: a POST over a pooled connection, every read of its body stamped where the loop hands it over.

The only importer of aiohttp, which connects, secures, sends and parses heads; the bytes of a streaming body bypass it.
A Trace says what happened on the wire. It must not know of plans, rows, windows or the board, and never retries.
"""

import asyncio
import errno
import functools
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler

from loadgen.body import Body
from loadgen.dialects import error_message, load
from loadgen.record import Outcome
from loadgen.trace import Deadlines, Limits, Trace

ERROR_BODY_BYTES = 4096  # enough for a server's message
ERROR_BODY_S_MAX = 5.0  # a server that is failing may not finish its error page either
KEEPALIVE_S = 4.0  # servers close idle connections after 5 s (uvicorn); one that is about to go is not used
HEADERS = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "loadgen"}
JSON_TYPE = "application/json"  # a stream never has it; an error, or streaming that is off, does
OWN_LACK = frozenset({errno.ENFILE, errno.EMFILE, errno.EADDRNOTAVAIL})  # ours, to be told apart from a refusal
# Whatever a server or a network can cause.
ENDED_BADLY = (aiohttp.ClientError, OSError, TimeoutError, ValueError, EOFError)


class Wire(ResponseHandler):
    """One connection. Of a chunked 200 it keeps the body's bytes itself; aiohttp sees the head and an empty body."""

    # Beside the parent's many attributes these would be looked up by name at each read.
    __slots__ = (
        "_body", "_deadlines", "_ended", "_head_tail", "_limits", "_message", "_opened_ns", "_own", "_taking", "_trace",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._taking = self._unasked
        self._trace: Trace | None = None
        self._body: Body | None = None
        self._deadlines: Deadlines | None = None
        self._opened_ns = 0
        self._message: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._opened_ns = monotonic_ns()
        super().connection_made(transport)

    def begin(self, trace: Trace, limits: Limits, api: str) -> None:
        """The request's first byte goes out now; what comes in from here on belongs to `trace`."""
        if self._deadlines is not None:
            self._deadlines.stop()  # the exchange before has its whole response, but may not have run on yet
        self._trace, self._limits = trace, limits
        self._message, self._head_tail, self._own = None, b"", False
        self._ended = self._loop.create_future()
        self._taking = self._head
        if self._opened_ns >= trace.began_ns:
            trace.connect_ns = self._opened_ns - trace.began_ns
        trace.sent_ns = monotonic_ns()
        self._deadlines = Deadlines(self._loop, trace, limits, api, self._expire)

    def leave(self, trace: Trace) -> None:
        """The exchange of `trace` is over; its connection may already serve another one."""
        if self._trace is trace:
            self._wake()
            if self._body is not None:
                trace.size = self._body.size
            self._trace, self._body, self._taking = None, None, self._unasked

    def ended(self) -> "asyncio.Future[None] | None":
        """Resolves at the end of the body, where this connection keeps it itself."""
        return self._ended if self._own else None

    def data_received(self, data: bytes) -> None:
        self._taking(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        self._message = data[0]
        super().feed_data(data, size)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._trace is not None and self._own:
            self._close(Outcome.CONNECTION_LOST, f"connection lost in mid-stream: {exc or 'closed by the server'}")
        super().connection_lost(exc)

    def _unasked(self, data: bytes) -> None:
        # A late or unasked answer: this connection must never serve another request.
        self.force_close()
        if data and self.transport is not None:
            self.transport.abort()

    def _head(self, data: bytes) -> None:
        """Hands the head to aiohttp up to its empty line, and decides who takes the body."""
        stamp, trace = monotonic_ns(), self._trace
        seen = len(self._head_tail)
        mark = (self._head_tail + data).find(b"\r\n\r\n")
        cut = len(data) if mark < 0 else mark + 4 - seen
        self._head_tail = (self._head_tail + data)[-3:]
        super().data_received(data[:cut])
        message = self._message
        if message is None or trace is None:
            return
        if 100 <= message.code < 200 and message.code != 101:
            self._message, self._head_tail = None, b""
            if data[cut:]:
                self._head(data[cut:])
            return
        trace.headers_ns, trace.http_status = stamp, message.code
        self._own = mark >= 0 and _is_stream(message)
        self._taking = super().data_received
        if self._own:
            self._body = Body(trace, self._limits, self._over)
            self._taking = self._body.take
        if data[cut:]:
            self._taking(data[cut:])

    def _over(self, outcome: Outcome | None, error: str | None) -> None:
        """The body is whole, or is given up."""
        trace, body = self._trace, self._body
        if outcome is not None or trace is None or body is None:
            self._close(outcome, error)
            return
        trace.end(None)
        if body.extra:
            self.force_close()
        self.leave(trace)
        super().data_received(b"0\r\n\r\n")

    def _close(self, outcome: Outcome | None, error: str | None) -> None:
        if self._trace is not None:
            self._trace.end(outcome, error)
        self._give_up()

    def _expire(self, trace: Trace) -> None:
        if self._trace is trace:
            self._give_up()

    def _give_up(self) -> None:
        self.force_close()
        self._wake()
        if self.transport is not None:
            self.transport.abort()

    def _wake(self) -> None:
        if self._deadlines is not None:
            self._deadlines.stop()
        if not self._ended.done():
            self._ended.set_result(None)


def _is_stream(message: Any) -> bool:
    """Whether a response's body is worth keeping read by read: all else is small, and aiohttp's."""
    kind = message.headers.get("Content-Type", "")
    return message.code == 200 and message.chunked and not message.compression and not kind.startswith(JSON_TYPE)


class Ask(aiohttp.BytesPayload):
    """A request's body that stamps the moment at which it, and the head before it, go to the socket."""

    def __init__(self, body: bytes, trace: Trace, limits: Limits, api: str) -> None:
        super().__init__(body, content_type=JSON_TYPE)
        self._asking = (trace, limits, api)
        self.wire: Wire | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.wire = writer.protocol  # type: ignore[attr-defined]
        assert self.wire is not None
        self.wire.begin(*self._asking)
        await super().write_with_length(writer, content_length)


@asynccontextmanager
async def session(
    limits: Limits, ca_file: str | None = None, api_key: str | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """The worker's one session: no pool limit, no redirects' cookies, no proxies, no retries, our own deadlines."""
    tls = ssl.create_default_context(cafile=ca_file) if ca_file else True
    # ttl None: a name is resolved once, every connection of the Point goes to what it said then.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=None, ssl=tls)
    connector._factory = functools.partial(Wire, loop=asyncio.get_running_loop())  # type: ignore[assignment]
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect_s, ceil_threshold=float("inf")),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        headers={**HEADERS, **({"Authorization": f"Bearer {api_key}"} if api_key else {})},
    ) as one:
        yield one


async def exchange(
    session: aiohttp.ClientSession,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    limits: Limits,
    api: str,
    trace: Trace | None = None,
) -> Trace:
    """Sends one request and fills `trace` with what came; whatever the server does is an outcome, nothing is raised.

    Only a cancellation passes; `trace` then holds what had come, as `cut` where that was not all.
    """
    trace = trace if trace is not None else Trace()
    trace.began_ns = monotonic_ns()
    ask = Ask(body, trace, limits, api)
    try:
        await _converse(session, url, headers, ask, trace, limits)
        trace.end(None)
    except asyncio.CancelledError:
        trace.end(Outcome.CUT)
        raise
    except ENDED_BADLY as error:
        trace.end(*_classify(error, trace))
    finally:
        if ask.wire is not None:
            ask.wire.leave(trace)
    return trace


async def _converse(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], ask: Ask, trace: Trace, limits: Limits
) -> None:
    response = await session.post(url, data=ask, headers=headers, allow_redirects=False)
    try:
        assert ask.wire is not None
        ended = ask.wire.ended()
        if refusal := await _refusal(response):
            trace.end(*refusal)
        elif ended is not None:
            await ended
        else:
            await _read(response, trace, limits)
    finally:
        response.close()  # gives nothing back that is whole: that went to the pool at its end


async def _read(response: aiohttp.ClientResponse, trace: Trace, limits: Limits) -> None:
    """A body that is not chunked: its length is told or its end is the connection's."""
    async for data in response.content.iter_any():
        trace.take(monotonic_ns(), data, limits)
        if trace.done_ns is not None:
            return


async def _refusal(response: aiohttp.ClientResponse) -> tuple[Outcome, str] | None:
    """Why this head means that no stream is to be read, or None."""
    status = response.status
    if 300 <= status < 400:
        return Outcome.REDIRECT, f"HTTP {status}: redirects are not followed; give the final address"
    if status != 200:
        return Outcome.HTTP_STATUS, await _error_body(response) or f"HTTP {status}"
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        return Outcome.ENCODING, "the body is compressed although identity was asked for"
    if response.content_type == JSON_TYPE:
        told = await _error_body(response)
        return Outcome.MALFORMED, told or "one JSON body instead of an event stream: streaming is off at the server"
    return None


async def _error_body(response: aiohttp.ClientResponse) -> str | None:
    """The server's own message, where the body's first 4 KiB are JSON that holds one."""
    body = b""
    try:
        async with asyncio.timeout(ERROR_BODY_S_MAX):
            while len(body) < ERROR_BODY_BYTES and (more := await response.content.read(ERROR_BODY_BYTES - len(body))):
                body += more
    except ENDED_BADLY:
        pass  # the status alone says enough
    told = load(body) or {}
    message = error_message(told) or error_message({"error": told.get("message") or told.get("detail")})
    return f"HTTP {response.status}: {message}" if message else None


def _classify(error: BaseException, trace: Trace) -> tuple[Outcome, str]:
    """The outcome of what aiohttp raised, and its text (never its repr, which shows headers)."""
    text = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch | ssl.SSLError):
        return Outcome.TLS, text
    if isinstance(error, aiohttp.ClientResponseError):
        # Its own text repeats the bytes that it could not read.
        return Outcome.MALFORMED, "the response's head is not HTTP, or has a line of more than 8190 bytes"
    if trace.sent_ns is not None:
        return Outcome.CONNECTION_LOST, text
    if isinstance(error, TimeoutError):
        return Outcome.TIMEOUT_CONNECT, text
    if isinstance(error, OSError) and error.errno in OWN_LACK:
        return Outcome.CONNECT, f"this machine, not the server: {text}; raise ulimit -n or use fewer streams a worker"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        text = f"{os.strerror(error.errno)}: {text}"  # aiohttp's words do not tell a refusal from a lost host
    return Outcome.CONNECT, text
