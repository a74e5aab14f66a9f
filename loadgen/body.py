"""The body of one chunked response, kept read by read: the path of every token.

Between two reads it stamps, takes the framing off and appends; whatever else a read may be goes a longer way. It must
not know of connections or of what the bytes say.
"""

from collections.abc import Callable
from time import monotonic_ns

from loadgen.framing import SHORT_READ_BYTES, SIZE_LINES, Chunked
from loadgen.record import Outcome
from loadgen.trace import READS_MAX, Limits, Trace

Over = Callable[[Outcome | None, str | None], None]  # as Trace.end() takes them


class Body:
    """Takes a body by take() until `over` is called, once: at its end, at a cap, or where its framing breaks."""

    # Few slots, and nothing else touched for most tokens: with many streams what a read costs is cache misses.
    __slots__ = ("_chunked", "_keep", "_limits", "_over", "_room", "_stamp", "_trace", "_whole")

    def __init__(self, trace: Trace, limits: Limits, over: Over) -> None:
        self._trace, self._limits, self._over = trace, limits, over
        self._stamp, self._keep = trace.stamps.append, trace.parts.append
        self._chunked = Chunked()
        self._whole = True  # the next byte begins a chunk
        self._room = 0  # so many bytes can pass neither cap, in reads of whatever size

    @property
    def extra(self) -> bool:
        """Whether bytes came behind the end."""
        return self._chunked.extra

    def take(self, data: bytes) -> None:
        """One read. A server that flushes each event sends one whole chunk a read."""
        stamp, size = monotonic_ns(), len(data)
        if (
            self._whole
            and size < SHORT_READ_BYTES
            and data.startswith(line := SIZE_LINES[size])
            and data.endswith(b"\r\n")
        ):
            self._room = room = self._room - size
            if room >= 0:
                self._stamp(stamp)
                self._keep(data[len(line) : -2])
                return
        self._framed(stamp, data)

    def _framed(self, stamp: int, data: bytes) -> None:
        chunked = self._chunked
        try:
            part = chunked.feed(data)
        except ValueError as error:
            self._over(Outcome.MALFORMED, str(error))
            return
        self._whole = chunked.whole
        if part:
            self._room -= len(part)
            if self._room < 0 and not self._fits(len(part)):
                return
            self._stamp(stamp)
            self._keep(part)
        if chunked.ended:
            self._over(None, None)

    def _fits(self, size: int) -> bool:
        """Whether a read of `size` bytes keeps the caps, looked at exactly; makes room for the next ones."""
        trace, limits = self._trace, self._limits
        if refused := trace.refusal(size, limits):
            self._over(Outcome.TOO_LARGE, refused)
            return False
        self._room = min(limits.response_bytes - trace.size - size, READS_MAX - len(trace.parts) - 1)
        return True
