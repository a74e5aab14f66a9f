"""What is asked: every request of a Point as a pure function of its number, made before the clock starts.

A Plan never ends by itself (a closed loop takes as many requests as its window needs); `requests` bounds it where a
count was asked. Knows nothing of sockets, clocks or servers.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from loadgen.arrivals import Process, Replay

CHARS_A_TOKEN = 4  # of English under common tokenizers; how long a prompt became, the server's prompt_tokens tell
WARM_UP_REQUESTS = 16  # compile and cache effects of an engine show in its first few batches


@dataclass(frozen=True)
class Prompt:
    """One text to ask, or a conversation: `messages` are chat messages, the last one the user's."""

    id: str
    kind: str
    messages: tuple[Mapping[str, Any], ...]

    @property
    def text(self) -> str:
        """The conversation as plain text, for APIs without messages."""
        return "\n\n".join(str(message["content"]) for message in self.messages)


@dataclass(frozen=True)
class Plan:
    """All requests of a Point. `prompts` are in the order of asking; past their end they go round again, numbered."""

    prompts: tuple[Prompt, ...]
    max_tokens: int
    ignore_eos: bool
    temperature: float
    seed: int
    numbered: bool = True  # rounds after the first get a numbered opening line, so that no two prompts are the same
    requests: int | None = None  # None: no end
    body: Mapping[str, Any] = field(default_factory=dict)  # merged into every request, last; null takes a field out
    arrivals: Process | Replay | None = None  # open loop: when requests come; a Replay says how long they are, too

    def prompt(self, seq: int) -> Prompt:
        """The prompt of request `seq`."""
        if not isinstance(self.arrivals, Replay):
            return self._text(seq)
        return self._sized(seq, CHARS_A_TOKEN * int(self.arrivals.input_tokens[seq]))

    def tokens(self, seq: int) -> int:
        """The output tokens that request `seq` asks for."""
        return int(self.arrivals.output_tokens[seq]) if isinstance(self.arrivals, Replay) else self.max_tokens

    def _sized(self, seq: int, chars: int) -> Prompt:
        """Texts from `seq` on, one behind the other, cut at `chars`."""
        first, place = self._text(seq), seq
        content = first.text
        while len(content) < chars:
            place += 1
            content += "\n\n" + self._text(place).text
        # A server refuses a question of nothing.
        return Prompt(first.id, first.kind, ({"role": "user", "content": content[: max(1, chars)]},))

    def _text(self, seq: int) -> Prompt:
        """The text that request `seq` asks, or begins with."""
        again, place = divmod(seq, len(self.prompts))
        prompt = self.prompts[place]
        if not again or not self.numbered:
            return prompt
        first, *rest = prompt.messages
        opened = {**first, "content": f"Reading no. {again + 1}.\n\n{first['content']}"}
        return Prompt(f"{prompt.id}#{again + 1}", prompt.kind, (opened, *rest))


def rounds(prompts: Sequence[Prompt], seed: int) -> tuple[Prompt, ...]:
    """The prompts in rounds that hold every kind once, order within kinds and rounds drawn from `seed`.

    Kinds with fewer texts than the largest leave the later rounds; those rounds hold the kinds that are left.
    """
    rng = random.Random(seed)
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    for texts in by_kind.values():
        rng.shuffle(texts)
    ordered: list[Prompt] = []
    while any(by_kind.values()):
        one = [texts.pop() for texts in by_kind.values() if texts]
        rng.shuffle(one)
        ordered.extend(one)
    return tuple(ordered)


def payload(plan: Plan, seq: int, api: str, model_id: str) -> dict[str, Any]:
    """The JSON body of request `seq` for `api` (chat, completions or generate); temperature is always explicit."""
    prompt = plan.prompt(seq)
    if api == "generate":
        sampling = {"max_new_tokens": plan.tokens(seq), "ignore_eos": plan.ignore_eos, "temperature": plan.temperature}
        return _merged({"text": prompt.text, "sampling_params": sampling, "stream": True}, plan.body)
    body: dict[str, Any] = {
        "model": model_id,
        "max_tokens": plan.tokens(seq),
        "temperature": plan.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if plan.ignore_eos:
        body["ignore_eos"] = True
    asked = {"messages": list(prompt.messages)} if api == "chat" else {"prompt": prompt.text}
    return _merged({**body, **asked}, plan.body)


def _merged(body: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    # Strict servers refuse fields that they do not know: null is the way to leave one of ours out.
    return {name: value for name, value in {**body, **given}.items() if value is not None}


def slots(concurrency: int, workers: int, worker: int) -> range:
    """The numbers of the streams that `worker` holds, of 0 .. concurrency - 1; over all workers they add up exactly."""
    return range(worker, concurrency, workers)


def shard(plan: Plan, concurrency: int, workers: int, worker: int) -> Iterator[int]:
    """The requests that `worker` takes, in order: of every `concurrency` of them as many as it has streams."""
    seq = 0
    while plan.requests is None or seq < plan.requests:
        if seq % concurrency % workers == worker:
            yield seq
        seq += 1


def due(plan: Plan, workers: int, worker: int) -> Iterator[tuple[int, int]]:
    """The requests that `worker` takes of a plan with arrivals, and when each comes (ns since the Point's begin)."""
    assert plan.arrivals is not None
    return islice(enumerate(plan.arrivals.times_ns()), worker, plan.requests, workers)
