"""What has ended so far: finished traces are parsed in slices behind the sending, and become rows and counts.

It must not know of sockets, the board or the window, and keeps the loop for a fraction of a millisecond at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.form import Form
from loadgen.plan import said
from loadgen.record import Outcome, failed
from loadgen.row import Asked, build, outcome_of, private
from loadgen.sse import Parsed, Reader
from loadgen.trace import Limits, Trace

SLICE_BYTES = 16384  # parsed before the loop gets its turn: 0.1 ms, or 0.2 where no form helps
SLICE_READS = 48  # the same for reads: a token each, they are as many bytes
AWAITED_TIMES = 4  # larger slices of an answer that a stream waits for: each turn of the loop may take longer than one

# Finish reasons that servers agree on; others are words of their own.
FINISHES = (None, "stop", "length", "tool_calls", "function_call", "content_filter", "abort", "error")

End = tuple[int | None, int, str]  # sent (planned where it never was), done (ns since the Point began), outcome


@dataclass(frozen=True)
class Known:
    """What the rows of one worker need to know beside the traces."""

    api: str
    limits: Limits
    start_ns: int
    fixed: Mapping[str, Any]  # the columns that are the same in each row
    keep_text: bool
    key: str | None
    texts: Callable[[int], Sequence[str]]  # what request `seq` asked


class Tally:
    """Takes ended requests by put(); work() turns them into `rows`, `ends` and counts."""

    def __init__(self, known: Known, settled: Callable[[], None]) -> None:
        self._known, self._settled = known, settled
        self._more, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.queue: deque[tuple[Asked, Trace]] = deque()
        self.rows: list[dict[str, Any]] = []
        self.ends: list[End] = []
        self.ok = self.failed = self.cut = 0
        self.reads = self.done_reads = self.done_tokens = 0
        self._form: Form | None = None  # of the tokens' events, from the response before
        self._answers: dict[int, asyncio.Future[str | None]] = {}  # that somebody waits for, by request

    @property
    def finished(self) -> int:
        """Requests that ended by themselves, well or not."""
        return self.ok + self.failed

    def put(self, asked: Asked, trace: Trace) -> None:
        """Takes a request that has ended."""
        self.queue.append((asked, trace))
        self._idle.clear()
        self._more.set()

    def answer(self, seq: int) -> "asyncio.Future[str | None]":
        """Resolves when request `seq`, just put, has become a row: to its answer, or None where it did not end well."""
        self._answers[seq] = asyncio.get_running_loop().create_future()
        return self._answers[seq]

    async def idle(self) -> None:
        """Returns when everything that was put has become a row."""
        await self._idle.wait()

    async def work(self) -> None:
        """Parses what is put, for ever."""
        try:
            while True:
                while self.queue:
                    asked, trace = self.queue[0]
                    parsed = await self._parse(trace, asked.seq in self._answers)
                    if parsed.text is None and _speaks(parsed, outcome_of(trace, parsed)[0]):
                        parsed = await self._parse(trace, True)  # to know its words from those of the answer
                    self._settle(asked, trace, parsed)
                    self.queue.popleft()
                    self._settled()
                self._idle.set()
                self._more.clear()
                await self._more.wait()
        finally:
            self._idle.set()  # nobody waits for what will not come

    async def _parse(self, trace: Trace, awaited: bool) -> Parsed:
        known, limits = self._known, self._known.limits
        reader = Reader(
            known.api,
            keep_text=known.keep_text or awaited,
            event_bytes=limits.event_bytes,
            response_bytes=limits.response_bytes,
            form=self._form,
        )
        for stamps, parts in _slices(trace.stamps, trace.parts, AWAITED_TIMES if awaited else 1):
            reader.feed_all(stamps, parts)
            await asyncio.sleep(0)
        self._form = reader.form
        return reader.finish()

    def _settle(self, asked: Asked, trace: Trace, parsed: Parsed) -> None:
        known = self._known
        outcome, error = outcome_of(trace, parsed)
        if error is not None or _speaks(parsed, outcome):
            texts = [*known.texts(asked.seq), *map(said, asked.history), parsed.text or ""]
            error, parsed.finish_reason = (private(words, texts, known.key) for words in (error, parsed.finish_reason))
        row = build(asked, trace, parsed, outcome, error, known.start_ns, known.fixed)
        if known.keep_text:
            row["text"] = parsed.text
        _check_order(row)
        self.rows.append(row)
        began = row["sent_ns"] if row["sent_ns"] is not None else row["planned_ns"]
        self.ends.append((began, row["done_ns"], row["outcome"]))
        self._count(outcome, len(trace.parts), parsed.output_tokens)
        if (answer := self._answers.pop(asked.seq, None)) is not None and not answer.done():
            answer.set_result((parsed.text or "") if outcome is Outcome.OK else None)

    def _count(self, outcome: Outcome, reads: int, tokens: int) -> None:
        self.reads += reads
        if outcome is Outcome.CUT:
            self.cut += 1
            return
        self.done_reads += reads
        self.done_tokens += tokens
        if failed(outcome):
            self.failed += 1
        else:
            self.ok += 1


def _speaks(parsed: Parsed, outcome: Outcome) -> bool:
    """Whether the server says something in words of its own that may repeat an answer."""
    return outcome is Outcome.ERROR_EVENT or parsed.finish_reason not in FINISHES


def _slices(
    stamps: Sequence[int], parts: Sequence[bytes], times: int
) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
    """Reads, each with its stamp, in slices that the loop can wait for; a long read in pieces."""
    reads, size = times * SLICE_READS, times * SLICE_BYTES
    if len(parts) > reads:
        for at in range(0, len(parts), reads):
            yield from _slices(stamps[at : at + reads], parts[at : at + reads], times)
    elif sum(map(len, parts)) <= size:
        yield stamps, parts
    elif len(parts) > 1:
        half = len(parts) // 2
        yield from _slices(stamps[:half], parts[:half], times)
        yield from _slices(stamps[half:], parts[half:], times)
    else:
        yield from ((stamps, (parts[0][at : at + size],)) for at in range(0, len(parts[0]), size))


def _check_order(row: Mapping[str, Any]) -> None:
    names = ("sent_ns", "headers_ns", "first_chunk_ns", "first_token_ns", "last_token_ns", "done_ns")
    stamps = [row[name] for name in names if row[name] is not None]
    assert stamps == sorted(stamps), f"stamps decrease in request {row['seq']}: {stamps}"
