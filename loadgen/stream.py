"""One HTTP exchange: a POST over a pooled connection, every read of its body stamped where the loop hands it over.

The only importer of aiohttp, which connects, secures, pools and parses heads; requests are written, and the bytes of a
streaming body taken, by a protocol of our own on its connections. A Trace says what happened on the wire. It must not
know of plans, rows, windows or the board, and never retries.
"""

import asyncio
import contextlib
import errno
import functools
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

import aiohttp
import yarl
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError

from loadgen.body import Body
from loadgen.framing import header_lines
from loadgen.head import JSON_TYPE, is_stream, refusal
from loadgen.record import Outcome
from loadgen.shard import secured
from loadgen.trace import Deadlines, Limits, Trace
from server.tls import CLOSED, VERIFIED, Tls, trouble, unfinished

KEEPALIVE_S = 4.0  # servers close idle connections after 5 s (uvicorn); one that is about to go is not used
HEADERS = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "loadgen"}
PROVISIONAL_MAX = 16  # real servers send one, if any
OWN_LACK = frozenset({errno.ENFILE, errno.EMFILE, errno.EADDRNOTAVAIL})  # ours, to be told apart from a refusal
Answer = tuple[Any, aiohttp.StreamReader]  # the head and the body as aiohttp parses them
# Whatever a server or a network can cause.
ENDED_BADLY = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError, EOFError)


class Wire(ResponseHandler):
    """One connection. Of a chunked 200 it keeps the body's bytes itself; aiohttp sees the head and an empty body."""

    # Beside the parent's many attributes these would be looked up by name at each read.
    __slots__ = (
        "_answered", "_body", "_deadlines", "_head_tail", "_limits", "_message", "_opened_ns", "_own", "_provisional",
        "_secured", "_taking", "_trace",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._taking: Callable[[bytes], None] = self._unasked
        self._trace: Trace | None = None
        self._body: Body | None = None
        self._deadlines: Deadlines | None = None
        self._opened_ns = 0
        self._secured: ssl.SSLObject | None = None
        self._message: Any = None
        self._own = False
        self._answered: asyncio.Future[Answer | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._opened_ns = monotonic_ns()
        self._secured = transport.get_extra_info("ssl_object")
        super().connection_made(transport)

    def begin(self, request: bytes, trace: Trace, limits: Limits, api: str) -> "asyncio.Future[Answer | None]":
        """Sends the request; what comes in from here on belongs to `trace`.

        Resolves with None at the end of a body that this connection keeps itself, with the answer where aiohttp has it.
        """
        self._trace, self._limits = trace, limits
        self._message, self._head_tail, self._own, self._provisional = None, b"", False, 0
        self._answered = self._loop.create_future()
        self._taking = self._head
        self.set_response_params(read_until_eof=True, auto_decompress=False)
        if self._opened_ns >= trace.began_ns:
            trace.connect_ns = self._opened_ns - trace.began_ns
        trace.sent_ns = monotonic_ns()
        if self.transport is None:
            raise aiohttp.ClientConnectionResetError("closed by the server before anything was sent")
        self.transport.write(request)
        self._deadlines = Deadlines(self._loop, trace, limits, api, self._give_up)
        return self._answered

    def leave(self, trace: Trace) -> None:
        """The exchange of `trace` is over; its connection may already serve another one."""
        if self._trace is trace:
            self._wake()
            if self._body is not None:
                trace.size = self._body.size
            self._trace, self._body, self._taking = None, None, self._unasked

    def data_received(self, data: bytes) -> None:
        self._taking(data)

    def feed_data(self, data: Any, _size: int = 0) -> None:
        self._message = data  # not into aiohttp's queue, which nobody reads

    def set_exception(self, exc: type[BaseException] | BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)  # type: ignore[arg-type]
        if self._answered is not None and not self._answered.done():
            # A server that wants a certificate of ours says so after the handshake, or closes; aiohttp hides which.
            told = [one for one in cause if isinstance(one, ssl.SSLError)]
            told += [ssl.SSLError(CLOSED)] if self._is_new() and unfinished(self._secured) else []
            self._answered.set_exception(told[0] if told else exc)

    def _is_new(self) -> bool:
        """Whether the exchange opened this connection and has seen nothing of an answer."""
        return not self._head_tail and self._trace is not None and self._trace.connect_ns is not None

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._trace is not None and self._own:
            self._close(Outcome.CONNECTION_LOST, f"connection lost in mid-stream: {exc or 'closed by the server'}")
        super().connection_lost(exc)

    def _unasked(self, _data: bytes) -> None:
        # A late or unasked answer: this connection must never serve another request.
        self.force_close()
        if self.transport is not None:
            self.transport.abort()

    def _head(self, data: bytes) -> None:
        """Hands the head to aiohttp up to its empty line, and decides who takes the body."""
        stamp, trace = monotonic_ns(), self._trace
        seen = len(self._head_tail)
        mark = (self._head_tail + data).find(b"\r\n\r\n")
        cut = len(data) if mark < 0 else mark + 4 - seen
        self._head_tail = (self._head_tail + data)[-3:]
        super().data_received(data[:cut])
        if self._message is None or trace is None:
            return
        message = self._message[0]
        if 100 <= message.code < 200 and message.code != 101:
            self._pass_over(data[cut:])
            return
        trace.headers_ns, trace.http_status = stamp, message.code
        self._own = mark >= 0 and is_stream(message)
        self._taking = super().data_received
        if self._own:
            self._body = Body(trace, self._limits, self._over)
            self._taking = self._body.take
        else:
            self._resolve(self._message)
        if data[cut:]:
            self._taking(data[cut:])

    def _pass_over(self, rest: bytes) -> None:
        """A provisional head says nothing; a server that sends them without end is given up."""
        self._message, self._head_tail = None, b""
        self._provisional += 1
        if self._provisional > PROVISIONAL_MAX:
            self._close(Outcome.MALFORMED, f"more than {PROVISIONAL_MAX} provisional responses (1xx) before the answer")
        elif rest:
            self._head(rest)

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
            self._give_up(self._trace)

    def _give_up(self, trace: Trace) -> None:
        if self._trace is trace:
            self._wake()
            self._unasked(b"")

    def _wake(self) -> None:
        if self._deadlines is not None:
            self._deadlines.stop()
        self._resolve(None)

    def _resolve(self, answer: Answer | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answer)


@dataclass(frozen=True)
class Session:
    """A worker's connections, and the heads of its requests by address."""

    connector: aiohttp.TCPConnector
    timeout: aiohttp.ClientTimeout
    headers: Mapping[str, str]
    _routes: dict[str, tuple[aiohttp.ClientRequest, bytes]] = field(default_factory=dict)

    def route(self, url: str) -> tuple[aiohttp.ClientRequest, bytes]:
        """What aiohttp has to know to connect to `url`, and the head of each request to it but for its last lines.

        Made once: building a request anew costs aiohttp more than a hundred tokens cost us. ValueError: no address.
        """
        if url not in self._routes:
            request = aiohttp.ClientRequest("POST", yarl.URL(url), headers=self.headers)
            own = {name: value for name, value in request.headers.items() if not name.startswith("Content-")}
            start = f"POST {request.url.raw_path_qs} HTTP/1.1\r\n".encode()
            self._routes[url] = request, start + header_lines(own) + header_lines({"Content-Type": JSON_TYPE})
        return self._routes[url]


@contextlib.asynccontextmanager
async def session(limits: Limits, tls: Tls = VERIFIED, api_key: str | None = None) -> AsyncIterator[Session]:
    """The worker's one session: no pool limit, no redirects, no cookies, no proxies, no retries, our own deadlines.

    ConfigError where a file of `tls` cannot be used here.
    """
    # ttl None: a name is resolved once, every connection of the Point goes to what it said then.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=None, ssl=secured(tls))
    connector._factory = functools.partial(Wire, loop=asyncio.get_running_loop())  # type: ignore[assignment]
    timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect_s, ceil_threshold=float("inf"))
    secret = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with connector:
        yield Session(connector, timeout, {**HEADERS, **secret})


async def exchange(
    session: Session,
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
    try:
        request, head = session.route(url)
        last = header_lines({**headers, "Content-Length": str(len(body))})
        connection = await session.connector.connect(request, [], session.timeout)
        await _converse(connection, head + last + b"\r\n" + body, trace, limits, api)
        trace.end(None)
    except asyncio.CancelledError:
        trace.end(Outcome.CUT)
        raise
    except ENDED_BADLY as error:
        trace.end(*_classify(error, trace))
    return trace


async def _converse(
    connection: aiohttp.connector.Connection, request: bytes, trace: Trace, limits: Limits, api: str
) -> None:
    wire = connection.protocol
    assert isinstance(wire, Wire)
    try:
        answer = await wire.begin(request, trace, limits, api)
        if answer is not None:
            if refused := await refusal(*answer, trace):
                trace.end(*refused)
            else:
                await _read(answer[1], trace, limits)
    except BaseException:
        wire.force_close()  # an answer to nobody may still come
        raise
    finally:
        wire.leave(trace)
        connection.release()  # closes what must not be used again: after an end that was none, too


async def _read(content: aiohttp.StreamReader, trace: Trace, limits: Limits) -> None:
    """A body that is not chunked: its length is told or its end is the connection's."""
    async for data in content.iter_any():
        trace.take(monotonic_ns(), data, limits)
        if trace.done_ns is not None:
            return


def _classify(error: BaseException, trace: Trace) -> tuple[Outcome, str]:
    """The outcome of what aiohttp raised, and its text (never its repr, which shows headers)."""
    text = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch | ssl.SSLError):
        return Outcome.TLS, trouble(getattr(error, "os_error", error)) or text
    if isinstance(error, HttpProcessingError):
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
