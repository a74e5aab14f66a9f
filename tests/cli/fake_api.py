"""An OpenAI-like server under the test's control: it demands a key, remembers headers and bodies, and can be held."""

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS = 4
HOLD_S_MAX = 60.0


@dataclass
class Api:
    """What the server was asked, and what it shall do: an empty `key` is none, `hold` makes it wait before the answer
    number `hold_at`, `kinds` are its answers in turns, `elsewhere` is where a redirect leads."""

    key: str
    answer: str
    hold_at: int = 1_000_000
    kinds: Sequence[str] = ("ok", "ok", "ok", "ok", "refusal")
    elsewhere: str = ""
    hold: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    authorizations: dict[str, set[str | None]] = field(default_factory=dict)
    bodies: list[str] = field(default_factory=list)
    url: str = ""
    connections: list[socket.socket] = field(default_factory=list)
    vanish: Callable[[], None] = lambda: None  # as a killed server does: connections reset, nobody listens


def chunks(api: Api) -> Iterator[dict[str, object]]:
    """The events of one answer."""
    yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    for number in range(TOKENS):
        yield {"choices": [{"index": 0, "delta": {"content": f"{api.answer} {number} "}}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    usage = {"prompt_tokens": 5, "completion_tokens": TOKENS, "total_tokens": 5 + TOKENS}
    yield {"choices": [], "usage": usage}


def handler(api: Api) -> type[BaseHTTPRequestHandler]:
    """The request handler of one Api."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def setup(self) -> None:
            super().setup()
            api.connections.append(self.connection)

        def reply(self, status: int, body: bytes, kind: str = "application/json", more: Mapping[str, str] = {}) -> None:
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def is_known(self) -> bool:
            given = self.headers.get("Authorization")
            api.authorizations.setdefault(self.path, set()).add(given)
            if given == (f"Bearer {api.key}" if api.key else None):
                return True
            self.reply(401, json.dumps({"error": {"message": f"{given} is none of ours"}}).encode())
            return False

        def do_GET(self) -> None:
            if not self.is_known():
                return
            if self.path == "/v1/models":
                self.reply(200, b'{"data": [{"id": "fake"}]}')
            else:
                self.reply(404, b"{}")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            if not self.is_known():
                return
            if self.path != "/v1/chat/completions":
                self.reply(404, b"{}")
                return
            api.bodies.append(body)
            count = len(api.bodies)
            if count == api.hold_at:
                api.held.set()
                api.hold.wait(HOLD_S_MAX)
            self.answer(api.kinds[(count - 1) % len(api.kinds)], body)

        def answer(self, kind: str, body: str) -> None:
            """A careless server repeats in its complaints what it was sent, and what it was about to answer."""
            key = self.headers["Authorization"]
            told = f"bad request with {key}: {body}"
            echo = {"error": {"message": told}}
            events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(api)]
            stream = "text/event-stream"
            if kind == "refusal":
                self.reply(500, json.dumps(echo).encode())
            elif kind == "unknown":
                self.reply(401, json.dumps({"error": f"{'x' * 170} {told}"}).encode(), more={"Retry-After": str(key)})
            elif kind == "redirect":
                self.reply(307, b"", more={"Location": f"{api.elsewhere}/?{key}", "Set-Cookie": "a=canary"})
            elif kind == "event":
                self.reply(200, "".join([*events[:3], f"data: {json.dumps(echo)}\n\n"]).encode(), stream)
            elif kind == "answer":
                half = {"error": {"message": f"cannot go on after {api.answer} 0 {api.answer} 1"}}
                self.reply(200, "".join([*events[:3], f"data: {json.dumps(half)}\n\n"]).encode(), stream)
            elif kind == "garbage":
                self.connection.sendall(f"{told}\r\n\r\n".encode())
                self.close_connection = True
            else:
                self.reply(200, "".join([*events, "data: [DONE]\n\n"]).encode(), stream)

    return Handler


@contextlib.contextmanager
def serving(api: Api, tls: ssl.SSLContext | None = None) -> Iterator[Api]:
    """The server on a free port of loopback for the length of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(api))
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def vanish() -> None:
        server.socket.close()
        for connection in api.connections:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
        api.hold.set()

    api.vanish = vanish
    api.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        api.hold.set()
        server.shutdown()
        server.server_close()
        thread.join(HOLD_S_MAX)
