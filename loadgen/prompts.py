"""Where prompts come from: the shipped texts, a JSON-lines file, ShareGPT's JSON, or one fixed text.

Reads text, gives Prompts and warnings. Knows nothing of servers; ids and kinds are what the dataset's rows carry.
"""

import hashlib
import importlib.resources
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from loadgen import replay
from loadgen.config import Config, Workload
from loadgen.errors import ConfigError
from loadgen.plan import WARM_UP_REQUESTS, Plan, Prompt, rounds

READ_CHARS = 1 << 20  # one piece of a large JSON file; a record is rarely longer
RECORD_CHARS_MAX = 64 << 20  # a "record" beyond it is no conversation but a broken file
UNKNOWN_KIND = "other"
WARM_UP_KIND = "warm_up"


def load(workload: Workload) -> tuple[tuple[Prompt, ...], list[str]]:
    """The workload's prompts in file order, and warnings. Raises ConfigError where nothing can be read."""
    if workload.source == "builtin":
        return tuple(builtin()), []
    if workload.source == "fixed":
        return (_prompt("fixed", "fixed", str(workload.text)),), []
    path = Path(str(workload.path))
    read = from_jsonl if workload.source == "jsonl" else from_sharegpt
    warnings: list[str] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            found = tuple(read(file, str(path), warnings))
    except OSError as error:
        raise ConfigError(f"workload.path={path} cannot be read ({error.strerror}); name a readable file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"workload.path={path} is not UTF-8 text; convert it") from None
    if not found:
        raise ConfigError(
            f"workload.path={path} holds no prompt that {workload.source} knows; see the README for its shape"
        )
    return found, warnings


def plan(workload: Workload, prompts: tuple[Prompt, ...], block: int, requests: int | None) -> Plan:
    """The plan of one Point: the same for every variant of a block. A fixed prompt is repeated as it is."""
    fixed = workload.source == "fixed"
    seed = workload.seed + block
    return Plan(
        prompts=prompts if fixed else rounds(prompts, seed),
        max_tokens=workload.max_tokens,
        ignore_eos=workload.ignore_eos,
        temperature=workload.temperature,
        seed=seed,
        numbered=not fixed,
        requests=requests,
        body=workload.body,
    )


def digest(conf: Config, prompts: tuple[Prompt, ...]) -> str:
    """A short hash of all that decides what is asked, texts included; runs are compared only where it is equal."""
    workload = conf.workload
    asked = {
        "api": conf.engine.api,
        "prompts": [(prompt.kind, prompt.messages) for prompt in prompts],
        **{name: getattr(workload, name) for name in ("max_tokens", "ignore_eos", "temperature", "seed", "body")},
    }
    if conf.load.trace is not None:
        asked["lengths"] = replay.digest(conf.load.trace)
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16]


def warm_up(workload: Workload, seed: int) -> Plan:
    """The unrecorded requests after readiness: texts of their own, so that no measured prompt is warm."""
    texts = tuple(
        _prompt(
            f"warm-up-{i}", WARM_UP_KIND, f"Warm-up {seed}.{i}: count upwards from {1000 * i + 7}, a number a line."
        )
        for i in range(WARM_UP_REQUESTS)
    )
    return Plan(
        texts,
        workload.max_tokens,
        workload.ignore_eos,
        workload.temperature,
        seed,
        requests=len(texts),
        body=workload.body,
    )


def builtin() -> Iterator[Prompt]:
    """The shipped prompts, one file a kind."""
    folder = importlib.resources.files("loadgen.data.prompts")
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".jsonl"):
            yield from from_jsonl(file.read_text(encoding="utf-8").splitlines(), file.name, [])


def from_jsonl(lines: Iterable[str], name: str, warnings: list[str]) -> Iterator[Prompt]:
    """One prompt a line: a text, {"prompt": text}, {"text": text}, a list of chat messages, or {"messages": [...]}.

    "id" and "kind" of an object are kept. A last line that is cut off is left out with a warning; any other bad line is
    a ConfigError with its number.
    """
    bad: int | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if bad is not None:
            raise ConfigError(f"{name}, line {bad}: not JSON; correct or remove the line")
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            bad = number
            continue
        if not _can_be_sent(record):
            raise ConfigError(f"{name}, line {number}: half of a surrogate pair is no character; correct the line")
        yield _from_record(record, name, number)
    if bad is not None and not line.lstrip().startswith(("{", "[", '"')):
        raise ConfigError(f'{name}, line {bad}: not JSON; a plain text is written as a JSON string, "..."')
    if bad is not None:
        warnings.append(f"{name}: the last line ({bad}) is cut off and was left out")


def _can_be_sent(record: Any) -> bool:
    """Whether all its texts have a UTF-8 form: JSON may hold escapes of half a character."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_record(record: Any, name: str, number: int) -> Prompt:
    fields = (
        record if isinstance(record, dict) else {"messages": record} if isinstance(record, list) else {"prompt": record}
    )
    made_id = f"{Path(name).stem}-{number}"
    prompt_id, kind = str(fields.get("id") or made_id), str(fields.get("kind") or UNKNOWN_KIND)
    text = fields.get("prompt", fields.get("text"))
    if isinstance(text, str) and text.strip():
        return _prompt(prompt_id, kind, text)
    messages = fields.get("messages")
    if isinstance(messages, list) and messages and all(_is_message(message) for message in messages):
        return Prompt(prompt_id, kind, tuple(messages))
    raise ConfigError(
        f'{name}, line {number}: neither a prompt ("..." or {{"prompt": "..."}}) nor chat messages; correct the line'
    )


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str | list)
    )


def _prompt(prompt_id: str, kind: str, text: str) -> Prompt:
    return Prompt(prompt_id, kind, ({"role": "user", "content": text},))


def from_sharegpt(file: TextIO, name: str, warnings: list[str]) -> Iterator[Prompt]:
    """The first human turn of every conversation of ShareGPT's JSON array.

    The whole records of a cut-off file are kept, with a warning.
    """
    for count, record in enumerate(_records(file, name, warnings), 1):
        turns = record.get("conversations") if isinstance(record, dict) else None
        first = turns[0] if isinstance(turns, list) and turns and isinstance(turns[0], dict) else {}
        text = first.get("value")
        if first.get("from") not in ("human", "user") or not isinstance(text, str) or not text.strip():
            continue
        if not _can_be_sent(text):
            warnings.append(f"{name}, record {count}: half of a surrogate pair is no character; it was left out")
        else:
            yield _prompt(f"sharegpt-{record.get('id', count)}", UNKNOWN_KIND, text)


def _records(file: TextIO, name: str, warnings: list[str]) -> Iterator[Any]:
    """The elements of one JSON array, read piece by piece."""
    decoder, text, place = json.JSONDecoder(), file.read(READ_CHARS), 0
    if not text.lstrip().startswith("["):
        raise ConfigError(
            f"workload.path={name} is no JSON array of conversations; use workload.source=jsonl for one record a line"
        )
    place = text.index("[") + 1
    while True:
        place = _skip(text, place)
        if text[place : place + 1] == "]":
            return
        try:
            record, end = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError):
            # Reading as much again as is held keeps the retries of one long record linear in its length.
            more = file.read(max(READ_CHARS, len(text) - place))
            if not more or len(text) - place > RECORD_CHARS_MAX:
                warnings.append(f"{name} is cut off inside a record; its whole records are used")
                return
            text, place = text[place:] + more, 0
            continue
        yield record
        place = end


def _skip(text: str, place: int) -> int:
    """The next place that is neither space nor comma."""
    while text[place : place + 1].isspace() or text[place : place + 1] == ",":
        place += 1
    return place
