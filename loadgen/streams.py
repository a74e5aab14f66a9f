"""The closed loop: each stream asks, waits for the end, and asks again at once with the plan's next request.

It must not know of the board or the window, and does not look into a response: an ended trace goes to the tally, the
next request goes out first.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Any

import orjson

from loadgen.plan import Plan, payload, shard, slots
from loadgen.record import Outcome
from loadgen.row import Asked
from loadgen.tally import Tally
from loadgen.trace import Trace

NS = 1_000_000_000
LOST_PAUSE_S = 0.2  # after a lost connection, doubled while it goes on: a server that is going down is not stormed
LOST_PAUSE_S_MAX = 2.0
CONNECT_PAUSE_S = 3.0  # after a failed connect: longer than it takes the driver to see a death (2 s) and say stop (1 s)

Exchange = Callable[[dict[str, str], bytes, Trace], Awaitable[Any]]  # headers, body, the trace to fill


async def sleep_until(stamp_ns: int) -> None:
    """Returns at or after `stamp_ns` of the monotonic clock (timers may fire a millisecond early)."""
    while (left := stamp_ns - monotonic_ns()) > 0:  # noqa: ASYNC110
        await asyncio.sleep(left / NS)


def pause_s(outcome: Outcome | None, streak: int) -> float:
    """How long a stream waits after its `streak`-th lost connection or failed connect in a row; 0 after all else."""
    if outcome in (Outcome.CONNECT, Outcome.TLS, Outcome.TIMEOUT_CONNECT):
        return CONNECT_PAUSE_S
    if outcome is Outcome.CONNECTION_LOST:
        return min(LOST_PAUSE_S * 2 ** (streak - 1), LOST_PAUSE_S_MAX)
    return 0.0


def request_id(point_id: str, seq: int, kind: str) -> str:
    """The value of X-Request-Id: what a server's log needs to find the row again."""
    return re.sub(r"[^!-~]", "_", f"{point_id}.{seq}.{kind}")


class Streams:
    """The streams of one worker, of `concurrency` over all `workers`."""

    def __init__(
        self,
        plan: Plan,
        concurrency: int,
        workers: int,
        worker: int,
        *,
        stagger_s: float,
        start_ns: int,
        point_id: str,
        api: str,
        model_id: str,
        exchange: Exchange,
        tally: Tally,
    ) -> None:
        self._plan, self._api, self._model_id, self._point_id = plan, api, model_id, point_id
        self._exchange, self._tally, self._start_ns = exchange, tally, start_ns
        self._step_ns = stagger_s * NS / concurrency
        self._numbers = slots(concurrency, workers, worker)
        self._seqs = shard(plan, concurrency, workers, worker)
        self._first_round = set(self._numbers)
        self._tasks: list[asyncio.Task[None]] = []
        self.active: dict[int, tuple[Asked, Trace]] = {}
        self.sent = 0
        self.first_round_ns: int | None = None
        self.exhausted = False

    async def run(self) -> None:
        """Keeps every stream asking; returns when the plan has no more requests and the last one has ended."""
        self._tasks = [asyncio.create_task(self._stream(number)) for number in self._numbers]
        await asyncio.gather(*self._tasks)
        self.exhausted = True

    async def stop(self) -> None:
        """Sends nothing more and cuts what is in flight."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def asked(self, seq: int, planned_ns: int | None = None, freed_ns: int | None = None) -> Asked:
        """What the plan says of request `seq`."""
        plan, prompt = self._plan, self._plan.prompt(seq)
        return Asked(seq, prompt.id, prompt.kind, plan.tokens(seq), plan.ignore_eos, planned_ns, freed_ns)

    def left(self) -> list[Asked]:
        """The requests of a bounded plan that nobody has taken."""
        return [] if self._plan.requests is None else [self.asked(seq) for seq in self._seqs]

    async def _stream(self, number: int) -> None:
        planned, freed, streak = self._start_ns + int(self._step_ns * number), None, 0
        await sleep_until(planned)
        while (seq := next(self._seqs, None)) is not None:
            trace = await self._one(number, self.asked(seq, planned, freed))
            assert trace.done_ns is not None
            planned = freed = trace.done_ns
            streak = streak + 1 if pause_s(trace.outcome, 1) else 0
            if pause := pause_s(trace.outcome, streak):
                await asyncio.sleep(pause)

    async def _one(self, number: int, asked: Asked) -> Trace:
        trace = Trace()
        body = orjson.dumps(payload(self._plan, asked.seq, self._api, self._model_id))
        headers = {"X-Request-Id": request_id(self._point_id, asked.seq, asked.prompt_kind)}
        self.active[number] = asked, trace
        self.sent += 1
        assert len(self.active) <= len(self._numbers), "more requests in flight than streams"
        try:
            await self._exchange(headers, body, trace)
        finally:
            del self.active[number]
            if trace.done_ns is not None:
                self._ended(number, asked, trace)
        return trace

    def _ended(self, number: int, asked: Asked, trace: Trace) -> None:
        self._tally.put(asked, trace)
        self._first_round.discard(number)
        if not self._first_round and self.first_round_ns is None and trace.done_ns is not None:
            self.first_round_ns = trace.done_ns - self._start_ns
