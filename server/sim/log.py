"""The server's log: one line at a time to standard error, in SGLang's format."""

import os
import time


def say(text: str, tag: str = "") -> None:
    """Write one line with the time and, for the scheduler, its tag."""
    write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{' ' + tag if tag else ''}] {text}")


def write(text: str) -> None:
    """Write one line as it is; a log that nobody reads any more is no reason to fail."""
    try:
        os.write(2, text.encode() + b"\n")
    except OSError:
        return
