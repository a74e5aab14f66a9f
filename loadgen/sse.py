"""One response's event stream into what it carried: stamps, tokens, text, and how it ended.

Pure: it is handed bytes with the stamp of the read that brought them, after the fact. It must not know where they come
from, what time it is, or what was asked. Nothing here raises for what a server sent; work is linear in the bytes.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.dialects import DIALECTS, error_message, load
from loadgen.form import FORM_BYTES_MAX, Form, learn
from loadgen.framing import Blocks, fields
from loadgen.record import MAX_ERROR_CHARS

EVENT_BYTES_MAX = 8 << 20  # far above any real event (a 700 KiB one was seen), far below a worker's memory
RESPONSE_BYTES_MAX = 64 << 20  # times the streams of a worker: still a machine's memory
COUNT_MAX = 2**31 - 1  # the dataset's int32; no answer is that long
FINISH_CHARS_MAX = 40  # a finish reason is a word
LESSONS_MAX = 4  # of one response: a role, a finish reason and usage come by and teach nothing
ABORTS = frozenset({"abort", "error"})  # finish reasons by which a server says that it gave up


@dataclass(slots=True)
class Parsed:
    """What one response carried. Stamps are those of the reads that completed the events (ns), None where none came."""

    first_chunk_ns: int | None = None
    first_token_ns: int | None = None
    first_answer_ns: int | None = None
    last_token_ns: int | None = None
    chunk_ns: list[int] = field(default_factory=list)
    chunk_tokens: list[int] | None = None
    prompt_tokens: int | None = None
    output_tokens: int = 0
    cached_tokens: int | None = None
    token_source: str = "events"
    spec_verify_steps: int | None = None
    done_seen: bool = False
    finish_reason: str | None = None
    answer_sha256: str | None = None
    text: str | None = None
    error: str | None = None
    malformed: str | None = None
    too_large: str | None = None


class Reader:
    """Reads one response: feed() its bytes in order, any number of times, then finish()."""

    def __init__(
        self,
        api: str,
        *,
        keep_text: bool = False,
        event_bytes: int = EVENT_BYTES_MAX,
        response_bytes: int = RESPONSE_BYTES_MAX,
        form: Form | None = None,
    ) -> None:
        self._api, self._dialect, self._keep_text = api, DIALECTS[api], keep_text
        self._event_max, self._response_max = event_bytes, response_bytes
        self._blocks = Blocks(event_bytes)
        self._out = Parsed()
        self._bytes = 0
        self._shut = False  # end mark or cap: what follows is ignored
        self._last_ns = 0
        self._tokens: int | None = None  # the server's latest count
        self._counts: list[int | None] = []  # its count at each event that carried output
        self._parts: list[str] = []
        self._whole: str | None = ""  # /generate: the text so far while every event repeats it, else None
        self._lengths: list[int] = []
        self.form = form  # how a token's event looks here; for the next response of the same server too
        self._lessons = LESSONS_MAX

    def feed_all(self, stamps_ns: Sequence[int], parts: Sequence[bytes]) -> None:
        """Takes several reads, each with its stamp; as feed() for each, and quicker where tokens look alike."""
        sizes = list(map(len, parts))
        capped = self._bytes + sum(sizes) > self._response_max or max(sizes, default=0) > self._event_max
        number = 0
        while number < len(parts):
            number, at = (number, 0) if capped else self._alike(stamps_ns, parts, number)
            if number < len(parts):
                teaches = self._lessons and self._out.first_token_ns is not None and self._blocks.empty
                self.feed(stamps_ns[number], parts[number][at:])
                if teaches and not self._shut:
                    self._learn(parts[number], at)
                number += 1

    def _alike(self, stamps_ns: Sequence[int], parts: Sequence[bytes], number: int) -> tuple[int, int]:
        """Takes events of the known form from read `number` on; read and byte of the first other one."""
        form, out, at = self.form, self._out, 0
        # The first output goes the whole way, which notes its stamps.
        first = out.first_answer_ns if form is not None and form.answer else out.first_token_ns
        if form is None or first is None or self._shut or not self._blocks.empty:
            return number, 0
        match, answer, counts = form.pattern.match, form.answer, form.counts
        keep_text, keep_count, keep_stamp = self._parts.append, self._counts.append, out.chunk_ns.append
        while number < len(parts):
            data, stamp, at = parts[number], stamps_ns[number], 0
            size = len(data)
            while at < size and (found := match(data, at)) is not None:
                try:
                    text = str(found["text"], "utf-8")
                except UnicodeDecodeError:
                    break
                if answer:
                    keep_text(text)
                keep_count(self._usage(load(found["usage"]) or {}) if counts else None)
                keep_stamp(stamp)
                at = found.end()
            if at:
                self._bytes += at
                out.last_token_ns = self._last_ns = stamp
            if at < size:
                return number, at
            number += 1
        return number, 0

    def _learn(self, data: bytes, at: int) -> None:
        """Takes the form of the event at `at`; one with an escape in it says nothing about the others."""
        end = data.find(b"\n\n", at, at + FORM_BYTES_MAX) + 2
        if end > 1 and data.find(b"\\", at, end) < 0:
            self._lessons -= 1
            self.form = learn(self._api, data[at:end]) or self.form

    def feed(self, stamp_ns: int, data: bytes) -> None:
        """Takes the bytes of one read of the body, stamped `stamp_ns`."""
        if self._shut:
            return
        self._last_ns = stamp_ns
        self._bytes += len(data)
        if self._bytes > self._response_max:
            self._overflow(f"the response is longer than {self._response_max} bytes")
            return
        for block in self._blocks.feed(data):
            self._block(stamp_ns, block)
            if self._shut:
                return
        if self._blocks.overflow:
            self._overflow(f"an event is longer than {self._event_max} bytes")

    @property
    def output_seen(self) -> bool:
        """Whether generated output has come so far."""
        return self._out.first_token_ns is not None

    def finish(self) -> Parsed:
        """What the response carried, once the body has ended, however it ended."""
        out = self._out
        if not self._shut:
            self._unfinished(self._blocks.rest())
        if self._bytes and out.first_chunk_ns is None:
            self._malformed(f"no event in {self._bytes} bytes")
        self._count()
        if self._parts:
            text = "".join(self._parts)
            out.answer_sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            out.text = text if self._keep_text else None
        return out

    def _unfinished(self, block: bytes) -> None:
        """A last event without its blank line: taken when it is whole, otherwise the stream was cut in it."""
        data, _ = fields(block.strip(b"\n"))
        if data.strip() == b"[DONE]" or load(data) is not None:
            self._block(self._last_ns, block)

    def _block(self, stamp_ns: int, block: bytes) -> None:
        if len(block) > self._event_max:
            self._overflow(f"an event is longer than {self._event_max} bytes")
            return
        if block.startswith(b"data: {") and b"\n" not in block:
            data, named_error = block[6:], False
        else:
            data, named_error = fields(block)
        if not data:
            return
        out = self._out
        if out.first_chunk_ns is None:
            out.first_chunk_ns = stamp_ns
        if data[:1] != b"{" and data.strip() == b"[DONE]":
            out.done_seen = self._shut = True
            return
        event = load(data)
        if named_error:
            out.error = out.error or error_message({"error": event or "an event named error"})
        elif event is None:
            self._malformed("an event is not a JSON object")
        else:
            self._event(stamp_ns, event)

    def _event(self, stamp_ns: int, event: Mapping[str, Any]) -> None:
        out = self._out
        if "error" in event or event.get("object") == "error":
            out.error = out.error or error_message(event)
        text, hidden, finish, usage, empty = self._dialect(event)
        if finish:
            self._finish_reason(finish)
        before = self._tokens
        count = self._usage(usage) if usage.__class__ is dict else None
        if "sglext" in event:
            self._spec(event["sglext"])
        if text and self._api == "generate":
            text = self._news(text)
        grew = empty and count is not None and self._grew(before, count)
        if text:
            self._parts.append(text)
            if out.first_answer_ns is None:
                out.first_answer_ns = stamp_ns
        elif not (hidden or grew):
            return
        if out.first_token_ns is None:
            out.first_token_ns = stamp_ns
        out.last_token_ns = stamp_ns
        out.chunk_ns.append(stamp_ns)
        self._counts.append(count)

    def _grew(self, before: int | None, count: int) -> bool:
        """Whether an event's count says that it brought a token; a first count behind uncounted output does not."""
        if before is None:
            return count > 0 and not self._counts
        return count > before

    def _usage(self, usage: Mapping[str, Any]) -> int | None:
        """Takes the counts of one event; its completion tokens, None where it tells none."""
        out = self._out
        for name in ("prompt_tokens", "cached_tokens", "spec_verify_ct"):
            if (value := usage.get(name)) is not None and self._is_count(name, value):
                setattr(out, "spec_verify_steps" if name == "spec_verify_ct" else name, value)
        details = usage.get("prompt_tokens_details")
        if details.__class__ is dict and (cached := details.get("cached_tokens")) is not None:
            out.cached_tokens = cached if self._is_count("cached_tokens", cached) else out.cached_tokens
        count = usage.get("completion_tokens")
        if count is None or not self._is_count("completion_tokens", count):
            return None
        if self._tokens is not None and count < self._tokens:
            self._malformed(f"usage fell from {self._tokens} to {count} tokens")
        self._tokens = count
        return count

    def _is_count(self, name: str, value: Any) -> bool:
        if value.__class__ is int and 0 <= value <= COUNT_MAX:
            return True
        self._malformed(f"usage: {name} is not a count")
        return False

    def _spec(self, extension: Any) -> None:
        details = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
        steps = details.get("spec_verify_ct") if isinstance(details, dict) else None
        if steps is not None and self._is_count("spec_verify_ct", steps):
            self._out.spec_verify_steps = steps

    def _finish_reason(self, finish: Any) -> None:
        message = ""
        if isinstance(finish, dict):
            message, finish = str(finish.get("message") or ""), finish.get("type")
        reason = str(finish)[:FINISH_CHARS_MAX]
        self._out.finish_reason = reason
        if reason in ABORTS and self._out.error is None:
            self._out.error = f"finish reason {reason}: {message}".rstrip(": ")[:MAX_ERROR_CHARS]

    def _news(self, text: str) -> str:
        """The new part of a /generate event's text; whether events repeat what came before shows by their prefixes."""
        if self._whole is None:
            return text
        if text.startswith(self._whole):
            news = text[len(self._whole) :]
            self._whole = text
            self._lengths.append(len(text))
            return news
        self._parts = [self._whole[:length] for length in self._lengths]
        self._whole = None
        return text

    def _count(self) -> None:
        out = self._out
        if self._tokens is None:
            out.output_tokens = len(out.chunk_ns)
            return
        out.output_tokens, out.token_source = self._tokens, "usage"
        if not self._tokens and out.chunk_ns:
            self._malformed(f"usage says 0 tokens, {len(out.chunk_ns)} events carried output")
        if self._counts and None not in self._counts and not out.malformed:
            out.chunk_tokens = list(_steps(self._counts))  # type: ignore[arg-type]

    def _malformed(self, reason: str) -> None:
        self._out.malformed = self._out.malformed or reason

    def _overflow(self, reason: str) -> None:
        self._out.too_large, self._shut = reason, True


def _steps(counts: list[int]) -> Iterator[int]:
    before = 0
    for count in counts:
        yield count - before
        before = count
