"""One HTTP exchange: a POST over a pooled connection, every read of its body stamped where the loop hands it over.

With `wire` the only importer of aiohttp, which connects, secures, pools and parses heads; requests are written, and
the bytes of a streaming body taken, by the protocol there. A Trace says what happened on the wire. It must not know of
plans, rows, windows or the board, and never retries.
"""

import asyncio
import contextlib
import errno
import functools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

import aiohttp
import yarl
from aiohttp.abc import AbstractResolver
from aiohttp.http import HttpProcessingError

from loadgen.framing import header_lines
from loadgen.head import JSON_TYPE, refusal
from loadgen.names import Handshake, Names
from loadgen.record import Outcome
from loadgen.shard import secured
from loadgen.trace import Limits, Trace
from loadgen.wire import Wire
from server.tls import VERIFIED, Tls, trouble

KEEPALIVE_S = 4.0  # servers close idle connections after 5 s (uvicorn); one that is about to go is not used
HEADERS = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "loadgen"}
NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
OWN_LACK = frozenset({errno.ENFILE, errno.EMFILE, errno.EADDRNOTAVAIL})  # ours, to be told apart from a refusal
# Whatever a server or a network can cause.
ENDED_BADLY = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError, EOFError)


@dataclass(frozen=True)
class Session:
    """A worker's connections, and the heads of its requests by address."""

    connector: aiohttp.TCPConnector
    timeout: aiohttp.ClientTimeout
    headers: Mapping[str, str]
    names: Names
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

    def opened(self, url: yarl.URL, wire: Any, trace: Trace) -> None:
        """Hold the name at the address of a connection that was opened for `trace`."""
        if isinstance(wire, Wire) and wire.address and wire.is_new(trace):
            key = str(url.host), int(url.port or 0)
            self.names.pin(*key, wire.address)
            trace.dns_ns = self.names.took_ns(*key)

    async def find(self, urls: Iterable[str]) -> None:
        """Ask for the names in these addresses; what fails now fails each request in its turn."""
        for url in map(yarl.URL, urls):
            with contextlib.suppress(OSError, ValueError):
                await self.names.find(str(url.host), int(url.port or 0))


class Pinned(AbstractResolver):
    """Names for aiohttp's connector. It asks for no address, and its own memory would go round several."""

    def __init__(self, names: Names) -> None:
        self._names = names

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[Any]:  # noqa: ARG002
        found = await self._names.find(host, port)
        return [
            {"hostname": host, "host": to[0], "port": port, "family": kind, "proto": proto, "flags": NUMERIC}
            for kind, _, proto, _, to in found
        ]

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def session(limits: Limits, tls: Tls = VERIFIED, api_key: str | None = None) -> AsyncIterator[Session]:
    """The worker's one session: no pool limit, no redirects, no cookies, no proxies, no retries, our own deadlines.

    ConfigError where a file of `tls` cannot be used here.
    """
    context = secured(tls)
    context.sslobject_class = Handshake
    names = Names(limits.connect_s)
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=KEEPALIVE_S, use_dns_cache=False, resolver=Pinned(names), ssl=context
    )
    connector._factory = functools.partial(Wire, loop=asyncio.get_running_loop())  # type: ignore[assignment]
    timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect_s, ceil_threshold=float("inf"))
    secret = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with connector:
        yield Session(connector, timeout, {**HEADERS, **secret}, names)


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
        session.opened(request.url, connection.protocol, trace)
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
