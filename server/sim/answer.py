"""One request's answer: its text, what of it has been sent, and the events it becomes.

It must not know of routes or of the engine's clock.
"""

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import orjson

from server.sim import dialect
from server.sim.connection import LAST_CHUNK, Connection, chunk
from server.sim.faults import FAULT_AT_TOKEN

# 256 words, one for each byte of the prompt's digest: a token is a word with its leading space, safe in JSON as it is.
SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za")
WORDS = [f" {first}{second}".encode() for first in SYLLABLES for second in SYLLABLES]
FIRST_TOKEN_ID = 1000
NATURAL_TOKENS = range(50, 801)  # Lengths of answers that end by themselves.
PAGE_BYTES = 256  # The engine's page of 64 tokens, at four bytes a token.
THOUGHT_SHARE = 4  # With a reasoning parser the first quarter of an answer is reasoning.
GARBAGE = b'data: {"id": \xff\xfe\x00 }{ not json\n\n'


@dataclass(frozen=True, slots=True)
class Wish:
    """What the request asked for, in whatever dialect it asked."""

    stream: dialect.Stream
    prompt: str
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    streamed: bool
    usage: bool
    spec_details: bool
    thinks: bool
    incremental: bool


def prompt_key(prompt: str) -> int:
    """A number that stands for the prompt's text: seed of its answer, its acceptance and its place in the cache."""
    return int.from_bytes(hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big")


def pages(text: str) -> list[int]:
    """A number for each whole page of the text, together with all that stands before it: what a prefix cache keeps."""
    data, hashed, found = text.encode("utf-8", "surrogatepass"), hashlib.blake2b(digest_size=7), []
    for end in range(PAGE_BYTES, len(data) + 1, PAGE_BYTES):
        hashed.update(data[end - PAGE_BYTES : end])
        found.append(int.from_bytes(hashed.digest(), "big"))
    return found


@dataclass(slots=True)
class Answer:
    """The answer to one request on one connection; `push` is told how many more tokens there are."""

    wish: Wish
    connection: Connection
    shown_cache: bool
    draft_tokens: int
    fault: str | None = None
    huge_bytes: int = 0
    started_ns: int = field(default_factory=time.monotonic_ns)
    sent: int = 0
    cached: int = 0
    total: int = 0
    reason: str = "length"
    key: int = 0
    thought_tokens: int = 0
    spec: dialect.Speculation | None = None
    over: bool = False
    _tokens: bytes = b""
    _pieces: dialect.Pieces | None = None
    _parts: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        wish = self.wish
        self.key = prompt_key(wish.prompt)
        natural = NATURAL_TOKENS[self.key % len(NATURAL_TOKENS)]
        self.total = wish.max_tokens
        if not wish.ignore_eos and max(natural, wish.min_tokens) <= wish.max_tokens:
            self.total, self.reason = max(natural, wish.min_tokens), "stop"
        self._tokens = hashlib.shake_128(self.key.to_bytes(8, "big")).digest(self.total)
        if wish.thinks:
            self.thought_tokens = self.total // THOUGHT_SHARE
        if wish.stream.api != "generate":
            self._pieces = dialect.pieces(wish.stream)

    def pages(self) -> list[int]:
        """Those of the prompt with the answer that it will get, as they come back with a conversation's next turn."""
        between = "\nassistant: " if self.wish.stream.api == "chat" else ""
        return pages(self.wish.prompt + between + self.words(self.thought_tokens, self.total).decode())

    def words(self, start: int, end: int) -> bytes:
        """The text of tokens [start, end); the token that ends an answer by itself has none."""
        if self.reason == "stop":
            end = min(end, self.total - 1)
        return b"".join([WORDS[byte] for byte in self._tokens[start:end]])

    def push(self, count: int) -> None:
        """Send the next `count` tokens, and the end after the last."""
        start, self.sent = self.sent, self.sent + count
        if not self.wish.streamed:
            if self.sent >= self.total:
                self._whole()
            return
        if self.fault is not None and self.sent >= min(FAULT_AT_TOKEN, self.total):
            self._strike()
            if self.over:
                return
        if self.sent < self.total and start > 0 and self._pieces is not None:
            # The path of nearly every event, kept short: 40,000 of them a second pass here.
            text = self.words(start, self.sent)
            event = dialect.text_event(self._pieces, text, time.monotonic_ns(), self.sent, start < self.thought_tokens)
            self.connection.send(b"%x\r\n%b\r\n" % (len(event), event))
            return
        events = self._generated(start) if self._pieces is None else self._chatted(self._pieces, start)
        self.connection.send(b"".join(map(chunk, events)))
        if self.sent >= self.total:
            self._end()

    def _chatted(self, p: dialect.Pieces, start: int) -> list[bytes]:
        """The events around the first and the last text of a chat or completions stream."""
        stream, stamp_ns = p.stream, time.monotonic_ns()
        events = []
        if start == 0 and stream.api == "chat":
            events.append(dialect.other_event(p, stamp_ns, dialect.role_choices(stream.version)))
        text = self.words(start, self.sent)
        # Chat sends no event for an empty delta; completions sends it.
        if text or stream.api == "completions":
            events.append(dialect.text_event(p, text, stamp_ns, self.sent, start < self.thought_tokens))
        if self.sent >= self.total:
            events += self._closing(p, stamp_ns)
        return events

    def _closing(self, p: dialect.Pieces, stamp_ns: int) -> list[bytes]:
        stream = p.stream
        events = [dialect.other_event(p, stamp_ns, dialect.finish_choices(stream.version, stream.api, self.reason))]
        if self.wish.spec_details and self.spec is not None:
            details = orjson.dumps(dialect.spec_details(stream.version, self.sent, self.spec))
            events.append(
                dialect.other_event(p, stamp_ns, b"[]", more=b',"sglext":{"spec_tokens_details":' + details + b"}")
            )
        if self.wish.usage:
            events.append(dialect.other_event(p, stamp_ns, b"[]", self._counts()))
        return [*events, dialect.DONE]

    def _counts(self) -> dialect.Counts:
        cached = self.cached if self.shown_cache else None
        return dialect.Counts(self.wish.stream.prompt_tokens, self.sent, cached, min(self.sent, self.thought_tokens))

    def _generated(self, start: int) -> list[bytes]:
        event = b"data: " + self._generate_body(start if self.wish.incremental else 0) + b"\n\n"
        return [event, dialect.DONE] if self.sent >= self.total else [event]

    def _generate_body(self, start: int) -> bytes:
        wish = self.wish
        meta: dict[str, Any] = {}
        if wish.stream.stamp:
            meta["system_fingerprint"] = str(time.monotonic_ns())
        if self.sent >= self.total:
            meta["finish_reason"] = dialect.generate_finish(self.reason, self.sent)
            meta["e2e_latency"] = (time.monotonic_ns() - self.started_ns) / 1e9
            if self.spec is not None:
                meta |= dialect.spec_details(wish.stream.version, self.sent, self.spec)
        counts = dialect.Counts(wish.stream.prompt_tokens, self.sent, self.cached)
        ids = [FIRST_TOKEN_ID + byte for byte in self._tokens[start : self.sent]]
        return dialect.generate_body(wish.stream, self.words(start, self.sent).decode(), ids, counts, meta)

    def _whole(self) -> None:
        if self._pieces is None:
            body = self._generate_body(0)
        else:
            thought = self.words(0, self.thought_tokens).decode()
            text = self.words(self.thought_tokens, self.sent).decode()
            body = dialect.whole_answer(self.wish.stream, text, thought, self.reason, self._counts())
        self.over = True
        self.connection.respond(200, body)

    def _end(self) -> None:
        self.over = True
        self.connection.send(LAST_CHUNK)
        self.connection.finish()

    def abort(self) -> None:
        """End the answer here with the finish reason `abort`."""
        self.total, self.reason = self.sent, "abort"
        if self.wish.streamed:
            events = self._closing(self._pieces, time.monotonic_ns()) if self._pieces else self._generated(self.sent)
            self.connection.send(b"".join(map(chunk, events)))
            self._end()
        else:
            self._whole()

    def _strike(self) -> None:
        """Do what the fault says, once; `over` when nothing may follow."""
        fault, self.fault = self.fault, None
        stream = self.wish.stream
        if fault == "cut_stream":
            self.over = True
            self.connection.cut()
        elif fault == "error_event":
            event = dialect.error_event(stream.version, stream.api, "simulated failure inside the stream")
            self.connection.send(chunk(event) + chunk(dialect.DONE))
            self._end()
        elif fault == "garbage":
            self.connection.send(chunk(GARBAGE))
        elif self._pieces is not None:
            text = b" huge" * (self.huge_bytes // 5)
            self.connection.send(chunk(dialect.text_event(self._pieces, text, time.monotonic_ns(), self.sent)))
