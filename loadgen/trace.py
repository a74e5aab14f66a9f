"""What one exchange leaves behind: its Trace, the Limits it had to keep, and the Deadlines that look after them.

It must not know of HTTP, of aiohttp, or of what was asked; of the body it looks only at whether output has begun.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from loadgen.record import MAX_ERROR_CHARS, Outcome
from loadgen.sse import EVENT_BYTES_MAX, RESPONSE_BYTES_MAX, Reader

NS = 1_000_000_000
READS_MAX = 1_000_000  # of one response: reads of a byte each would fill the memory long before the bytes' cap
EVENTS_A_TOKEN_MAX = 4  # of the tokens asked for: a server that sends more does not heed what it was asked
EVENTS_SPARE = 64  # a role, a finish reason, usage, the end mark, and what else is sent beside tokens
PLAIN_BYTES_A_TOKEN = 1024  # of an answer that is not longer nobody counts the events


@dataclass(frozen=True)
class Limits:
    """The bounds of one exchange; seconds count from the request's first byte, except `connect_s` and `stall_s`."""

    connect_s: float = 10.0
    first_token_s: float = 600.0
    stall_s: float = 60.0  # nothing but comments for so long, once output has begun
    total_s: float = 3600.0
    event_bytes: int = EVENT_BYTES_MAX
    response_bytes: int = RESPONSE_BYTES_MAX


@dataclass(slots=True)
class Trace:
    """What happened on the wire (ns, monotonic clock). `outcome` None: the body is whole, its events decide."""

    began_ns: int = 0
    sent_ns: int | None = None
    # Durations; None where a pooled connection was used. The name was asked before the Point, TLS is a part of connect.
    connect_ns: int | None = None
    tls_ns: int | None = None
    dns_ns: int | None = None
    address: str | None = None  # of the server, as the connection has it
    headers_ns: int | None = None
    http_status: int | None = None
    asked_tokens: int | None = None  # of output, at most; None: nobody says
    # The body without chunked framing, read by read. Two lists, no pairs: a pair a token is what wakes the collector.
    stamps: list[int] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    size: int = 0  # bytes in them, once the exchange is over
    free: int = 0  # up to this size take() has no cap to look at
    done_ns: int | None = None
    outcome: Outcome | None = None
    error: str | None = None
    retry_after: str | None = None  # what a refusal asks for; nothing is ever asked again
    usage: Any = None  # of an answer that came as one body instead of a stream

    def end(self, outcome: Outcome | None, error: str | None = None) -> None:
        """Notes the end; only the first one counts."""
        if self.done_ns is None:
            self.done_ns = monotonic_ns()
            self.outcome, self.error = outcome, error and error[:MAX_ERROR_CHARS]

    def take(self, stamp_ns: int, data: bytes, limits: Limits) -> None:
        """Keeps one read of the body, or ends at a cap."""
        size = self.size + len(data)
        if size > self.free:
            self.free, refused = self.looked(size, limits)
            if refused:
                self.end(Outcome.TOO_LARGE, refused)
                return
        self.size = size
        self.stamps.append(stamp_ns)
        self.parts.append(data)

    def looked(self, size: int, limits: Limits) -> tuple[int, str | None]:
        """Up to which size a body passes no cap in reads of whatever size, now that a read makes it `size` bytes.

        With it the cap that this read passes, None where it passes none. Events are counted where there are many bytes
        for the tokens asked for, and again at twice as many: such an answer ends at eight times its tokens at most.
        """
        reads = len(self.parts) + 1
        if size > limits.response_bytes:
            return 0, f"the response is longer than {limits.response_bytes} bytes"
        if reads > READS_MAX:
            return 0, f"the response came in more than {READS_MAX} reads"
        free = min(limits.response_bytes, size + READS_MAX - reads)
        if self.asked_tokens is None:
            return free, None
        plain, most = PLAIN_BYTES_A_TOKEN * self.asked_tokens, EVENTS_A_TOKEN_MAX * self.asked_tokens + EVENTS_SPARE
        if size <= plain:
            return min(free, plain), None
        if sum(part.startswith(b"data:") + part.count(b"\ndata:") for part in self.parts) > most:
            return 0, f"more than {most} events for {self.asked_tokens} tokens: the server does not heed what was asked"
        return min(free, 2 * size), None


Expired = Callable[[Trace], None]


class Deadlines:
    """The deadlines of one exchange, looked after by one timer that wakes nobody while they hold."""

    __slots__ = ("_begun", "_expired", "_limits", "_loop", "_reader", "_seen", "_timer", "_trace")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, trace: Trace, limits: Limits, api: str, expired: Expired
    ) -> None:
        self._loop, self._trace, self._limits, self._expired = loop, trace, limits, expired
        self._reader = Reader(api)
        self._seen = 0  # reads that were looked at for the first output
        self._begun = False
        self._timer: asyncio.Handle = loop.call_soon(self._look)

    def stop(self) -> None:
        """Ends the watch."""
        self._timer.cancel()

    def _look(self) -> None:
        now = monotonic_ns()
        due, outcome, error = self._next(now)
        if due <= now:
            self._trace.end(outcome, error)
            self._expired(self._trace)
        else:
            # Timers may fire a millisecond early; the next look decides again.
            self._timer = self._loop.call_later((due - now) / NS, self._look)

    def _next(self, now: int) -> tuple[int, Outcome, str]:
        """The deadline that comes first: when (ns), and what its passing means."""
        limits, sent = self._limits, self._trace.sent_ns
        assert sent is not None
        total = sent + int(limits.total_s * NS)
        if self._output_begun():
            soon = self._last_event_ns(sent, now) + int(limits.stall_s * NS)
            outcome, error = Outcome.TIMEOUT_STALL, f"no event for {limits.stall_s:g} s after output had begun"
        else:
            first = sent + int(limits.first_token_s * NS)
            outcome, error = Outcome.TIMEOUT_FIRST_TOKEN, f"no output within {limits.first_token_s:g} s"
            # Looked at every stall time too: output may begin, and stall, long before the first deadline.
            soon = first if first <= now else min(first, now + int(limits.stall_s * NS))
        if total <= soon:
            return total, Outcome.TIMEOUT_TOTAL, f"not ended within {limits.total_s:g} s"
        return soon, outcome, error

    def _output_begun(self) -> bool:
        stamps, parts = self._trace.stamps, self._trace.parts
        while not self._begun and self._seen < len(parts):
            self._reader.feed(stamps[self._seen], parts[self._seen])
            self._seen += 1
            self._begun = self._reader.output_seen
        return self._begun

    def _last_event_ns(self, sent: int, now: int) -> int:
        """The stamp of the last read that held more than comments, as far as the stall time goes back."""
        since = now - int(self._limits.stall_s * NS)
        for stamp, data in zip(reversed(self._trace.stamps), reversed(self._trace.parts), strict=True):
            if b"data" in data or stamp <= since:
                return stamp
        return sent
