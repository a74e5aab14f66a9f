"""The time between start and stop of one worker: streams, tally and health side by side, and the talk with the board.

It must not know of HTTP, Ray or files: it is given `ask`, `tell` and `write`.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from loadgen.health import Health
from loadgen.outbox import Exchange, Outbox
from loadgen.plan import said
from loadgen.record import HEALTH, names
from loadgen.row import Asked, unsent
from loadgen.sender import Sender
from loadgen.shard import Shard, endpoint
from loadgen.streams import Streams, sleep_until
from loadgen.tally import Known, Tally
from loadgen.trace import Trace

NS = 1_000_000_000
BEAT_S = 1.0  # how often the board hears of a worker, and rows and health are handed on
BOARD_SILENCE_S_MAX = 5.0  # no answer for so long means that nobody is listening: stop
ROWS_AT_ONCE = 2  # handed to `write` before the loop gets its turn: 0.15 ms of a response of 512 events
ROWS_AT_THE_END = 1000  # the same when nothing is timed any more: of a large count most may be unsent
TIMER_EARLY_S = 0.002  # a timer may fire so much too early

Tell = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Write = Callable[[list[dict[str, Any]]], None]


async def call(tell: Tell, beat: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The board's answer, or None and what is wrong with the board."""
    try:
        # Not wait_for: in Python 3.11 it may swallow a cancellation.
        async with asyncio.timeout(BOARD_SILENCE_S_MAX):
            return await tell(beat), ""
    except TimeoutError:
        return None, f"board silent: no answer for {BOARD_SILENCE_S_MAX:g} s"
    except Exception as error:  # whatever the board's transport raises, the board is gone
        return None, f"board lost: {type(error).__name__}"


def result(shard: Shard, reason: str, **counts: int | None) -> dict[str, Any]:
    """What drive() returns; counts that are not given are 0."""
    none = dict.fromkeys(("sent", "finished", "failed", "cut", "unsent"), 0)
    return {
        "worker": shard.worker,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        **none,
        **counts,
        "reason": reason,
    }


def _outbox(shard: Shard, ask: Exchange, tally: Tally) -> Outbox:
    return Outbox(
        shard.plan,
        point_id=shard.point_id,
        api=shard.api,
        model_id=shard.model_id,
        endpoints=[endpoint(base_url) for base_url in shard.base_urls],
        exchange=ask,
        tally=tally,
    )


def _loop(shard: Shard, outbox: Outbox, tally: Tally, start_ns: int) -> Streams | Sender:
    """What decides when the shard's requests go out: its streams, or, where they come by a clock, its sender."""
    share = (shard.plan, outbox, shard.workers, shard.worker)
    if shard.plan.arrivals is not None:
        return Sender(*share, in_flight_max=shard.in_flight_max, start_ns=start_ns)
    assert shard.concurrency is not None, "a load without arrivals is a number of streams"
    return Streams(*share, concurrency=shard.concurrency, tally=tally, stagger_s=shard.stagger_s, start_ns=start_ns)


class Run:
    """The time from the start to the stop of one worker."""

    def __init__(
        self,
        shard: Shard,
        ask: Exchange,
        tell: Tell,
        write: Write,
        clock: Callable[[], int],
        start_ns: int,
        key: str | None,
    ) -> None:
        self._shard, self._tell, self._write, self._clock, self._start_ns = shard, tell, write, clock, start_ns
        self._who = {"worker": shard.worker, "host": socket.gethostname()}
        fixed = {**shard.identity, **self._who}
        known = Known(shard.api, shard.limits, start_ns, fixed, shard.keep_text, key, self._texts)
        self._fixed, self._tally = fixed, Tally(known, self._look)
        self._outbox = _outbox(shard, ask, self._tally)
        self._loop = _loop(shard, self._outbox, self._tally, start_ns)
        self._health, self._health_rows = Health(start_ns), list[dict[str, Any]]()
        self._urgent, self._stopped = asyncio.Event(), asyncio.Event()
        self._window: tuple[int, int] | None = None
        self._drained = self._exhausted = False
        self._reason, self._board_gone = "", False
        self._late_ns: int | None = None
        self._failure: Exception | None = None

    async def whole(self) -> dict[str, Any]:
        """Everything from the first request to the last beat; returns the counts."""
        self._health.start()
        tasks = [
            asyncio.create_task(self._guarded(part))
            for part in (self._talk(), self._tick(), self._tally.work(), self._send(), self._begin())
        ]
        try:
            await self._stopped.wait()
            await self._loop.stop()
            if self._failure is None:
                await self._emptied()
        finally:
            self._health.stop()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._failure is not None:
            raise self._failure
        return await self._close()

    async def _emptied(self) -> None:
        """What has ended has become rows; that may take a busy core longer than a silent worker is waited for."""
        idle = asyncio.create_task(self._tally.idle())
        while not (await asyncio.wait([idle], timeout=BEAT_S))[0]:
            if not self._board_gone:
                answer, _ = await call(self._tell, self._beat("running"))
                self._board_gone = answer is None

    async def _close(self) -> dict[str, Any]:
        """The unsent rows, the last beat, the invariants and the counts."""
        left = [unsent(asked, self._fixed, self._start_ns) for asked in self._loop.left()]
        self._tally.rows.extend(left)
        await self._hand_on(ROWS_AT_THE_END)
        if not self._board_gone:
            await call(self._tell, self._beat("done"))
        tally, sent = self._tally, self._outbox.sent
        assert sent == tally.ok + tally.failed + tally.cut, "a request is unaccounted for"
        return result(
            self._shard,
            self._reason,
            sent=sent,
            finished=tally.finished,
            failed=tally.failed,
            cut=tally.cut,
            unsent=len(left),
            start_ns=self._start_ns,
            start_late_ns=self._late_ns,
        )

    async def _begin(self) -> None:
        """How late this loop is at the common start: it may have heard of it late, or others have its core."""
        await sleep_until(self._start_ns)
        self._late_ns = self._clock() - self._start_ns

    async def _guarded(self, part: Coroutine[Any, Any, None]) -> None:
        """A part that fails ends the run, and drive() raises what it raised."""
        try:
            await part
        except Exception as error:
            self._failure = self._failure or error
            self._stop(f"failed: {type(error).__name__}")

    def _stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._stopped.set()

    async def _send(self) -> None:
        await self._loop.run()
        self._look()

    async def _talk(self) -> None:
        """Beats once a second, at once when something decisive has happened; a slow board delays nothing else."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._urgent.wait()
            self._urgent.clear()
            answer, trouble = await call(self._tell, self._beat("running"))
            self._board_gone = answer is None
            if answer is None or not answer.get("go"):
                self._stop(trouble or "stopped by the board")
                return
            self._hear(answer.get("window"))

    def _hear(self, window: Any) -> None:
        if window is None or (self._window is not None and tuple(window) == self._window):
            return
        self._window, self._drained = (int(window[0]), int(window[1])), False
        left_s = (self._window[1] - self._now()) / NS
        asyncio.get_running_loop().call_later(max(0.0, left_s) + TIMER_EARLY_S, self._look)

    def _look(self) -> None:
        """Notes what is decisive: the window's requests have all ended, or the plan's have."""
        if self._window is not None and not self._drained and self._now() >= self._window[1]:
            self._drained = not any(map(self._in_window, (*self._outbox.active.values(), *self._tally.queue)))
            if self._drained:
                self._urgent.set()
        if self._loop.exhausted and not self._exhausted and not self._tally.queue:
            self._exhausted = True
            self._urgent.set()

    def _in_window(self, one: tuple[Asked, Trace]) -> bool:
        assert self._window is not None
        asked, trace = one
        began = trace.sent_ns if trace.sent_ns is not None else asked.planned_ns
        assert began is not None
        return self._window[0] <= began - self._start_ns < self._window[1]

    async def _tick(self) -> None:
        """Once a second: a health row, and the rows that are finished."""
        due = self._clock()
        while True:
            due += int(BEAT_S * NS)
            await asyncio.sleep(max(0.0, (due - self._clock()) / NS))
            self._look()
            await self._hand_on()

    async def _hand_on(self, at_once: int = ROWS_AT_ONCE) -> None:
        row = {**self._fixed, "pid": os.getpid(), **self._health.row(self._counts())}
        self._health_rows.append({name: row.get(name) for name in names(HEALTH)})
        while rows := self._tally.rows[:at_once]:
            del self._tally.rows[: len(rows)]
            self._write(rows)
            await asyncio.sleep(0)

    def _counts(self) -> dict[str, int]:
        outbox, tally = self._outbox, self._tally
        under_way = sum(len(trace.parts) for _, trace in (*outbox.active.values(), *tally.queue))
        return {
            "sent": outbox.sent,
            "finished": tally.finished,
            "failed": tally.failed,
            "in_flight": len(outbox.active),
            "reads": tally.reads + under_way,
        }

    def _beat(self, phase: str) -> dict[str, Any]:
        tally = self._tally
        ends, tally.ends = tally.ends, []
        health, self._health_rows = self._health_rows, []
        return {
            "worker": self._shard.worker,
            "phase": phase,
            "t_ns": self._now(),
            **self._counts(),
            "done_tokens": tally.done_tokens,
            "done_reads": tally.done_reads,
            "first_round_ns": self._loop.first_round_ns,
            "ends": ends,
            "drained": self._drained,
            "exhausted": self._exhausted,
            "health": health,
        }

    def _now(self) -> int:
        return self._clock() - self._start_ns

    def _texts(self, seq: int) -> list[str]:
        prompt = self._shard.plan.prompt(seq)
        return [said(message) for message in (*prompt.messages, *prompt.later)]
