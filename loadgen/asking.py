"""What a workload may ask for: its source, lengths, turns and the body's extras.

Pure. Every refusal is one sentence that says what to change.
"""

import re

from loadgen import prompts
from loadgen.bounds import choice, number
from loadgen.config import Config, Workload, levels
from loadgen.errors import ConfigError
from loadgen.plan import sendable
from loadgen.texts import CHARS_A_TOKEN, CHARS_MAX, GROUPS_MAX, INPUT_TOKENS_MAX, PREFIX_TOKENS_MIN

OWN_FIELDS = frozenset(
    {"max_tokens", "max_completion_tokens", "max_new_tokens", "ignore_eos", "messages", "prompt", "text", "model"}
)
OWN_FIELDS_FROM = "workload.max_tokens, workload.ignore_eos, the prompts or the server"
NO_TEXT = r"\.(pkl|pickle|dill|joblib|npy|npz|pt|pth|ckpt|bin|safetensors)(\.(gz|bz2|xz|zst))?$"
TURNS_MAX = 64  # of the shipped texts no kind has many more


def check_workload(config: Config) -> None:
    """Refuse what cannot be asked. Raises ConfigError."""
    workload = config.workload
    choice(config, "workload.source", ("builtin", "random", "jsonl", "sharegpt", "fixed"))
    number(config, "workload.max_tokens", 1, 1_000_000)
    number(config, "workload.temperature", 0, 10)
    if workload.source in ("jsonl", "sharegpt") and not workload.path:
        raise ConfigError(f"workload.source={workload.source} needs a file: add workload.path=FILE")
    if workload.source == "fixed" and not (workload.text or "").strip():
        raise ConfigError("workload.source=fixed needs the prompt: add workload.text='...'")
    if workload.text and workload.source != "fixed":
        raise ConfigError("workload.text is given but not asked: add workload.source=fixed, or set workload.text=null")
    if not sendable(workload.text):
        raise ConfigError("workload.text holds half of a character, which no request can carry; correct it")
    if workload.path and workload.source in ("builtin", "random", "fixed"):
        raise ConfigError("workload.path is given but not read: add workload.source=jsonl or workload.source=sharegpt")
    if workload.path and re.search(NO_TEXT, workload.path, re.IGNORECASE):
        raise ConfigError(f"workload.path={workload.path}: only JSON is read; convert the file to JSON lines")
    _check_lengths(workload)
    _check_turns(config)
    _check_body(workload)


def _check_lengths(workload: Workload) -> None:
    """Lengths that can be drawn, of prompts that we make."""
    if workload.output_tokens is not None:
        prompts.output_lengths(workload)
    if workload.input_tokens is not None:
        prompts.input_lengths(workload)
    if workload.source == "random" and workload.input_tokens is None:
        raise ConfigError("workload.source=random needs a length: add workload.input_tokens=512")
    if workload.source not in ("random", "builtin") and workload.input_tokens is not None:
        raise ConfigError(
            f"workload.input_tokens: prompts of workload.source={workload.source} are asked as they are; leave it out, "
            "or use workload.source=builtin or random"
        )


def _check_turns(config: Config) -> None:
    """Conversations and shared prefixes, where the rest of the configuration can have them."""
    workload, load = config.workload, config.load
    number(config, "workload.prefix_tokens", PREFIX_TOKENS_MIN, INPUT_TOKENS_MAX)
    number(config, "workload.prefix_groups", 1, GROUPS_MAX)
    if (workload.prefix_tokens or 0) * workload.prefix_groups > (most := CHARS_MAX // CHARS_A_TOKEN):
        raise ConfigError(
            f"workload.prefix_tokens={workload.prefix_tokens} of workload.prefix_groups={workload.prefix_groups} are "
            f"more than {most} tokens to hold; ask for shorter or fewer prefixes"
        )
    number(config, "workload.turns", 1, TURNS_MAX)
    number(config, "workload.think_s", 0, 3600)
    if workload.think_s and workload.turns == 1:
        raise ConfigError("workload.think_s is the pause between turns: add workload.turns=4, or leave it out")
    if workload.turns == 1:
        return
    if load.kind == "open":
        raise ConfigError(
            f"workload.turns={workload.turns}: a conversation's next turn waits for the answer, which is no open loop; "
            "use load=ladder, or workload.turns=1"
        )
    if workload.source in ("fixed", "random"):
        raise ConfigError(
            f"workload.turns={workload.turns}: workload.source={workload.source} has no conversations; "
            "use builtin, jsonl or sharegpt"
        )
    if config.engine.api != "chat":
        raise ConfigError(f"workload.turns={workload.turns} needs messages: set engine.api=chat, or workload.turns=1")
    _check_counted_turns(config)


def _check_counted_turns(config: Config) -> None:
    """A fixed count of requests holds whole conversations, one or more a stream."""
    turns = config.workload.turns
    for level in levels(config.load):
        if level.requests is None or level.concurrency is None:
            continue
        if level.requests % turns or config.workload.source != "builtin":
            raise ConfigError(
                f"load.requests={level.requests} with conversations: give a multiple of workload.turns={turns} and "
                "workload.source=builtin, or leave load.requests out"
            )
        if level.requests < turns * level.concurrency:
            raise ConfigError(
                f"load.requests={level.requests} is no conversation of {turns} turns for each of {level.concurrency} "
                f"streams; ask for at least {turns * level.concurrency}"
            )


def _check_body(workload: Workload) -> None:
    sampling = workload.body.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise ConfigError(f"workload.body.sampling_params={sampling}: give a mapping, as in {{top_p: 0.9}}")
    for fields in (workload.body, sampling):
        if (fields.get("n") or 1) != 1:
            raise ConfigError("workload.body.n: one choice a request is measured; leave n out")
        for name in OWN_FIELDS & set(fields):
            raise ConfigError(f"workload.body.{name}: it comes from {OWN_FIELDS_FROM}; leave it out of the body")
    if not sendable(workload.body):
        raise ConfigError(
            "workload.body holds half of a character, NaN, a number of more than 64 bits or a key that is no text, "
            "which no request can carry; correct it"
        )
    if workload.body.get("stream", True) is not True:
        raise ConfigError("workload.body.stream=false: only streaming is measured; leave stream out")
