"""Where prompts come from: the shipped texts, random words, a JSON-lines file, ShareGPT's JSON, or one fixed text.

Gives Prompts (`files` reads them from files, `texts` makes others of them) and the plan of a Point. Knows nothing of
servers; ids and kinds are what the dataset's rows carry.
"""

import hashlib
import importlib.resources
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from loadgen import lengths, replay, texts
from loadgen.config import Config, Workload
from loadgen.errors import ConfigError
from loadgen.files import from_jsonl, read, single
from loadgen.plan import WARM_UP_REQUESTS, Plan, Prompt, rounds

WARM_UP_KIND = "warm_up"


class Asking(NamedTuple):
    """The prompts of a run, and the hash of all that decides what is asked."""

    prompts: tuple[Prompt, ...]
    digest: str


def load(workload: Workload) -> tuple[tuple[Prompt, ...], list[str]]:
    """The workload's prompts in file order, and warnings. Raises ConfigError where nothing can be read."""
    warnings = caveats(workload)
    found = _found(workload, warnings)
    if workload.source == "builtin" and workload.input_tokens is not None:
        found = of_lengths(_input_lengths(workload), workload.seed)
    if workload.source == "builtin" and workload.turns > 1:
        found = texts.chained(found, workload.turns)
        if not found:
            raise ConfigError(
                f"workload.turns={workload.turns}: prompts as long as workload.input_tokens are too few for "
                "so many turns; ask for fewer, or shorter prompts"
            )
    if workload.turns > 1 and turns(found) == 1:
        raise ConfigError(
            f"workload.turns={workload.turns}: workload.path={workload.path} holds no conversation of two questions; "
            "set workload.turns=1"
        )
    if workload.prefix_tokens is not None:
        if len(found) < workload.prefix_groups:
            raise ConfigError(
                f"workload.prefix_groups={workload.prefix_groups} for {len(found)} prompts or conversations: ask for "
                "no more groups than there are"
            )
        library = [prompt.text for prompt in builtin()]
        found = texts.prefixed(found, workload.prefix_groups, workload.prefix_tokens, library)
    return found, warnings


def of_lengths(tokens: Sequence[int], seed: int) -> tuple[Prompt, ...]:
    """One prompt of real text for each of the lengths, in their order; kinds in rounds, by `seed`."""
    shipped = tuple(builtin())
    return texts.sized(rounds(shipped, seed), tokens, [prompt.text for prompt in shipped])


def caveats(workload: Workload) -> list[str]:
    """What must be known before the numbers of this workload are believed."""
    if workload.source != "random":
        return []
    return ["prompts of random words: under speculation neither accept length nor speed says anything about real text"]


def shares(workload: Workload) -> bool:
    """Whether prompts are meant to begin alike, so that a prefix cache finds them."""
    return workload.prefix_tokens is not None or workload.turns > 1


def _input_lengths(workload: Workload) -> tuple[int, ...]:
    wanted = input_lengths(workload)
    return wanted.drawn(texts.count_of(wanted), f"{workload.seed}.input")


def _found(workload: Workload, warnings: list[str]) -> tuple[Prompt, ...]:
    if workload.source == "builtin":
        return tuple(builtin())
    if workload.source == "random":
        return texts.random_words(_input_lengths(workload), workload.seed)
    if workload.source == "fixed":
        return (single("fixed", "fixed", str(workload.text)),)
    return read(workload, warnings)


def plan(workload: Workload, prompts: tuple[Prompt, ...], block: int, requests: int | None) -> Plan:
    """The plan of one Point: the same for every variant of a block. A fixed prompt is repeated as it is."""
    fixed = workload.source == "fixed"
    seed = workload.seed + block
    answers = output_lengths(workload)
    return Plan(
        prompts=prompts if fixed else rounds(prompts, seed),
        max_tokens=answers.typical,
        ignore_eos=workload.ignore_eos,
        temperature=workload.temperature,
        seed=seed,
        numbered=not fixed,
        requests=requests,
        body=workload.body,
        output_tokens=() if answers.dist == "fixed" else answers.drawn(lengths.DRAWN, f"{seed}.output"),
        turns=turns(prompts),
        think_s=workload.think_s,
    )


def turns(prompts: Iterable[Prompt]) -> int:
    """The most turns of a conversation among the prompts; 1 where there are none."""
    return 1 + max(len(prompt.later) for prompt in prompts)


def input_lengths(workload: Workload) -> lengths.Lengths:
    """How long prompts are that are made to a length."""
    return lengths.parse("workload.input_tokens", workload.input_tokens, texts.INPUT_TOKENS_MIN, texts.INPUT_TOKENS_MAX)


def output_lengths(workload: Workload) -> lengths.Lengths:
    """How long answers are: `output_tokens`, or `max_tokens` each."""
    asked = workload.max_tokens if workload.output_tokens is None else workload.output_tokens
    return lengths.parse("workload.output_tokens", asked)


def digest(conf: Config, prompts: tuple[Prompt, ...]) -> str:
    """A short hash of all that decides what is asked, texts included; runs are compared only where it is equal."""
    workload = conf.workload
    asked = {
        "api": conf.engine.api,
        "output": output_lengths(workload),
        **{name: getattr(workload, name) for name in ("ignore_eos", "temperature", "seed", "think_s", "body")},
    }
    if conf.load.trace is not None:
        asked["output"] = replay.digest(conf.load.trace)
    found = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
    for prompt in prompts:  # one by one: together they may be hundreds of megabytes
        found.update(json.dumps((prompt.kind, prompt.messages, prompt.later), sort_keys=True).encode())
    return found.hexdigest()[:16]


def warm_up(workload: Workload, seed: int) -> Plan:
    """The unrecorded requests after readiness: texts of their own, so that no measured prompt is warm."""
    asked = tuple(
        single(f"warm-up-{i}", WARM_UP_KIND, f"Warm-up {seed}.{i}: count upwards from {1000 * i + 7}, a number a line.")
        for i in range(WARM_UP_REQUESTS)
    )
    return Plan(
        asked,
        output_lengths(workload).typical,
        workload.ignore_eos,
        workload.temperature,
        seed,
        requests=len(asked),
        body=workload.body,
    )


def builtin() -> Iterator[Prompt]:
    """The shipped prompts, one file a kind."""
    folder = importlib.resources.files("loadgen.data.prompts")
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".jsonl"):
            yield from from_jsonl(file.read_text(encoding="utf-8").splitlines(), file.name, [])
