"""The body of one chunked response, kept read by read: the path of every token.

Between two reads it stamps, takes the framing off and appends; whatever else a read may be goes a longer way. It must
not know of connections or of what the bytes say.
"""

from collections.abc import Callable
from time import monotonic_ns

from loadgen.framing import SHORT_READ_BYTES, SIZE_LINES, Chunked
from loadgen.record import Outcome
from loadgen.trace import Limits, Trace

Over = Callable[[Outcome | None, str | None], None]  # as Trace.end() takes them


class Body:
    """Takes a body by take() until `over` is called, once: at its end, at a cap, or where its framing breaks."""

    # Few slots, and nothing else touched for most tokens: with many streams what a read costs is cache misses.
    __slots__ = ("_chunked", "_free", "_keep", "_limits", "_over", "_stamp", "_trace", "_whole", "size")

    def __init__(self, trace: Trace, limits: Limits, over: Over) -> None:
        self._limits, self._over, self._trace = limits, over, trace
        self._stamp, self._keep = trace.stamps.append, trace.parts.append
        self._chunked = Chunked()
        self._whole = True  # the next byte begins a chunk
        self.size = 0  # bytes that are kept
        self._free = 0  # up to this size no cap is passed, in reads of whatever size

    @property
    def extra(self) -> bool:
        """Whether bytes came behind the end."""
        return self._chunked.extra

    def take(self, data: bytes) -> None:
        """One read. A server that flushes each event sends one whole chunk a read."""
        stamp, length = monotonic_ns(), len(data)
        if (
            self._whole
            and length < SHORT_READ_BYTES
            and data.startswith(line := SIZE_LINES[length])
            and data.endswith(b"\r\n")
        ):
            part = data[len(line) : -2]
            size = self.size + len(part)
            if size <= self._free:
                self.size = size
                self._stamp(stamp)
                self._keep(part)
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
            size = self.size + len(part)
            if size > self._free and not self._fits(size):
                return
            self.size = size
            self._stamp(stamp)
            self._keep(part)
        if chunked.ended:
            self._over(None, None)

    def _fits(self, size: int) -> bool:
        """Whether a read that makes it `size` bytes keeps the caps, looked at exactly; frees the next ones of it."""
        self._free, refused = self._trace.looked(size, self._limits)
        if refused:
            self._over(Outcome.TOO_LARGE, refused)
        return refused is None
