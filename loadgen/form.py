"""The form that a server's events share: one token's event differs from the next in its text and in some numbers.

Pure: learned from one event, it reads the others without JSON, and only those that cannot mean anything else. It must
not know of streams, stamps or counts over time.
"""

import re
from dataclasses import dataclass
from typing import Any

from loadgen.dialects import DIALECTS, Piece, load

FORM_BYTES_MAX = 1024  # of an event to learn from: compiling takes a millisecond for as many, and tokens are shorter
HOLES_MAX = 24  # a token's event has about five
LEARNED = ("chat", "completions")  # a /generate event repeats the text before it, or not: the whole path must tell
OUTPUT = frozenset({b"content", b"text", b"reasoning_content", b"reasoning"})

# A member whose value is a string without escapes or a plain number. In a whole JSON text these bytes cannot be
# anything else: a quote that stands before a letter opens a string, one before a colon closes it.
MEMBER = re.compile(rb'"([a-z_]{1,40})":(?:"([^"\\\x00-\x1f]*)"|(0|[1-9][0-9]{0,17})(?=[,}]))')
TEXT = rb'(?P<text>[^"\\\x00-\x1f]++)'
NAME = rb'[^"\\\x00-\x1f\x80-\xff]*+'
DIGITS = rb"[0-9]++"
NUMBER = rb"(?:0|[1-9][0-9]{0,17}+)"
USAGE = b'"usage":'


@dataclass(frozen=True)
class Hole:
    """A place in the event: what the pattern has there, and what the trial has."""

    start: int
    end: int
    pattern: bytes
    trial: bytes


@dataclass(frozen=True)
class Form:
    """`pattern` matches whole events, blank line included: group `text`, and `usage` (JSON) where `counts`."""

    pattern: re.Pattern[bytes]
    answer: bool  # the text is answer text; else hidden output
    counts: bool


def learn(api: str, event: bytes) -> Form | None:
    """The form of `event` (`data: {...}` and its blank line), None where it is no plain token."""
    if api not in LEARNED or len(event) > FORM_BYTES_MAX or event.find(b"\n") != len(event) - 2:
        return None
    if not event.startswith(b"data: {") or not event.endswith(b"}\n\n") or (piece := _piece(api, event)) is None:
        return None
    holes = _holes(event)
    if len(holes) > HOLES_MAX or sum(hole.pattern is TEXT for hole in holes) != 1:
        return None
    counts = piece[3].__class__ is dict
    if counts:
        holes = sorted(holes + _around_usage(event, piece[3]), key=lambda hole: (hole.start, hole.end))
    form = Form(re.compile(_pattern(event, holes)), bool(piece[0]), counts)
    return form if _holds(api, form, _trial(event, holes)) else None


def _piece(api: str, event: bytes) -> Piece | None:
    """What a token's event says; None where it may say more than output and usage."""
    value = load(event[6:])
    if value is None or "error" in value or "sglext" in value or value.get("object") == "error":
        return None
    piece = DIALECTS[api](value)
    text, hidden, finish, _, _ = piece
    return piece if (text or hidden) and not finish else None


def _holes(event: bytes) -> list[Hole]:
    holes: list[Hole] = []
    for member in MEMBER.finditer(event):
        name, text, number = member.groups()
        start, end = member.span(3 if text is None else 2)
        if number is not None:
            holes.append(Hole(start, end, NUMBER, b"7"))
        elif name in OUTPUT and text:
            holes.append(Hole(start, end, TEXT, b"tried"))
        elif name == b"id":
            holes.append(Hole(start, end, NAME, b"tried-too"))
        elif text.isdigit():
            holes.append(Hole(start, end, DIGITS, b"77"))
    return holes


def _around_usage(event: bytes, usage: dict[str, Any]) -> list[Hole]:
    """The two ends of a group around the usage object; none where it is not found, and the trial then fails."""
    start = event.find(USAGE) + len(USAGE)
    end = start
    while (end := event.find(b"}", end) + 1) > 0:
        if load(event[start:end]) == usage:
            return [Hole(start, start, b"(?P<usage>", b""), Hole(end, end, b")", b"")]
    return []


def _between(event: bytes, holes: list[Hole]) -> list[bytes]:
    """What stands before, between and behind the holes."""
    starts, ends = [hole.start for hole in holes], [hole.end for hole in holes]
    return [event[i:j] for i, j in zip([0, *ends], [*starts, len(event)], strict=True)]


def _pattern(event: bytes, holes: list[Hole]) -> bytes:
    first, *rest = map(re.escape, _between(event, holes))
    return first + b"".join(hole.pattern + after for hole, after in zip(holes, rest, strict=True))


def _trial(event: bytes, holes: list[Hole]) -> bytes:
    first, *rest = _between(event, holes)
    return first + b"".join(hole.trial + after for hole, after in zip(holes, rest, strict=True))


def _holds(api: str, form: Form, trial: bytes) -> bool:
    """Whether the form reads an event with other values in its holes as the whole path does."""
    found, piece = form.pattern.fullmatch(trial), _piece(api, trial)
    if found is None or piece is None:
        return False
    text, hidden, _, usage, _ = piece
    if text != ("tried" if form.answer else "") or not (form.answer or hidden):
        return False
    told = found.groupdict().get("usage")
    return (load(told) if told is not None else None) == (usage if usage.__class__ is dict else None)
