"""What is asked: every request of a Point as a pure function of its number, made before the clock starts.

A Plan never ends by itself (a closed loop takes as many requests as its window needs); `requests` bounds it where a
count was asked. Knows nothing of sockets, clocks or servers.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import orjson

from loadgen.arrivals import Process, Replay

CHARS_A_TOKEN = 4  # the usual rule of thumb for English text
WARM_UP_REQUESTS = 16  # compile and cache effects of an engine show in its first few batches


@dataclass(frozen=True)
class Prompt:
    """What is asked at once: `messages` are chat messages, the last one the user's.

    `later` are the user's messages of a conversation's later turns, each sent behind all that was said before it.
    """

    id: str
    kind: str
    messages: tuple[Mapping[str, Any], ...]
    later: tuple[Mapping[str, Any], ...] = ()
    shared: int = 0  # so many of the first messages are meant to be the same in several prompts
    tokens: int | None = None  # about how many it was made to have; None: as many as it has

    @property
    def text(self) -> str:
        """The conversation as plain text, for APIs without messages."""
        return "\n\n".join(map(said, self.messages))


def said(message: Mapping[str, Any]) -> str:
    """The text of a chat message; of content in parts, of those that are text."""
    content = message["content"]
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n\n".join(str(part["text"]) for part in parts if "text" in part)


def opened(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The chat message with `text` before its own."""
    content = message["content"]
    in_parts = isinstance(content, list)
    return {**message, "content": [{"type": "text", "text": text}, *content] if in_parts else f"{text}\n\n{content}"}


@dataclass(frozen=True)
class Plan:
    """All requests of a Point. `prompts` are in the order of asking; past their end they go round again, numbered.

    With `turns` above 1 each prompt is a conversation: request `seq` is turn `seq % turns` of conversation
    `seq // turns`, and a conversation of fewer turns leaves its last numbers out.
    """

    prompts: tuple[Prompt, ...]
    max_tokens: int
    ignore_eos: bool
    temperature: float
    seed: int
    numbered: bool = True  # rounds after the first get a numbered opening line, so that no two prompts are the same
    requests: int | None = None  # None: no end
    body: Mapping[str, Any] = field(default_factory=dict)  # merged into every request, last; null takes a field out
    output_tokens: tuple[int, ...] = ()  # asked of request after request, going round; none: max_tokens of each
    turns: int = 1  # the most turns of a conversation
    think_s: float = 0.0  # seconds between an answer and the next turn
    arrivals: Process | Replay | None = None  # open loop: when requests come; a Replay says how long they are, too

    def prompt(self, seq: int) -> Prompt:
        """The prompt of request `seq`, or of the conversation that it belongs to."""
        if isinstance(self.arrivals, Replay):
            return self._sized(seq, int(self.arrivals.input_tokens[seq]))
        return self._text(seq)

    def _sized(self, seq: int, tokens: int) -> Prompt:
        """Texts from `seq` on, one behind the other, cut at about `tokens`.

        Made when they are asked: a trace's prompts are hundreds of megabytes together.
        """
        first, size = self._text(seq), max(1, CHARS_A_TOKEN * tokens)  # a server refuses a question of nothing
        parts = [first.text]
        missing = size - len(parts[0])
        while missing > 0:
            parts.append(self._text(seq + len(parts)).text)
            missing -= len("\n\n") + len(parts[-1])
        asked = ({"role": "user", "content": "\n\n".join(parts)[:size]},)
        return Prompt(first.id, first.kind, asked, tokens=tokens)

    def _text(self, seq: int) -> Prompt:
        """The text that request `seq` asks, or begins with."""
        again, place = divmod(seq // self.turns, len(self.prompts))
        prompt = self.prompts[place]
        return numbered(prompt, again + 1) if again and self.numbered else prompt

    def tokens(self, seq: int) -> int:
        """The output tokens that request `seq` asks for, at most."""
        if isinstance(self.arrivals, Replay):
            return int(self.arrivals.output_tokens[seq])
        return self.output_tokens[seq % len(self.output_tokens)] if self.output_tokens else self.max_tokens

    def conversation(self, first: int) -> range:
        """The requests of the conversation that begins with request `first`; without turns that one alone."""
        end = first + 1 + (len(self.prompt(first).later) if self.turns > 1 else 0)
        return range(first, end if self.requests is None else min(end, self.requests))


def numbered(prompt: Prompt, reading: int) -> Prompt:
    """The prompt with a numbered opening line behind what it shares, so that it is another one."""
    at = min(prompt.shared, len(prompt.messages) - 1)
    first = opened(prompt.messages[at], f"Reading no. {reading}.")
    messages = (*prompt.messages[:at], first, *prompt.messages[at + 1 :])
    return replace(prompt, id=f"{prompt.id}#{reading}", messages=messages)


def by_kind(prompts: Iterable[Prompt]) -> list[list[Prompt]]:
    """The prompts of each kind, in their order; kinds in the order of their first ones."""
    kinds: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    return list(kinds.values())


def rounds(prompts: Sequence[Prompt], seed: int) -> tuple[Prompt, ...]:
    """The prompts in rounds that hold every kind once, order within kinds and rounds drawn from `seed`.

    Kinds with fewer texts than the largest leave the later rounds; those rounds hold the kinds that are left.
    """
    rng, kinds = random.Random(seed), by_kind(prompts)
    for texts in kinds:
        rng.shuffle(texts)
    ordered: list[Prompt] = []
    while any(kinds):
        one = [texts.pop() for texts in kinds if texts]
        rng.shuffle(one)
        ordered.extend(one)
    return tuple(ordered)


def payload(plan: Plan, seq: int, api: str, model_id: str, history: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The JSON body of request `seq` for `api` (chat, completions or generate); temperature is always explicit.

    `history` is what was said since a conversation's first question, the next one included; chat only.
    """
    prompt = plan.prompt(seq)
    if api == "generate":
        sampling = {"max_new_tokens": plan.tokens(seq), "ignore_eos": plan.ignore_eos, "temperature": plan.temperature}
        sampling = _merged(sampling, plan.body.get("sampling_params") or {})
        return _merged({"text": prompt.text, "stream": True}, {**plan.body, "sampling_params": sampling})
    body: dict[str, Any] = {
        "model": model_id,
        "max_tokens": plan.tokens(seq),
        "temperature": plan.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if plan.ignore_eos:
        body["ignore_eos"] = True
    asked = {"messages": [*prompt.messages, *history]} if api == "chat" else {"prompt": prompt.text}
    return _merged({**body, **asked}, plan.body)


def _merged(body: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    # Strict servers refuse fields that they do not know: null is the way to leave one of ours out.
    return {name: value for name, value in {**body, **given}.items() if value is not None}


def sendable(value: Any) -> bool:
    """Whether JSON carries the value as it is: no half of a character, number of more than 64 bits, NaN, odd key."""
    try:
        return bool(orjson.loads(orjson.dumps(value)) == value)
    except orjson.JSONEncodeError:
        return False


def slots(concurrency: int, workers: int, worker: int) -> range:
    """The numbers of the streams that `worker` holds, of 0 .. concurrency - 1; over all workers they add up exactly."""
    return range(worker, concurrency, workers)


def shard(plan: Plan, concurrency: int, workers: int, worker: int) -> Iterator[int]:
    """The requests that `worker` takes, in order: of every `concurrency` of them as many as it has streams.

    Of a conversation only the first: who takes that takes the others.
    """
    number = 0
    while plan.requests is None or number * plan.turns < plan.requests:
        if number % concurrency % workers == worker:
            yield number * plan.turns
        number += 1


def due(plan: Plan, workers: int, worker: int) -> Iterator[tuple[int, int]]:
    """The requests that `worker` takes of a plan with arrivals, and when each comes (ns since the Point's begin)."""
    assert plan.arrivals is not None
    return islice(enumerate(plan.arrivals.times_ns()), worker, plan.requests, workers)
