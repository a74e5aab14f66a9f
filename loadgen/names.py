"""Where the names of a worker's endpoints are: each is asked once, before the Point, and held until its end.

A name server that is slow costs no request anything then, and one that changes its mind sends none to another server.
It must not know of HTTP or of Points.
"""

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, Self

Found = list[tuple[Any, ...]]  # as socket.getaddrinfo gives them


class Handshake(ssl.SSLObject):
    """One TLS connection that knows when its handshake began (ns, monotonic clock)."""

    begun_ns = 0

    @classmethod
    def _create(cls, *args: Any, **kwargs: Any) -> Self:
        made = super()._create(*args, **kwargs)  # type: ignore[misc]
        made.begun_ns = monotonic_ns()
        return made  # type: ignore[no-any-return]


@dataclass
class Names:
    """The answers so far, by host and port. `limit_s` is for each question."""

    limit_s: float
    _asked: dict[tuple[str, int], "asyncio.Task[tuple[Found, int]]"] = field(default_factory=dict)
    _pinned: dict[tuple[str, int], Found] = field(default_factory=dict)

    async def find(self, host: str, port: int) -> Found:
        """Its addresses, once a connection was opened only that one. Raises OSError, the same one each time."""
        key = host, port
        if key not in self._asked:
            self._asked[key] = asyncio.create_task(self._ask(host, port))
        found, _ = await asyncio.shield(self._asked[key])
        return self._pinned.get(key, found)

    async def _ask(self, host: str, port: int) -> tuple[Found, int]:
        begun_ns = monotonic_ns()
        loop = asyncio.get_running_loop()
        asking = loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        try:
            return await asyncio.wait_for(asking, self.limit_s), monotonic_ns() - begun_ns
        except TimeoutError:
            raise OSError(f"the name {host} was not resolved within {self.limit_s:g} s") from None

    def took_ns(self, host: str, port: int) -> int | None:
        """How long its one question took; None for what was never asked, as an address is not, or has failed."""
        task = self._asked.get((host, port))
        known = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result()[1] if known and task is not None else None

    def pin(self, host: str, port: int, address: str) -> None:
        """Hold the name at this address, to which a connection was opened, for all that follow."""
        if (key := (host, port)) not in self._pinned and (task := self._asked.get(key)) is not None:
            self._pinned[key] = [one for one in task.result()[0] if one[4][0] == address] or task.result()[0]
