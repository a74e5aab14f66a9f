"""What is asked: every request of a Point as a pure function of its number, made before the clock starts.

A Plan never ends by itself (a closed loop takes as many requests as its window needs); `requests` bounds it where a
count was asked. Knows nothing of sockets, clocks or servers.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

    def prompt(self, seq: int) -> Prompt:
        """The prompt of request `seq`."""
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
        sampling = {"max_new_tokens": plan.max_tokens, "ignore_eos": plan.ignore_eos, "temperature": plan.temperature}
        return _merged({"text": prompt.text, "sampling_params": sampling, "stream": True}, plan.body)
    body: dict[str, Any] = {
        "model": model_id,
        "max_tokens": plan.max_tokens,
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
