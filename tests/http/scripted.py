"""A server that does exactly what a test wrote down: at t milliseconds after the request, write these bytes.

Plain asyncio, no HTTP library, so that the client's library cannot hide its own faults.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@dataclass
class Request:
    """One request as it came."""

    path: str
    head: str
    body: bytes

    @property
    def json(self) -> dict:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Answer:
    """What is written, and when: `steps` are (ms after the request, bytes), each one write and, if chunked, one chunk.

    Bytes that must be made at their moment are given as a function. `end` is what follows: "clean" (the last chunk),
    "fin" (a closed connection), "rst" (a reset), "hang" (nothing until the client leaves).
    """

    steps: Sequence[tuple[float, bytes | Callable[[], bytes]]] = field(default_factory=list)
    head: bytes = STREAM_HEAD
    end: str = "clean"
    chunked: bool = True
    behind: bytes = b""  # written in one write with the last chunk


@dataclass
class Scripted:
    """The running server: what it saw."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    peak: int = 0
    server: asyncio.Server | None = None
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def vanish(self) -> None:
        """Stops listening and resets every connection, as a killed server does."""
        assert self.server is not None
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()


Script = Callable[[Request, int], Answer]  # the request and its number


@asynccontextmanager
async def scripted(
    script: Script | Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Scripted]:
    """A server on `port` of `host`, 0 for a free one, that answers by `script`."""
    seen = Scripted()
    answer = (lambda _request, _number: script) if isinstance(script, Answer) else script

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        seen.writers.append(writer)
        try:
            while await _one(reader, writer, seen, answer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()

    seen.server = await asyncio.start_server(serve, host, port, ssl=tls, limit=1 << 24, backlog=1024)
    at = seen.server.sockets[0].getsockname()[1]
    seen.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{at}"
    try:
        yield seen
    finally:
        seen.server.close()
        for writer in seen.writers:
            writer.close()


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Scripted, script: Script) -> bool:
    """Serves one request; whether the connection may serve another."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
    length = next(
        (line.partition(":")[2] for line in head.splitlines() if line.lower().startswith("content-length")), "0"
    )
    request = Request(head.split(" ")[1], head, await reader.readexactly(int(length)))
    seen.requests.append(request)
    seen.in_flight += 1
    seen.peak = max(seen.peak, seen.in_flight)
    try:
        return await _play(reader, writer, script(request, len(seen.requests) - 1))
    finally:
        seen.in_flight -= 1


async def _play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> bool:
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(answer.head)
    for at_ms, data in answer.steps:
        await asyncio.sleep(max(0.0, began + at_ms / 1000 - loop.time()))
        part = data if isinstance(data, bytes) else data()
        writer.write(b"%x\r\n%s\r\n" % (len(part), part) if answer.chunked else part)
        await writer.drain()
    if answer.end == "hang":
        await reader.read()
    if answer.end == "rst":
        writer.transport.abort()
    if answer.end == "clean":
        writer.write((LAST_CHUNK if answer.chunked else b"") + answer.behind)
        await writer.drain()
    return answer.end == "clean"


def event(value: object) -> bytes:
    """One event of JSON."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def r(delta: object, **more: object) -> bytes:
    """A chat delta of any kind."""
    return event({"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more})


def c(text: str, **more: object) -> bytes:
    """A chat delta with content."""
    return r({"content": text}, **more)


def g(text: str, tokens: int, **meta: object) -> bytes:
    """An event of /generate."""
    return event({"text": text, "meta_info": {"completion_tokens": tokens, "prompt_tokens": 4, **meta}})


def f(reason: str) -> bytes:
    """The finish reason."""
    return event({"id": "r1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def u(prompt: int, completion: int) -> bytes:
    """Usage at the end."""
    return event({"id": "r1", "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


def well(*at_ms: float) -> Answer:
    """A whole answer of one token at each of these times."""
    last = at_ms[-1] if at_ms else 0
    return Answer([*((ms, c("x")) for ms in at_ms), (last, f("length") + u(5, len(at_ms)) + DONE)])


def plain(status: str, body: bytes, *headers: str) -> Answer:
    """An answer that is no stream."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return Answer([(0, body)], ("\r\n".join(lines) + "\r\n\r\n").encode(), chunked=False)
