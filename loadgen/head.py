"""What the head of a response decides: a stream to keep, a small body, or a refusal with the server's own message.

`message` is aiohttp's parsed head (code, headers, chunked, compression), `content` its reader of the body.
"""

import asyncio
import contextlib
from typing import Any

from loadgen.dialects import body_message
from loadgen.record import Outcome

ERROR_BODY_BYTES = 4096  # enough for a server's message
ERROR_BODY_S_MAX = 5.0  # a server that is failing may not finish its error page either
JSON_TYPE = "application/json"  # a stream never has it; an error, or streaming that is off, does


def is_stream(message: Any) -> bool:
    """Whether a response's body is worth keeping read by read: all else is small, and aiohttp's."""
    return message.code == 200 and message.chunked and not message.compression and _kind(message) != JSON_TYPE


def _kind(message: Any) -> str:
    return str(message.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


async def refusal(message: Any, content: Any) -> tuple[Outcome, str] | None:
    """Why this head means that no stream is to be read, or None."""
    status = message.code
    if 300 <= status < 400:
        return Outcome.REDIRECT, f"HTTP {status}: redirects are not followed; give the final address"
    if status != 200:
        return Outcome.HTTP_STATUS, await _error_body(status, content) or f"HTTP {status}"
    if message.headers.get("Content-Encoding", "identity").lower() != "identity":
        return Outcome.ENCODING, "the body is compressed although identity was asked for"
    if _kind(message) == JSON_TYPE:
        told = await _error_body(status, content)
        return Outcome.MALFORMED, told or "one JSON body instead of an event stream: streaming is off at the server"
    return None


async def _error_body(status: int, content: Any) -> str | None:
    """The server's own message, where the body's first 4 KiB are JSON that holds one."""
    body = b""
    with contextlib.suppress(Exception):  # however the page ends: the status alone says enough
        async with asyncio.timeout(ERROR_BODY_S_MAX):
            while len(body) < ERROR_BODY_BYTES and (more := await content.read(ERROR_BODY_BYTES - len(body))):
                body += more
    message = body_message(body)
    return f"HTTP {status}: {message}" if message else None
