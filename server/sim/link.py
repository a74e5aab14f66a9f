"""The front end's side of the socket to the scheduler: messages out, steps in, questions with answers.

It must not know of HTTP.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import orjson


class Link(asyncio.Protocol):
    """Lines of JSON to and from the scheduler. After its death sends go nowhere and questions stay unanswered."""

    def __init__(self, on_step: Callable[..., None], on_lost: Callable[[], None]) -> None:
        self._on_step = on_step
        self._on_lost = on_lost
        self._unread = b""
        self._questions: dict[int, asyncio.Future[tuple[bool, dict[str, Any]]]] = {}
        self._next_question = 0
        self.alive = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self.alive = False
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            verb, *rest = orjson.loads(line)
            if verb == "step":
                self._on_step(*rest)
            elif verb == "answer":
                self._answered(*rest)

    def _answered(self, question: int, yes: bool, stats: dict[str, Any]) -> None:
        future = self._questions.pop(question, None)
        if future is not None and not future.done():
            future.set_result((yes, stats))

    def send(self, *message: Any) -> None:
        """Send one message; a dead scheduler hears nothing."""
        if self.alive:
            self.transport.write(orjson.dumps(message) + b"\n")

    async def ask(self, verb: str, wait_s: float) -> tuple[bool, dict[str, Any]] | None:
        """Ask and wait for (yes, statistics); None when no answer came in time."""
        self._next_question += 1
        future = asyncio.get_running_loop().create_future()
        self._questions[self._next_question] = future
        self.send(verb, self._next_question)
        try:
            return await asyncio.wait_for(future, wait_s)
        except TimeoutError:
            return None
        finally:
            self._questions.pop(self._next_question, None)


async def connect(sock: socket.socket, on_step: Callable[..., None], on_lost: Callable[[], None]) -> Link:
    """Put a Link on this end of the socket pair."""
    _, link = await asyncio.get_running_loop().create_connection(lambda: Link(on_step, on_lost), sock=sock)
    return link
