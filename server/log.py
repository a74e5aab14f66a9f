"""What a server writes: how far its start has come, and its last lines.

It must not know of processes; a log that cannot be read is an empty one.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

TAIL_LINES = 50
# 50 lines of a traceback are some kilobytes; more is read where lines are long.
TAIL_BYTES = 64 * 1024
LINE_CHARACTERS_MAX = 500

# A start that is silent for so long may be loading a large file, or stand still: it is shown, not judged.
QUIET_S = 30.0

# What a starting SGLang writes, in order, and what that means; then what vLLM does.
MILESTONES = (
    ("Init torch distributed begin", "joining the devices"),
    ("Init torch distributed ends", "devices joined"),
    ("Load weight begin", "loading weights"),
    ("Load weight end", "weights loaded"),
    ("KV Cache is allocated", "KV cache allocated"),
    ("Capture cuda graph begin", "capturing CUDA graphs"),
    ("Capture draft cuda graph begin", "capturing the draft's CUDA graphs"),
    ("max_total_num_tokens=", "engine built"),
    ("Uvicorn running on", "port bound"),
    ("The server is fired up and ready to roll!", "warmed up"),
    ("Starting to load model", "loading weights"),
    ("Loading weights took", "weights loaded"),
    ("KV cache size:", "KV cache allocated"),
    ("Capturing CUDA graphs", "capturing CUDA graphs"),
    ("Graph capturing finished", "engine built"),
    ("Application startup complete", "port bound"),
)
# After this an engine means to answer. SGLang's front end completes its startup before its own warm-up.
FIRED_UP = "The server is fired up and ready to roll!"
UP = {"vllm": "Application startup complete"}


def progress(log: Path) -> str:
    """How far the start has come, from the log's last milestone."""
    text = end_of(log)
    latest = max(MILESTONES, key=lambda milestone: text.rfind(milestone[0]))
    known = latest[1] if latest[0] in text else "starting"
    quiet_s = _quiet_s(log)
    return f"{known}; no new line for {quiet_s:.0f} s" if quiet_s > QUIET_S else known


def is_up(log: Path, engine: str) -> bool:
    """Whether the engine has said that it answers now."""
    return UP.get(engine, FIRED_UP) in end_of(log)


def _quiet_s(log: Path) -> float:
    """Seconds since the last line."""
    try:
        return time.time() - log.stat().st_mtime
    except OSError:
        return 0.0


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, long ones cut."""
    return "\n".join(line[:LINE_CHARACTERS_MAX] for line in end_of(log).splitlines()[-lines:])


def end_of(log: Path, size: int = TAIL_BYTES) -> str:
    """The last `size` bytes of a log as text."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


class Growing:
    """A log that is read as it grows: each whole line once, in pieces, so that a long one costs no memory."""

    def __init__(self, log: Path) -> None:
        self._log, self._read, self._rest = log, 0, b""

    def lines(self) -> Iterator[str]:
        """The whole lines since the last call; a line without an end waits for it, unless it is endless."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._read)
                while piece := file.read(TAIL_BYTES):
                    self._read += len(piece)
                    *whole, self._rest = (self._rest + piece).split(b"\n")
                    yield from (line.decode("utf-8", errors="replace") for line in whole)
                    self._rest = self._rest[:TAIL_BYTES]
        except OSError:
            return
