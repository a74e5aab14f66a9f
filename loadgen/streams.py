"""The closed loop: each stream asks, waits for the end, and asks again at once with the plan's next request.

It must not know of the board or the window, and does not look into a response: an ended trace goes to the tally, the
next request goes out first. Only the next turn of a conversation waits until the tally has read the answer.
"""

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from functools import partial
from time import monotonic_ns
from typing import Any

from loadgen.outbox import History, Outbox
from loadgen.plan import Plan, shard, slots
from loadgen.record import Outcome
from loadgen.row import Asked
from loadgen.tally import Tally
from loadgen.trace import Trace

NS = 1_000_000_000
NS_PER_MS = 1_000_000
LOST_PAUSE_S = 0.2  # after a lost connection, doubled while it goes on: a server that is going down is not stormed
LOST_PAUSE_S_MAX = 2.0
CONNECT_PAUSE_S = 3.0  # after a failed connect: longer than it takes the driver to see a death (2 s) and say stop (1 s)
GOLDEN = (math.sqrt(5) - 1) / 2


async def sleep_until(stamp_ns: int, coarse: bool = False) -> None:
    """Returns at or after `stamp_ns` of the monotonic clock; `coarse`: a millisecond or so after it.

    Timers have whole milliseconds: what is left of one is waited for in many turns of the loop, which thousands of
    streams must not do.
    """
    while (left := stamp_ns - monotonic_ns()) > 0:  # noqa: ASYNC110
        await asyncio.sleep(math.ceil(left / NS_PER_MS) / 1000 if coarse else left / NS)


def spread(number: int) -> float:
    """Where in the stagger, a share of it, stream `number` begins: multiples of the golden section, less whole ones.

    Equal steps would put all streams in step where the stagger turns out to be as many request durations as there are
    streams. These points lie apart whatever they are taken modulo: no number is worse approximated by fractions.
    """
    return number * GOLDEN % 1


def pause_s(outcome: Outcome | None, streak: int) -> float:
    """How long a stream waits after its `streak`-th lost connection or failed connect in a row; 0 after all else."""
    if outcome in (Outcome.CONNECT, Outcome.TLS, Outcome.TIMEOUT_CONNECT):
        return CONNECT_PAUSE_S
    if outcome is Outcome.CONNECTION_LOST:
        return min(LOST_PAUSE_S * 2 ** (streak - 1), LOST_PAUSE_S_MAX)
    return 0.0


class Streams:
    """The streams of one worker, of `concurrency` over all `workers`."""

    def __init__(
        self,
        plan: Plan,
        outbox: Outbox,
        workers: int,
        worker: int,
        *,
        concurrency: int,
        tally: Tally,
        stagger_s: float,
        start_ns: int,
    ) -> None:
        self._plan, self._outbox, self._tally, self._start_ns = plan, outbox, tally, start_ns
        self._streaks = dict[int, int]()
        self._skipped: list[int] = []  # turns of conversations that ended before them
        self._concurrency, self._workers, self._worker = concurrency, workers, worker
        self._stagger_ns = stagger_s * NS
        self._numbers = slots(concurrency, workers, worker)
        self._seqs = shard(plan, concurrency, workers, worker)
        self._first_round = set(self._numbers)
        self._tasks: list[asyncio.Task[None]] = []
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

    def _asked(
        self, seq: int, planned_ns: int | None = None, freed_ns: int | None = None, history: History = ()
    ) -> Asked:
        return self._outbox.asked(seq, self._place(seq), planned_ns, freed_ns, history)

    def _place(self, seq: int) -> int:
        """Which endpoint takes request `seq`: in turns, and of a conversation the same, which has its prefix cached.

        By request and not by stream, so that each endpoint gets as many whatever its speed. Each worker goes round by
        itself: of two workers and two endpoints each would else have one of its own.
        """
        round_number, at = divmod(seq // self._plan.turns, self._concurrency)
        own = round_number * len(self._numbers) + at // self._workers
        return (self._worker + own) % len(self._outbox.endpoints)

    def left(self) -> list[Asked]:
        """The requests of a bounded plan that nobody has taken."""
        if self._plan.requests is None:
            return []
        untaken = [seq for first in self._seqs for seq in self._plan.conversation(first)]
        return [self._asked(seq) for seq in [*self._skipped, *untaken]]

    async def _stream(self, number: int) -> None:
        free, fresh = self._start_ns + int(self._stagger_ns * spread(number)), True
        await sleep_until(free, coarse=True)
        while (first := next(self._seqs, None)) is not None:
            free, fresh = await self._converse(number, first, free, fresh), False

    async def _converse(self, number: int, first: int, free: int, fresh: bool) -> int:
        """Asks the turns of one conversation in order, of most a single one; when the stream was free again (ns).

        A turn that fails ends it: what follows would not be the same conversation.
        """
        turns, history = deque(self._plan.conversation(first)), History()
        try:
            while True:
                seq = turns.popleft()
                trace = await self._one(number, self._asked(seq, free, None if fresh else free, history))
                assert trace.done_ns is not None
                free, fresh = trace.done_ns, False
                # At once: after a rest the row would be made, and nobody would tell.
                answer = await self._tally.answer(seq) if turns else None
                await self._rest(number, trace)
                if answer is None:
                    return free
                history = (*history, {"role": "assistant", "content": answer}, self._next(seq))
                free += int(self._plan.think_s * NS)
                await sleep_until(free, coarse=True)
        finally:
            self._skipped += turns

    def _next(self, seq: int) -> Mapping[str, Any]:
        """What the user says after the answer to request `seq`."""
        return self._plan.prompt(seq).later[seq % self._plan.turns]

    async def _rest(self, number: int, trace: Trace) -> None:
        """Holds a stream back after a lost connection or a failed connect."""
        streak = self._streaks.get(number, 0) + 1 if pause_s(trace.outcome, 1) else 0
        self._streaks[number] = streak
        if pause := pause_s(trace.outcome, streak):
            await asyncio.sleep(pause)

    async def _one(self, number: int, asked: Asked) -> Trace:
        assert len(self._outbox.active) < len(self._numbers), "more requests in flight than streams"
        return await self._outbox.send(number, asked, self._outbox.body(asked), partial(self._ended, number))

    def _ended(self, number: int, trace: Trace) -> None:
        if trace.done_ns is None:
            return
        self._first_round.discard(number)
        if not self._first_round and self.first_round_ns is None:
            self.first_round_ns = trace.done_ns - self._start_ns
