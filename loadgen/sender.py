"""The open loop: each request is sent when the plan says, whatever became of the earlier ones.

Late is late: a request that could not go out in time goes out as soon as it can, and its plan stays what it was. It
must not know of the board or the window, and does not look into a response.
"""

import asyncio
from collections import deque
from dataclasses import replace
from time import monotonic_ns

from loadgen.outbox import Outbox
from loadgen.plan import Plan, due
from loadgen.row import Asked
from loadgen.streams import sleep_until
from loadgen.trace import Trace


class Sender:
    """The requests of one worker out of all `workers`; at most `in_flight_max` of them at once."""

    first_round_ns: int | None = None  # a closed loop's news

    def __init__(
        self, plan: Plan, outbox: Outbox, workers: int, worker: int, *, in_flight_max: int, start_ns: int
    ) -> None:
        self._outbox, self._start_ns = outbox, start_ns
        self._workers, self._worker = workers, worker
        self._due = due(plan, workers, worker)
        self._next: Asked | None = None  # taken from the plan, not yet sent
        self._places = deque([start_ns] * in_flight_max)  # since when each has been free
        self._freed = asyncio.Event()
        self._whole: asyncio.Task[None] | None = None
        self.exhausted = False

    async def run(self) -> None:
        """Sends every request at its time; returns when the plan has no more and the last one has ended."""
        self._whole = asyncio.create_task(self._send())
        await self._whole
        self.exhausted = True

    async def stop(self) -> None:
        """Sends nothing more and cuts what is in flight."""
        if self._whole:
            self._whole.cancel()
            await asyncio.wait([self._whole])

    def left(self) -> list[Asked]:
        """The requests that have come due and were never sent."""
        now_ns, found = monotonic_ns(), [self._next] if self._next else []
        if found and (found[0].planned_ns or 0) > now_ns:
            return []  # the next one is not due, and so no later one is
        for seq, offset_ns in self._due:
            if self._start_ns + offset_ns > now_ns:
                break
            found.append(self._asked(seq, self._start_ns + offset_ns))
        return found

    async def _send(self) -> None:
        try:
            async with asyncio.TaskGroup() as under_way:
                for seq, offset_ns in self._due:
                    asked = self._next = self._asked(seq, self._start_ns + offset_ns)
                    body = self._outbox.body(asked)
                    await sleep_until(self._start_ns + offset_ns)
                    under_way.create_task(self._one(await self._placed(asked), body))
                    await asyncio.sleep(0)  # it goes out now; and a sender that is behind leaves the loop its turns
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _placed(self, asked: Asked) -> Asked:
        """Takes a place; where it came free only after the request was due, the request knows since when."""
        while not self._places:
            self._freed.clear()
            await self._freed.wait()
        free_since_ns = self._places.popleft()
        assert asked.planned_ns is not None
        return replace(asked, freed_ns=free_since_ns) if free_since_ns > asked.planned_ns else asked

    def _asked(self, seq: int, planned_ns: int) -> Asked:
        """Endpoints take turns, each worker by itself, so that none has one of its own."""
        place = (self._worker + seq // self._workers) % len(self._outbox.endpoints)
        return self._outbox.asked(seq, place, planned_ns)

    async def _one(self, asked: Asked, body: bytes) -> None:
        self._next = None
        await self._outbox.send(asked.seq, asked, body, self._free)

    def _free(self, trace: Trace) -> None:
        self._places.append(monotonic_ns() if trace.done_ns is None else trace.done_ns)
        self._freed.set()
