"""One connection: requests are written, and the bytes of a streaming body taken, beside aiohttp's own protocol.

It knows the private names of aiohttp's protocol (see CONTRIBUTING). It must not know of plans, rows or the board.
"""

import asyncio
import ssl
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from loadgen.body import Body
from loadgen.head import is_stream
from loadgen.names import Handshake
from loadgen.record import Outcome
from loadgen.trace import Deadlines, Limits, Trace
from server.tls import CLOSED, unfinished

PROVISIONAL_MAX = 16  # real servers send one, if any
Answer = tuple[Any, aiohttp.StreamReader]  # the head and the body as aiohttp parses them


class Wire(ResponseHandler):
    """One connection. Of a chunked 200 it keeps the body's bytes itself; aiohttp sees the head and an empty body."""

    # Beside the parent's many attributes these would be looked up by name at each read.
    __slots__ = (
        "_answered", "_body", "_deadlines", "_head_tail", "_limits", "_message", "_opened_ns", "_own", "_provisional",
        "_secured", "_taking", "_tls_ns", "_trace", "address",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._taking: Callable[[bytes], None] = self._unasked
        self._trace: Trace | None = None
        self._body: Body | None = None
        self._deadlines: Deadlines | None = None
        self._opened_ns = 0
        self._secured: ssl.SSLObject | None = None
        self._tls_ns: int | None = None
        self.address: str | None = None
        self._message: Any = None
        self._own = False
        self._answered: asyncio.Future[Answer | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._opened_ns = monotonic_ns()
        self._secured = transport.get_extra_info("ssl_object")
        if isinstance(self._secured, Handshake):
            self._tls_ns = self._opened_ns - self._secured.begun_ns
        self.address = (transport.get_extra_info("peername") or (None,))[0]
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
        if self.is_new(trace):
            trace.connect_ns, trace.tls_ns = self._opened_ns - trace.began_ns, self._tls_ns
        trace.address = self.address
        trace.sent_ns = monotonic_ns()
        if self.transport is None:
            raise aiohttp.ClientConnectionResetError("closed by the server before anything was sent")
        self.transport.write(request)
        self._deadlines = Deadlines(self._loop, trace, limits, api, self._give_up)
        return self._answered

    def is_new(self, trace: Trace) -> bool:
        """Whether the connection was opened for this exchange."""
        return self._opened_ns >= trace.began_ns

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
            told += [ssl.SSLError(CLOSED)] if self._is_unanswered() and unfinished(self._secured) else []
            self._answered.set_exception(told[0] if told else exc)

    def _is_unanswered(self) -> bool:
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
