"""What the head of a response decides: a stream to keep, a small body, or a refusal with the server's own message.

`message` is aiohttp's parsed head (code, headers, chunked, compression), `content` its reader of the body.
"""

import asyncio
import contextlib
import re
from typing import Any

from loadgen.dialects import body_message, load
from loadgen.record import Outcome
from loadgen.trace import Trace

ERROR_BODY_BYTES = 4096  # enough for a server's message
WHOLE_BODY_BYTES = 1 << 16  # an answer in one piece, for its counts
RETRY = re.compile(r"\d{1,10}(\.\d{1,3})?|[A-Z][a-z]{2}, [\dA-Za-z :]{1,30} GMT")  # seconds or a date, nothing else
ERROR_BODY_S_MAX = 5.0  # a server that is failing may not finish its error page either
JSON_TYPE = "application/json"  # a stream never has it; an error, or streaming that is off, does


def is_stream(message: Any) -> bool:
    """Whether a response's body is worth keeping read by read: all else is small, and aiohttp's."""
    return message.code == 200 and message.chunked and not _is_encoded(message) and _kind(message) != JSON_TYPE


def _is_encoded(message: Any) -> bool:
    """Whether the body is compressed, in a way that aiohttp knows or in another."""
    return bool(message.headers.get("Content-Encoding", "identity").strip().lower() != "identity")


def _kind(message: Any) -> str:
    return str(message.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


async def refusal(message: Any, content: Any, trace: Trace) -> tuple[Outcome, str] | None:
    """Why this head means that no stream is to be read, or None; `trace` is told what else the response says."""
    status = message.code
    if status != 200:
        asked = RETRY.fullmatch(message.headers.get("Retry-After", "").strip())
        trace.retry_after = asked and asked[0]
    if 300 <= status < 400:
        return Outcome.REDIRECT, f"HTTP {status}: redirects are not followed; give the final address"
    if status != 200:
        return Outcome.HTTP_STATUS, _said(status, await _beginning(content, ERROR_BODY_BYTES)) or f"HTTP {status}"
    if _is_encoded(message):
        return Outcome.ENCODING, "the body is compressed although identity was asked for"
    if _kind(message) == JSON_TYPE:
        body = await _beginning(content, WHOLE_BODY_BYTES)
        trace.usage = (load(body) or {}).get("usage")
        off = "one JSON body instead of an event stream: streaming is off at the server"
        return Outcome.MALFORMED, _said(status, body) or off
    return None


async def _beginning(content: Any, size: int) -> bytes:
    """The first bytes of a body, as far as they come in time."""
    body = b""
    with contextlib.suppress(Exception):  # however the page ends: the status alone says enough
        async with asyncio.timeout(ERROR_BODY_S_MAX):
            while len(body) < size and (more := await content.read(size - len(body))):
                body += more
    return body


def _said(status: int, body: bytes) -> str | None:
    """The server's own message, where the body is JSON that holds one."""
    message = body_message(body)
    return f"HTTP {status}: {message}" if message else None
