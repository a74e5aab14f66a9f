"""One request's row: how it ended, by the rules of success, and its columns, times relative to the Point's begin.

No clock and no I/O. It must not know how the Trace or the Parsed came about, nor the window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.record import IDENTITY, MAX_ERROR_CHARS, REQUEST, Outcome, names
from loadgen.sse import COUNT_MAX, Parsed
from loadgen.trace import Trace

# Ways in which the transport may end after the dialect's end mark: the answer is whole all the same.
HARMLESS_AFTER_END = frozenset(
    {Outcome.CONNECTION_LOST, Outcome.TIMEOUT_STALL, Outcome.TIMEOUT_TOTAL, Outcome.CUT, Outcome.MALFORMED}
)
ECHO_CHARS = 16  # so much of a text in an error message is an echo, not chance
ECHO_SHORT_CHARS = 8  # of a whole text that is shorter
KEY_CHARS_MIN = 4  # of a key's beginning: less of it tells nothing
OWN_TEXT = "... (the request's own text)"
TIMES = ("first_chunk_ns", "first_token_ns", "first_answer_ns", "last_token_ns")
COLUMNS = names(IDENTITY) + names(REQUEST)


@dataclass(frozen=True)
class Asked:
    """What the plan says of one request; `planned_ns` on the monotonic clock, `freed_ns` None for a stream's first.

    `history` is what was said in its conversation since the first question, its own included.
    """

    seq: int
    prompt_id: str
    prompt_kind: str
    planned_tokens: int
    ignore_eos: bool
    planned_ns: int | None = None
    freed_ns: int | None = None
    planned_prompt_tokens: int | None = None
    conversation: int | None = None
    turn: int | None = None
    place: int = 0  # the endpoint's, of several
    endpoint: str | None = None
    history: tuple[Mapping[str, Any], ...] = ()


def outcome_of(trace: Trace, parsed: Parsed) -> tuple[Outcome, str | None]:
    """How a request ended, and why where it was not well."""
    outcome = trace.outcome
    if parsed.done_seen and outcome in HARMLESS_AFTER_END:
        outcome = None
    if outcome not in (None, Outcome.CONNECTION_LOST):
        return outcome, trace.error
    if parsed.too_large:
        return Outcome.TOO_LARGE, parsed.too_large
    if parsed.error:
        return Outcome.ERROR_EVENT, parsed.error
    if outcome is not None:
        return outcome, trace.error
    if parsed.malformed:
        return Outcome.MALFORMED, parsed.malformed
    if not parsed.done_seen and parsed.finish_reason is None:
        return Outcome.TRUNCATED, "the stream ended without a finish reason and without its end mark"
    if not parsed.chunk_ns:
        return Outcome.EMPTY, "the stream ended well and carried no output"
    return Outcome.OK, None


def private(error: str | None, texts: Sequence[str], key: str | None) -> str | None:
    """`error` without the API key, and cut where it begins to repeat one of `texts`, asked or answered.

    Servers echo all of it in what they complain of.
    """
    if error is None:
        return None
    if key:
        error = _without_key(error, key)
    for text in texts:
        # An echo of a text of less than one and a half pieces need not hold a piece whole.
        if ECHO_SHORT_CHARS <= len(text) < 3 * ECHO_CHARS // 2 and (found := error.find(text)) >= 0:
            error = error[:found] + OWN_TEXT
    # Every second half of a piece: an echo of one and a half pieces holds one of these whole.
    for at in range(0, len(error) - ECHO_CHARS + 1, ECHO_CHARS // 2):
        piece = error[at : at + ECHO_CHARS]
        if any(piece in text for text in texts):
            error = error[: max(0, at - ECHO_CHARS // 2)] + OWN_TEXT
            break
    return error[:MAX_ERROR_CHARS]


def _without_key(error: str, key: str) -> str:
    """Without the key, and without its beginning where the words were cut in the midst of it."""
    error = error.replace(key, "***")
    begun = [size for size in range(KEY_CHARS_MIN, len(key)) if error.endswith(key[:size])]
    return error[: -begun[-1]] + "***" if begun else error


def build(
    asked: Asked,
    trace: Trace,
    parsed: Parsed,
    outcome: Outcome,
    error: str | None,
    start_ns: int,
    fixed: Mapping[str, Any],
) -> dict[str, Any]:
    """The row, with every column of IDENTITY and REQUEST; `fixed` holds those that all rows of a worker share."""

    def since(stamp: int | None) -> int | None:
        return None if stamp is None else stamp - start_ns

    refill = None if asked.freed_ns is None or trace.sent_ns is None else trace.sent_ns - asked.freed_ns
    told = parsed.token_source == "usage"
    known = {
        **fixed,
        **unsent(asked, start_ns=start_ns),
        **{name: since(getattr(parsed, name)) for name in TIMES},
        "sent_ns": since(trace.sent_ns),
        "headers_ns": since(trace.headers_ns),
        "done_ns": since(trace.done_ns),
        "address": trace.address,
        "dns_ns": trace.dns_ns,
        "connect_ns": trace.connect_ns,
        "tls_ns": trace.tls_ns,
        "refill_ns": refill,
        "chunk_ns": [stamp - start_ns for stamp in parsed.chunk_ns],
        "chunk_tokens": parsed.chunk_tokens,
        "prompt_tokens": parsed.prompt_tokens,
        "output_tokens": parsed.output_tokens,
        "cached_tokens": parsed.cached_tokens,
        "token_source": parsed.token_source,
        "spec_verify_steps": parsed.spec_verify_steps,
        "bytes": trace.size,
        "reads": len(trace.parts),
        "done_seen": parsed.done_seen,
        "short": outcome is Outcome.OK and asked.ignore_eos and told and parsed.output_tokens < asked.planned_tokens,
        "answer_sha256": parsed.answer_sha256,
        "outcome": str(outcome),
        "http_status": trace.http_status,
        "retry_after": trace.retry_after,
        "error": error,
        "finish_reason": parsed.finish_reason,
        **_counts(trace.usage),
    }
    return {name: known.get(name) for name in COLUMNS}


def _counts(usage: Any) -> dict[str, Any]:
    """The columns in the usage of an answer that was no stream: it has no times, but its work was done."""
    told = usage if isinstance(usage, dict) else {}
    prompt, output = told.get("prompt_tokens"), told.get("completion_tokens")
    if not all(value.__class__ is int and 0 <= value <= COUNT_MAX for value in (prompt, output)):
        return {}
    return {"prompt_tokens": prompt, "output_tokens": output, "token_source": "usage"}


def unsent(asked: Asked, fixed: Mapping[str, Any] | None = None, start_ns: int = 0) -> dict[str, Any]:
    """What a row says of a request that was planned; with `fixed`, the whole row of one that was never sent."""
    plan = {
        "seq": asked.seq,
        "prompt_id": asked.prompt_id,
        "prompt_kind": asked.prompt_kind,
        "conversation": asked.conversation,
        "turn": asked.turn,
        "endpoint": asked.endpoint,
        "planned_prompt_tokens": asked.planned_prompt_tokens,
        "planned_tokens": asked.planned_tokens,
        "planned_ns": None if asked.planned_ns is None else asked.planned_ns - start_ns,
    }
    if fixed is None:
        return plan
    row = {**fixed, **plan, "outcome": str(Outcome.UNSENT), "chunk_ns": [], "done_seen": False, "short": False}
    return {name: row.get(name) for name in COLUMNS}
