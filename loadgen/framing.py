"""Where units end in a stream of bytes: the chunks of an HTTP body, and the blocks and fields of an event stream.

Pure, and safe for any bytes in any cuts; work is linear in the bytes. It must not know what the units mean.
"""

from collections.abc import Mapping

LINE_BYTES_MAX = 8192  # of a chunk's size line or of all trailers: as much as HTTP heads are given
SHORT_LINE_BYTES = 18  # sixteen digits and the line end: sizes are shorter
SHORT_READ_BYTES = 4096  # reads below are known by their size lines: a token's event is far shorter


def _size_lines() -> list[bytes]:
    """For each length of a read, the size line with which it is one whole chunk, as most servers write it."""
    lines = [b"?" * SHORT_READ_BYTES] * SHORT_READ_BYTES  # no read begins with a line that is longer than itself
    for size in range(1, SHORT_READ_BYTES):
        line = b"%x\r\n" % size
        if (length := len(line) + size + 2) < SHORT_READ_BYTES:
            lines[length] = line
    return lines


SIZE_LINES = _size_lines()
SIZES = {form % size: size for size in range(1, SHORT_READ_BYTES) for form in (b"%x", b"%X")}


class Chunked:
    """Takes the chunked framing off an HTTP body and finds its end."""

    __slots__ = ("_behind", "_left", "_line", "_trailer", "ended", "extra")

    def __init__(self) -> None:
        self._left = 0  # bytes that are missing of the chunk and of the line end behind it
        self._line = b""  # a size line or trailers, so far
        self._trailer = False
        self._behind = 0  # bytes of trailers
        self.ended = False
        self.extra = False  # bytes came behind the end

    @property
    def whole(self) -> bool:
        """Whether the next byte begins a chunk."""
        return not (self._left or self._line or self._trailer)

    def feed(self, data: bytes) -> bytes:
        """The body's bytes in `data`. ValueError where the framing is broken."""
        if self.whole and data.endswith(b"\r\n"):
            # One whole chunk a read, its size written as it may be too.
            mark = data.find(b"\r\n", 0, SHORT_LINE_BYTES)
            digits = data[:mark]
            if digits.isalnum() and _is_hex(digits, len(data) - mark - 4):
                return data[mark + 2 : -2]
        return self._walk(data)

    def _walk(self, data: bytes) -> bytes:
        body: list[bytes] = []
        at, size = 0, len(data)
        if self.whole:
            at = _whole_chunks(data, body)
        while at < size and not self.ended:
            if self._left > 2:
                taken = min(self._left - 2, size - at)
                body.append(data[at : at + taken])
            elif self._left:
                taken = 1
                if data[at] != b"\n\r"[self._left - 1]:
                    raise ValueError("a chunk is longer than its size line says")
            else:
                at = self._size_line(data, at)
                continue
            at += taken
            self._left -= taken
        self.extra = at < size
        return body[0] if len(body) == 1 else b"".join(body)

    def _size_line(self, data: bytes, at: int) -> int:
        """Takes one line, or its beginning, from `at` on; where it ends."""
        end = data.find(b"\n", at)
        piece = data[at:] if end < 0 else data[at:end]
        if len(self._line) + len(piece) > LINE_BYTES_MAX:
            raise ValueError(f"a chunk's size line is longer than {LINE_BYTES_MAX} bytes")
        self._line += piece
        if end < 0:
            return len(data)
        line, self._line = self._line.rstrip(b"\r"), b""
        if self._trailer:
            self._behind += len(line) + 1
            if self._behind > LINE_BYTES_MAX:
                raise ValueError(f"the trailers are longer than {LINE_BYTES_MAX} bytes")
            self.ended = not line
        else:
            self._left = _size(line)
            self._trailer = not self._left
        return end + 1


def _whole_chunks(data: bytes, body: list[bytes]) -> int:
    """Puts the whole chunks that `data` begins with into `body`; where they end. Nothing else is looked at."""
    at = 0
    while (mark := data.find(b"\r\n", at, at + SHORT_LINE_BYTES)) > 0:
        size = SIZES.get(data[at:mark], 0)
        end = mark + 2 + size
        if not size or data[end : end + 2] != b"\r\n":
            break
        body.append(data[mark + 2 : end])
        at = end + 2
    return at


def _is_hex(digits: bytes, number: int) -> bool:
    try:
        return int(digits, 16) == number > 0
    except ValueError:
        return False


def _size(line: bytes) -> int:
    """Bytes until the next size line; 0 for the last chunk."""
    digits = line.partition(b";")[0].strip()
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise ValueError("a chunk's size is not a hexadecimal number")
    size = int(digits, 16)
    return size + 2 if size else 0


def header_lines(headers: Mapping[str, str]) -> bytes:
    """The lines of an HTTP head. ValueError where a value would break out of its line."""
    if any(sign in value for value in headers.values() for sign in "\r\n\0"):
        raise ValueError("a header's value holds a line end")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()


def fields(block: bytes) -> tuple[bytes, bool]:
    """The data of one event (lines without their line ends) and whether it is an event named `error`."""
    data, named_error = [], False
    for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            named_error = value == b"error"
    return b"\n".join(data), named_error


class Blocks:
    """Bytes into the blocks between blank lines; line ends may be LF, CRLF or CR, and cut anywhere."""

    __slots__ = ("_block_max", "_held", "_pending", "_skip_lf", "overflow")

    def __init__(self, block_max: int) -> None:
        self._block_max = block_max
        self._pending: list[bytes] = []
        self._held = 0  # bytes in _pending
        self._skip_lf = False  # a CR came last: an LF that follows belongs to it
        self.overflow = False

    @property
    def empty(self) -> bool:
        """Whether the next byte begins a block."""
        return not (self._pending or self._skip_lf)

    def feed(self, data: bytes) -> list[bytes]:
        """The blocks that `data` completes, in order."""
        if self._skip_lf or b"\r" in data:
            data = self._line_feeds(data)
        if not self._pending:
            return self._split(data)
        if self._pending[-1].endswith(b"\n") and data.startswith(b"\n"):
            cut, rest = 0, 1
        else:
            cut = data.find(b"\n\n")
            rest = cut + 2
        if cut < 0:
            self._hold(data)
            return []
        block = self.rest() + data[:cut]
        return [block, *self._split(data[rest:])]

    def rest(self) -> bytes:
        """Takes out what stands behind the last blank line."""
        block = b"".join(self._pending)
        self._pending, self._held = [], 0
        return block

    def _split(self, data: bytes) -> list[bytes]:
        blocks = data.split(b"\n\n")
        self._hold(blocks.pop())
        return blocks

    def _hold(self, data: bytes) -> None:
        if not data:
            return
        self._pending.append(data)
        self._held += len(data)
        # One more than the cap: the last byte may be the first half of the blank line.
        self.overflow = self.overflow or self._held > self._block_max + 1

    def _line_feeds(self, data: bytes) -> bytes:
        if self._skip_lf and data.startswith(b"\n"):
            data = data[1:]
            self._skip_lf = False
        if data:
            self._skip_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
