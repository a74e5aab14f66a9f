"""What a server writes: how far its start has come, and its last lines.

It must not know of processes; a log that cannot be read is an empty one.
"""

import os
from pathlib import Path

TAIL_LINES = 50
# 50 lines of a traceback are some kilobytes; more is read where lines are long.
TAIL_BYTES = 64 * 1024
LINE_CHARACTERS_MAX = 500

# What a starting SGLang writes, in order, and what that means.
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
)


def progress(log: Path) -> str:
    """How far the start has come, from the log's last milestone."""
    text = _end_of(log)
    latest = max(MILESTONES, key=lambda milestone: text.rfind(milestone[0]))
    return latest[1] if latest[0] in text else "starting"


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, long ones cut."""
    return "\n".join(line[:LINE_CHARACTERS_MAX] for line in _end_of(log).splitlines()[-lines:])


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
