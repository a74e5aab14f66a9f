"""HTTP/1.1 on one socket: requests out of bytes, plain answers and chunked streams into bytes.

It must not know of routes.
"""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

HEAD_BYTES_MAX = 64 * 1024  # As uvicorn's parser: a longer head is an attack or a mistake.
BODY_BYTES_MAX = 64 * 1024 * 1024  # Far above any prompt.
UNSENT_BYTES_MAX = 64 * 1024 * 1024  # A reader this far behind is cut off instead of filling the memory.
KEEP_ALIVE_S = 5.0  # uvicorn's default: an idle connection is closed after it.
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; header names in lower case. `arrived_ns` is the monotonic stamp of its last byte."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    arrived_ns: int


class BadRequestError(Exception):
    """Bytes that are no request this server takes; carries the status to answer with."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


Answerer = Callable[["Connection", Request], None]


class Connection(asyncio.Protocol):
    """One client's socket. One request at a time; the next is read when the answer to the last is complete."""

    def __init__(self, answer: Answerer, open_connections: set["Connection"]) -> None:
        self._answer = answer
        self._open = open_connections
        self._unread = b""
        self._head: tuple[str, str, dict[str, str], int] | None = None
        self._keep = True
        self.busy = False
        self.idle_since_s = 0.0
        self.on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._fd = transport.get_extra_info("socket").fileno()
        self.idle_since_s = time.monotonic()
        self._open.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._open.discard(self)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if not self.busy:
            self._next()

    def _next(self) -> None:
        try:
            request = self._parse()
        except BadRequestError as error:
            self._keep = False
            self.busy = True
            self.respond(error.status, str(error).encode(), "text/plain; charset=utf-8")
            return
        if request is not None:
            self.busy = True
            self._answer(self, request)

    def _parse(self) -> Request | None:
        if self._head is None:
            end = self._unread.find(b"\r\n\r\n")
            if end < 0:
                if len(self._unread) > HEAD_BYTES_MAX:
                    raise BadRequestError(431, f"The request's head is longer than {HEAD_BYTES_MAX} bytes.")
                return None
            self._head = parse_head(self._unread[:end])
            self._unread = self._unread[end + 4 :]
            if self._head[2].get("expect", "").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, path, headers, length = self._head
        if len(self._unread) < length:
            return None
        body, self._unread = self._unread[:length], self._unread[length:]
        self._head = None
        self._keep = headers.get("connection", "").lower() != "close"
        return Request(method, path, headers, body, time.monotonic_ns())

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a whole answer; the connection is then ready for the next request."""
        self.transport.write(head(status, content_type, f"content-length: {len(body)}", self._keep) + body)
        self.finish()

    def begin_stream(self) -> None:
        """Send the head of an event stream in chunked framing."""
        self.transport.write(head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked", self._keep))

    def send(self, data: bytes) -> None:
        """Send bytes now, not at the end of the loop's turn: a stamp in them must stay true."""
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 and not self.transport.is_closing():
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # The client is gone; connection_lost follows.
            if sent == len(data):
                return
            data = data[sent:]
        elif unsent > UNSENT_BYTES_MAX:
            self.transport.abort()
            return
        self.transport.write(data)

    def finish(self) -> None:
        """The answer is complete: take the next request, or close where the client asked for it."""
        self.busy = False
        self.on_lost = None
        self.idle_since_s = time.monotonic()
        if not self._keep:
            self.transport.close()
        elif self._unread:
            self._next()

    def cut(self) -> None:
        """Close in the middle of whatever is being sent, as a crashed server does."""
        self.transport.abort()

    def close_if_idle(self, now_s: float) -> None:
        """Close when no request has come for KEEP_ALIVE_S."""
        if not self.busy and now_s - self.idle_since_s > KEEP_ALIVE_S:
            self.transport.close()


def parse_head(raw: bytes) -> tuple[str, str, dict[str, str], int]:
    """Method, path without query, headers and body length. Raises BadRequestError."""
    lines = raw.decode("latin-1").split("\r\n")
    try:
        method, target, protocol = lines[0].split(" ")
        pairs = (line.split(":", 1) for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = int(headers.get("content-length", "0"))
    except ValueError:
        raise BadRequestError(400, "Invalid HTTP request received.") from None
    if not protocol.startswith("HTTP/1.") or length < 0:
        raise BadRequestError(400, "Invalid HTTP request received.")
    if "transfer-encoding" in headers:
        raise BadRequestError(411, "The simulator takes no chunked request bodies: send content-length.")
    if length > BODY_BYTES_MAX:
        raise BadRequestError(413, f"The request's body is longer than {BODY_BYTES_MAX} bytes.")
    return method, target.partition("?")[0], headers, length


def head(status: int, content_type: str, framing: str, keep: bool) -> bytes:
    """The head of an answer."""
    close = "" if keep else "connection: close\r\n"
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nserver: uvicorn\r\n"
        f"content-type: {content_type}\r\n{framing}\r\n{close}\r\n"
    ).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
