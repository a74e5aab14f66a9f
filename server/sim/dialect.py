"""The bytes of every event and answer in SGLang 0.5.9 and 0.5.23. Pure: no socket, clock or engine.

The first versions wrote every key, null or not (pydantic); later ones leave keys out and reorder them (msgspec).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
EOS_TOKEN = 151645
OBJECTS = {"chat": "chat.completion", "completions": "text_completion"}
NOT_YET = b'"logprobs":null,"finish_reason":null,"matched_stop":null}]'


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts of one answer so far. `cached` is None where the server does not report it."""

    prompt: int
    completion: int
    cached: int | None = None
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """What every event of one stream repeats. `stamp`: events carry their time of writing; `counted`: token counts."""

    version: str
    api: str
    id: str
    created: int
    model: str
    stamp: bool
    counted: bool
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """The constant bytes around an event's text: head + [stamp] + before + text + after + [tokens so far + end]."""

    stream: Stream
    head: bytes
    answer: tuple[bytes, bytes]
    thought: tuple[bytes, bytes]
    usage_end: bytes


def old(version: str) -> bool:
    """Whether this version writes every key of a chat event, null or not."""
    return version == "0.5.9"


def pieces(stream: Stream) -> Pieces:
    """The constant bytes of a chat or completions stream, made once for each request."""
    name = OBJECTS[stream.api] + (".chunk" if stream.api == "chat" else "")
    head = f'data: {{"id":"{stream.id}","object":"{name}","created":{stream.created},"model":'.encode()
    head += orjson.dumps(stream.model) + b"," + (b'"system_fingerprint":"' if stream.stamp else b"")
    begin = (b'",' if stream.stamp else b"") + b'"choices":[{"index":0,'
    if stream.counted:
        end = b',"usage":{"prompt_tokens":%d,"total_tokens":' % stream.prompt_tokens
    else:
        end = b',"usage":null}\n\n' if old(stream.version) or stream.api == "completions" else b"}\n\n"
    answer, thought = (
        (begin + before, after + b"," + NOT_YET + end) for before, after in _around_text(stream.version, stream.api)
    )
    usage_end = _usage_details(stream.version, stream.api, Counts(stream.prompt_tokens, 0)) + b"}\n\n"
    return Pieces(stream, head, answer, thought, usage_end)


def _around_text(version: str, api: str) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """What stands before and after an answer's text, and before and after a thought's."""
    if api == "completions":
        return (b'"text":"', b'"'), (b'"text":"', b'"')
    if old(version):
        return (
            (b'"delta":{"role":null,"content":"', b'","reasoning_content":null,"tool_calls":null}'),
            (b'"delta":{"role":null,"content":null,"reasoning_content":"', b'","tool_calls":null}'),
        )
    return (b'"delta":{"reasoning_content":null,"content":"', b'"}'), (b'"delta":{"reasoning_content":"', b'"}')


def text_event(p: Pieces, text: bytes, stamp_ns: int, completion: int, thought: bool = False) -> bytes:
    """One event with this much text (JSON-safe bytes), when `completion` tokens have been sent."""
    before, after = p.thought if thought else p.answer
    stream = p.stream
    if stream.stamp:
        before = b"%d%b" % (stamp_ns, before)
    if not stream.counted:
        return b"".join((p.head, before, text, after))
    numbers = b'%d,"completion_tokens":%d' % (stream.prompt_tokens + completion, completion)
    return b"".join((p.head, before, text, after, numbers, p.usage_end))


def other_event(p: Pieces, stamp_ns: int, choices: bytes, counts: Counts | None = None, more: bytes = b"") -> bytes:
    """An event without text: role, finish, usage (where counts are given), details (`more`, with a leading comma)."""
    version, api = p.stream.version, p.stream.api
    start = p.head + (b'%d",' % stamp_ns if p.stream.stamp else b"")
    null = b',"usage":null' if old(version) or api == "completions" else b""
    tail = b',"usage":' + usage(version, api, counts) if counts else null
    return b"".join((start, b'"choices":', choices, tail, more, b"}\n\n"))


def role_choices(version: str) -> bytes:
    """The choices of a chat stream's first event."""
    if old(version):
        delta = b'{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null}'
    else:
        delta = b'{"reasoning_content":null,"role":"assistant","content":""}'
    return b'[{"index":0,"delta":' + delta + b"," + NOT_YET


def finish_choices(version: str, api: str, reason: str) -> bytes:
    """The choices of the event that carries the finish reason."""
    if api == "completions":
        body = b'"text":""'
    elif old(version):
        body = b'"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}'
    else:
        body = b'"delta":{"reasoning_content":null}'
    matched = b"%d" % EOS_TOKEN if reason == "stop" else b"null"
    return b'[{"index":0,%b,"logprobs":null,"finish_reason":"%b","matched_stop":%b}]' % (body, reason.encode(), matched)


def _usage_details(version: str, api: str, counts: Counts) -> bytes:
    """The rest of a usage object after its three sums: a comma to begin with, its brace to end with."""
    # SGLang leaves the details null when nothing was cached, even with --enable-cache-report.
    cached = b'{"cached_tokens":%d}' % counts.cached if counts.cached else b"null"
    parts = [b""]
    if not (old(version) and api == "completions"):
        parts.append(b'"prompt_tokens_details":' + cached)
    if not old(version):
        parts.append(b'"completion_tokens_details":null')
    parts.append(b'"reasoning_tokens":%d}' % counts.reasoning)
    return b",".join(parts)


def usage(version: str, api: str, counts: Counts) -> bytes:
    """A whole usage object."""
    sums = (counts.prompt, counts.prompt + counts.completion, counts.completion)
    return b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % sums + _usage_details(version, api, counts)


def whole_answer(stream: Stream, text: str, thought: str, reason: str, counts: Counts) -> bytes:
    """The body of an answer that is not streamed (chat and completions)."""
    choice: dict[str, Any] = {"index": 0}
    if stream.api == "chat":
        choice["message"] = {
            "role": "assistant",
            "content": text,
            "reasoning_content": thought or None,
            "tool_calls": None,
        }
    else:
        choice["text"] = text
    choice |= {"logprobs": None, "finish_reason": reason, "matched_stop": EOS_TOKEN if reason == "stop" else None}
    body = {
        "id": stream.id,
        "object": OBJECTS[stream.api],
        "created": stream.created,
        "model": stream.model,
        "choices": [choice],
        "usage": orjson.Fragment(usage(stream.version, stream.api, counts)),
        "metadata": {"weight_version": "default"},
    }
    return orjson.dumps(body)


def generate_body(stream: Stream, text: str, ids: list[int], counts: Counts, meta: Mapping[str, Any]) -> bytes:
    """One answer of /generate, whole or so far. `meta` holds finish_reason and further meta_info keys."""
    info = {
        "id": stream.id,
        "finish_reason": None,
        "prompt_tokens": counts.prompt,
        "weight_version": "default",
        "total_retractions" if old(stream.version) else "num_retractions": 0,
        "completion_tokens": counts.completion,
        "cached_tokens": counts.cached or 0,
    }
    return orjson.dumps({"text": text, "output_ids": ids, "meta_info": info | dict(meta)})


def generate_finish(reason: str, completion: int) -> dict[str, Any]:
    """The finish_reason object of /generate."""
    if reason == "length":
        return {"type": "length", "length": completion}
    if reason == "stop":
        return {"type": "stop", "matched": EOS_TOKEN}
    return {"type": "abort", "message": "Aborted", "status_code": None}


@dataclass(frozen=True, slots=True)
class Speculation:
    """What one finished request's speculation came to. `histogram[k]` counts verify steps that accepted k drafts."""

    verify_steps: int
    accepted: int
    histogram: list[int]
    draft_tokens: int


def spec_details(version: str, completion: int, spec: Speculation) -> dict[str, Any]:
    """A finished request's speculation under the version's names."""
    verify_steps, accepted, histogram = spec.verify_steps, spec.accepted, spec.histogram
    proposed = verify_steps * (spec.draft_tokens - 1)
    names = (
        ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram")
        if old(version)
        else ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram")
    )
    # The first token, which has no verify step, is counted in the length as SGLang does.
    return {
        "spec_accept_rate": accepted / proposed if proposed else 0.0,
        "spec_accept_length": completion / verify_steps if verify_steps else 0.0,
        names[0]: accepted,
        names[1]: proposed,
        "spec_verify_ct": verify_steps,
        names[2]: histogram,
    }


def error_body(message: str, code: int = 400, kind: str = "BadRequestError") -> dict[str, Any]:
    """An error in SGLang's shape: the body of an HTTP error, or the inside of an error event."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def error_event(version: str, api: str, message: str, code: int = 500) -> bytes:
    """An error inside a stream whose status was 200."""
    if api != "generate":
        error = error_body(message, code, "InternalServerError")
    elif old(version):
        error = {"message": message}
    else:
        error = {"message": message, "type": "internal_error", "code": code, "retryable": False}
    return b"data: " + orjson.dumps({"error": error}) + b"\n\n"
