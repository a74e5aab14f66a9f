"""The null server: chat streams that cost nothing to make, each event telling when it was written; it measures clients.

Run as a program (`python -I -S server/null.py`): it prints the port it listens on and ends when its standard input
ends. A bare loop over non-blocking sockets: no asyncio and no HTTP library, so that none of their faults can hide on
both sides. It streams chat completions and knows no other question. The answer's text are whole numbers, nanoseconds of
CLOCK_MONOTONIC: when the request was read, then for each event when it was written. Event k is due `first_ms` + k *
`gap_ms` after the request was read, on an absolute schedule, so a reader also knows how late the server itself was. It
must not know of loadgen.
"""

import argparse
import gc
import heapq
import json
import os
import select
import socket
import stat
import sys
from collections.abc import Sequence
from time import monotonic_ns

FIRST_MS, GAP_MS = 20.0, 10.0  # where the request does not ask
TOKENS = 16
NS_PER_MS = 1_000_000
EVENTS_AT_ONCE = 16  # written before the sockets are looked at again
REQUEST_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 16
BACKLOG = 4096

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
)
STAMP = b"%020d"
OBJECT = b'"id":"chatcmpl-null","object":"chat.completion.chunk","created":1764400000,"model":"null"'
DELTA = (
    b"data: {" + OBJECT + b',"choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":null}]}\n\n'
)
FINISH = b"data: {" + OBJECT + b',"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}\n\n'
USAGE = b"data: {" + OBJECT + b',"choices":[],"usage":{"prompt_tokens":1,"total_tokens":%d,"completion_tokens":%d}}\n\n'


def chunk(event: bytes) -> bytes:
    """One event as one chunk of the body."""
    return b"%x\r\n%s\r\n" % (len(event), event)


def _template(text: bytes) -> bytes:
    """A chunk whose stamps are still to be filled in; stamps have a fixed width, and so the chunk's size is known."""
    event = DELTA % text
    return b"%x\r\n" % (len(event) + text.count(STAMP) * (20 - len(STAMP))) + event + b"\r\n"


FIRST_EVENT = _template(STAMP + b" " + STAMP + b" ")
EVENT = _template(STAMP + b" ")
END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Stream:
    """One connection, and the answer that it is in the middle of."""

    __slots__ = ("asked", "due_ns", "gap_ns", "left", "received_ns", "sock", "tokens", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.asked = b""  # of a request that is not whole yet
        self.unsent = b""  # what the socket did not take
        self.left = self.tokens = 0

    def begin(self, body: dict[str, object]) -> None:
        """Starts the answer to the request that is whole now."""
        self.received_ns = monotonic_ns()
        self.left = self.tokens = max(1, int(str(body.get("max_tokens") or TOKENS)))
        self.gap_ns = int(float(str(body.get("gap_ms", GAP_MS))) * NS_PER_MS)
        self.due_ns = self.received_ns + int(float(str(body.get("first_ms", FIRST_MS))) * NS_PER_MS)

    def event(self) -> None:
        """Writes the event that is due; with the last one, the end."""
        if self.left == self.tokens:
            data = HEAD + FIRST_EVENT % (self.received_ns, monotonic_ns())
        else:
            data = EVENT % monotonic_ns()
        self.left -= 1
        self.due_ns += self.gap_ns
        if not self.left:
            data += chunk(FINISH) + chunk(USAGE % (self.tokens + 1, self.tokens)) + END
        self.write(data)

    def write(self, data: bytes) -> None:
        """Writes what the socket takes and keeps the rest. OSError where the connection is gone."""
        if self.unsent:
            data = self.unsent + data
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        self.unsent = data[sent:]


class Server:
    """The loop: whatever stream is due is written, whatever socket has something is read."""

    def __init__(self, listener: socket.socket, life: int | None) -> None:
        self._listener, self._life = listener, life
        self._poll = select.epoll()
        for descriptor in (listener.fileno(), *([] if life is None else [life])):
            self._poll.register(descriptor, select.EPOLLIN | select.EPOLLHUP)
        self._streams: dict[int, Stream] = {}
        self._due: list[tuple[int, int]] = []  # (when, descriptor), a heap

    def run(self) -> None:
        """Serves until standard input ends."""
        while True:
            self._write_due()
            wait_s = (self._due[0][0] - monotonic_ns()) / 1e9 if self._due else None
            if wait_s is None or wait_s > 0:
                select.select([self._poll], [], [], wait_s)  # epoll's own timeouts are whole milliseconds
            for descriptor, happened in self._poll.poll(0):
                if descriptor == self._life:
                    return
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._attend(descriptor, happened)

    def _write_due(self) -> None:
        for _ in range(EVENTS_AT_ONCE):
            if not self._due or self._due[0][0] > monotonic_ns():
                return
            due_ns, descriptor = self._due[0]
            stream = self._streams.get(descriptor)
            if stream is None or not stream.left or stream.due_ns != due_ns:
                heapq.heappop(self._due)  # of a stream that is gone; its number may be another one's now
                continue
            try:
                stream.event()
            except OSError:
                self._close(descriptor)
                continue
            if stream.unsent:
                self._poll.modify(descriptor, select.EPOLLIN | select.EPOLLOUT)
            if stream.left:
                heapq.heapreplace(self._due, (stream.due_ns, descriptor))
            else:
                heapq.heappop(self._due)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._streams[sock.fileno()] = Stream(sock)
        self._poll.register(sock.fileno(), select.EPOLLIN)

    def _attend(self, descriptor: int, happened: int) -> None:
        stream = self._streams.get(descriptor)
        if stream is None:
            return
        try:
            if happened & select.EPOLLOUT:
                stream.write(b"")
                self._poll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if stream.unsent else 0))
            if happened & ~select.EPOLLOUT:
                self._read(stream)
        except (OSError, ValueError):
            self._close(descriptor)

    def _read(self, stream: Stream) -> None:
        """Takes what came; a whole request is answered. OSError where the client is gone or says what is not known."""
        data = stream.sock.recv(READ_BYTES)
        if not data or len(stream.asked) > REQUEST_BYTES_MAX:
            raise ConnectionResetError
        stream.asked += data
        head, mark, body = stream.asked.partition(b"\r\n\r\n")
        if mark and len(body) >= (length := body_length(head)):
            stream.asked = body[length:]
            self._answer(stream, head.partition(b"\r\n")[0], body[:length])

    def _answer(self, stream: Stream, line: bytes, body: bytes) -> None:
        asked = json.loads(body) if line.startswith(b"POST /v1/chat/completions ") else {}
        if not asked.get("stream"):
            stream.write(plain(line))
            return
        stream.begin(asked)
        heapq.heappush(self._due, (stream.due_ns, stream.sock.fileno()))

    def _close(self, descriptor: int) -> None:
        self._streams.pop(descriptor).sock.close()  # epoll forgets it; its place in the heap finds no stream


def body_length(head: bytes) -> int:
    """The length that a request's head tells, 0 where it tells none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def plain(line: bytes) -> bytes:
    """The answer to anything but a chat stream: the one model's name, or that there is nothing."""
    models = b'{"object":"list","data":[{"id":"null","object":"model"}]}'
    status, told = (b"200 OK", models) if line.startswith(b"GET /v1/models ") else (b"404 Not Found", b"{}")
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(told), told)


def main(words: Sequence[str]) -> None:
    """Serve on a free port of loopback, which is printed."""
    parser = argparse.ArgumentParser(
        prog="python -m server.null",
        description="Stream ready-made events that tell when they were written; ends with its standard input.",
        epilog='A request asks by "max_tokens", "first_ms" and "gap_ms" in its body.',
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    given = parser.parse_args(words)
    listener = socket.create_server(("127.0.0.1", given.port), backlog=BACKLOG)
    listener.setblocking(False)
    # A file or a terminal as standard input says nothing of who started us.
    life = sys.stdin.fileno() if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode) else None
    print(listener.getsockname()[1], flush=True)
    gc.disable()  # nothing here is a cycle
    Server(listener, life).run()


if __name__ == "__main__":
    main(sys.argv[1:])
