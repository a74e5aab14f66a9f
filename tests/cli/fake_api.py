"""An OpenAI-like server under the test's control: it demands a key, remembers headers and bodies, and can be held."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS = 4
HOLD_S_MAX = 60.0


@dataclass
class Api:
    """What the server was asked, and what it shall do: an empty `key` is none, `hold` makes it wait before the answer
    number `hold_at`."""

    key: str
    answer: str
    hold_at: int = 1_000_000
    hold: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    authorizations: dict[str, set[str | None]] = field(default_factory=dict)
    bodies: list[str] = field(default_factory=list)
    url: str = ""


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

        def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def is_known(self) -> bool:
            given = self.headers.get("Authorization")
            api.authorizations.setdefault(self.path, set()).add(given)
            if given == (f"Bearer {api.key}" if api.key else None):
                return True
            self.reply(401, b'{"error": "who are you?"}')
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
            if count % 5 == 0:
                # A careless server repeats in its complaint what it was sent.
                echo = {"error": {"message": f"bad request with {self.headers['Authorization']}: {body}"}}
                self.reply(400 if count % 2 else 500, json.dumps(echo).encode())
                return
            events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(api)) + "data: [DONE]\n\n"
            self.reply(200, events.encode(), "text/event-stream")

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
    api.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        api.hold.set()
        server.shutdown()
        server.server_close()
        thread.join(HOLD_S_MAX)
