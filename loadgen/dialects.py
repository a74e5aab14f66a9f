"""What one JSON event of a stream says, in the three dialects: chat, completions, generate.

Pure: one event in, one Piece out. It must not know of streams, stamps or counts over time, and raises for nothing that
a server may send.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from loadgen.record import MAX_ERROR_CHARS

# (answer text, output that is not answer text, finish reason, usage, whether an empty delta may stand for a token)
Piece = tuple[str, bool, Any, Any, bool]


def load(data: bytes) -> dict[str, Any] | None:
    """The JSON object in `data`, None where it is none."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def body_message(body: bytes) -> str | None:
    """The message in the body of an HTTP error, None where it is no JSON that holds one."""
    told = load(body) or {}
    return error_message(told) or error_message({"error": told.get("message") or told.get("detail")})


def error_message(value: Any) -> str | None:
    """The message inside a server's error object (at most 200 characters), None where `value` holds no error."""
    if not isinstance(value, Mapping):
        return None
    told = value.get("error")
    if not told and value.get("object") == "error":
        told = value
    if not told:
        return None
    if isinstance(told, Mapping):
        told = told.get("message") or told.get("type") or told.get("code") or "an error without a message"
    return str(told)[:MAX_ERROR_CHARS]


def _choices(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The event's choices, as far as they are objects."""
    choices = event.get("choices")
    if choices.__class__ is not list:
        return []
    if len(choices) == 1 and choices[0].__class__ is dict:  # nearly every event
        return choices
    return [one for one in choices if isinstance(one, dict)]


def _chat(event: Mapping[str, Any]) -> Piece:
    text, hidden, finish, empty = "", False, None, False
    for choice in _choices(event):
        finish = choice.get("finish_reason") or finish
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            continue
        content = delta.get("content")
        if content.__class__ is str:
            text += content
        elif content:
            hidden = True
        if delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls"):
            hidden = True
        empty = empty or not delta.get("role")
    return text, hidden, finish, event.get("usage"), empty


def _completions(event: Mapping[str, Any]) -> Piece:
    text, finish, empty = "", None, False
    for choice in _choices(event):
        empty = True
        finish = choice.get("finish_reason") or finish
        content = choice.get("text")
        if content.__class__ is str:
            text += content
    return text, False, finish, event.get("usage"), empty


def _generate(event: Mapping[str, Any]) -> Piece:
    text, meta = event.get("text"), event.get("meta_info")
    if not isinstance(meta, dict):
        meta = {}
    return text if text.__class__ is str else "", False, meta.get("finish_reason"), meta, True  # type: ignore[return-value]


DIALECTS: dict[str, Callable[[Mapping[str, Any]], Piece]] = {
    "chat": _chat,
    "completions": _completions,
    "generate": _generate,
}
