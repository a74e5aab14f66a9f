"""The null server: what it sends is what its schedule and its own stamps say, and it ends with whoever started it."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

NULL = Path(__file__).parent.parent.parent / "server" / "null.py"
START_S_MAX = 20.0


@pytest.fixture
def null() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A null server and its port."""
    command = [sys.executable, "-I", "-S", str(NULL)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def asking(connection: http.client.HTTPConnection, **more: object) -> list[dict]:
    """The events of one chat stream, without its end mark."""
    body = json.dumps({"stream": True, "messages": [], "max_tokens": 5, "first_ms": 30, "gap_ms": 10, **more})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    text = connection.getresponse().read().decode()
    *events, end = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert end == "[DONE]"
    return [json.loads(event) for event in events]


def test_every_event_tells_when_it_was_written(null: tuple[subprocess.Popen[bytes], int]) -> None:
    """On one connection, again and again: stamps of our own clock, never before they are due, and the usage."""
    connection = http.client.HTTPConnection("127.0.0.1", null[1], timeout=10)
    for _ in range(2):
        before = time.monotonic_ns()
        *tokens, finish, usage = asking(connection)
        after = time.monotonic_ns()
        text = "".join(token["choices"][0]["delta"]["content"] for token in tokens)
        received, *written = map(int, text.split())
        assert before < received < written[0] < written[-1] < after
        assert len(tokens) == len(written) == 5
        assert all(stamp >= received + (30 + 10 * k) * 1_000_000 for k, stamp in enumerate(written))
        assert finish["choices"][0]["finish_reason"] == "length"
        assert usage["usage"]["completion_tokens"] == 5


def test_other_questions_and_clients_that_leave(null: tuple[subprocess.Popen[bytes], int]) -> None:
    """It names its model, knows nothing else, and serves on when a client goes away in the middle of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", null[1], timeout=10)
    for path, status in (("/v1/models", 200), ("/server_info", 404)):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == status
        answer.read()
    leaving = http.client.HTTPConnection("127.0.0.1", null[1], timeout=10)
    leaving.request("POST", "/v1/chat/completions", json.dumps({"stream": True, "max_tokens": 1000, "gap_ms": 1}))
    leaving.close()
    not_json = http.client.HTTPConnection("127.0.0.1", null[1], timeout=10)
    not_json.request("POST", "/v1/chat/completions", "{")
    with pytest.raises(ConnectionError):
        not_json.getresponse()
    assert len(asking(connection)) == 7


def test_it_ends_with_its_standard_input(null: tuple[subprocess.Popen[bytes], int]) -> None:
    """Whoever started it may be killed: the pipe's end is the end."""
    process, _ = null
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(START_S_MAX) == 0
