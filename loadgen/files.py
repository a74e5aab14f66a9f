"""Prompts in files: a record a line, or ShareGPT's one array of conversations.

Reads text, gives Prompts and warnings. What is broken at a file's end is left out, what is broken before it is refused.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from loadgen.config import Workload
from loadgen.errors import ConfigError
from loadgen.plan import Prompt, sendable

READ_CHARS = 1 << 20  # one piece of a large JSON file; a record is rarely longer
RECORD_CHARS_MAX = 64 << 20  # a "record" beyond it is no conversation but a broken file
CUT_CHARS_MAX = 8  # what a cut breaks in a record, a number or an escape, begins so near to the file's end
UNSENDABLE = "half of a character, NaN, or a number of more than 64 bits, which no request can carry"
UNKNOWN_KIND = "other"


def read(workload: Workload, warnings: list[str]) -> tuple[Prompt, ...]:
    """The prompts of `workload.path`, in order; warnings are appended. Raises ConfigError where nothing can be read."""
    path = Path(str(workload.path))
    parts = from_jsonl if workload.source == "jsonl" else from_sharegpt
    try:
        with path.open(encoding="utf-8-sig") as file:
            found = tuple(parts(file, str(path), warnings, workload.turns))
    except OSError as error:
        raise ConfigError(f"workload.path={path} cannot be read ({error.strerror}); name a readable file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"workload.path={path} is not UTF-8 text; convert it") from None
    if not found:
        raise ConfigError(
            f"workload.path={path} holds no prompt that {workload.source} knows; see the README for its shape"
        )
    return _distinct(found, str(path), warnings)


def _distinct(found: tuple[Prompt, ...], name: str, warnings: list[str]) -> tuple[Prompt, ...]:
    """Without those that begin as another one does: a server that caches would answer them for nothing."""
    first: dict[bytes, Prompt] = {}
    for prompt in found:
        first.setdefault(hashlib.sha256(json.dumps(prompt.messages).encode()).digest(), prompt)
    if twice := len(found) - len(first):
        warnings.append(f"{name}: {twice} of {len(found)} prompts ask what another one asks and were left out")
    return tuple(first.values())


def from_jsonl(lines: Iterable[str], name: str, warnings: list[str], turns: int = 1) -> Iterator[Prompt]:
    """One prompt a line: a text, {"prompt": text}, {"text": text}, a list of chat messages, or {"messages": [...]}.

    With `turns` above 1 messages are a conversation of at most so many turns: what the user said is asked turn by turn,
    the assistant's messages are left out. "id" and "kind" of an object are kept. A last line that is cut off is left
    out with a warning; any other bad line is a ConfigError with its number.
    """
    bad: int | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if bad is not None:
            raise ConfigError(f"{name}, line {bad}: not JSON; correct or remove the line")
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # ValueError also for a number of thousands of digits
            bad = number
            continue
        if not sendable(record):
            raise ConfigError(f"{name}, line {number}: {UNSENDABLE}; correct the line")
        yield _from_record(record, name, number, turns)
    if bad is not None and not line.lstrip().startswith(("{", "[", '"')):
        raise ConfigError(f'{name}, line {bad}: not JSON; a plain text is written as a JSON string, "..."')
    if bad is not None:
        warnings.append(f"{name}: the last line ({bad}) is cut off and was left out")


def _from_record(record: Any, name: str, number: int, turns: int) -> Prompt:
    fields = (
        record if isinstance(record, dict) else {"messages": record} if isinstance(record, list) else {"prompt": record}
    )
    made_id = f"{Path(name).stem}-{number}"
    prompt_id, kind = str(fields.get("id") or made_id), str(fields.get("kind") or UNKNOWN_KIND)
    text = fields.get("prompt") or fields.get("text")
    if isinstance(text, str) and text.strip():
        return single(prompt_id, kind, text)
    messages = fields.get("messages")
    if isinstance(messages, list) and all(map(_is_message, messages)) and any(map(_is_question, messages)):
        return _conversation(prompt_id, kind, messages, turns)
    raise ConfigError(
        f'{name}, line {number}: neither a prompt ("..." or {{"prompt": "..."}}) nor chat messages with a question of '
        "the user's; correct the line"
    )


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    content = message.get("content")
    return isinstance(content, str) or (isinstance(content, list) and all(isinstance(part, dict) for part in content))


def _is_question(message: Any) -> bool:
    """Whether the user says something, in words or otherwise."""
    content = message["content"]
    return message["role"] == "user" and bool(content.strip() if isinstance(content, str) else content)


def _conversation(prompt_id: str, kind: str, messages: list[Any], turns: int) -> Prompt:
    """The messages as one prompt, or with `turns` above 1 as turns; what stands before the first question opens it.

    Answers at the end are left out: they would be the server's to give.
    """
    if turns == 1:
        end = max(number for number, message in enumerate(messages, 1) if message["role"] != "assistant")
        return Prompt(prompt_id, kind, tuple(messages[:end]))
    asked = [number for number, message in enumerate(messages) if _is_question(message)][:turns]
    later = tuple(messages[number] for number in asked[1:])
    return Prompt(prompt_id, kind, tuple(messages[: asked[0] + 1]), later)


def single(prompt_id: str, kind: str, text: str) -> Prompt:
    """A prompt of one user message."""
    return Prompt(prompt_id, kind, ({"role": "user", "content": text},))


def from_sharegpt(file: TextIO, name: str, warnings: list[str], turns: int = 1) -> Iterator[Prompt]:
    """The first human turns, at most `turns`, of every conversation of ShareGPT's JSON array.

    The whole records of a cut-off file are kept, with a warning; a broken one before the end is a ConfigError.
    """
    for count, record in enumerate(_records(file, name, warnings), 1):
        said = record.get("conversations") if isinstance(record, dict) else None
        asked = _human_turns(said)[:turns] if isinstance(said, list) else []
        if not asked:
            continue
        if not sendable(asked):
            warnings.append(f"{name}, record {count}: {UNSENDABLE}; it was left out")
            continue
        messages = [{"role": "user", "content": text} for text in asked]
        yield _conversation(f"sharegpt-{record.get('id', count)}", UNKNOWN_KIND, messages, turns)


def _human_turns(said: list[Any]) -> list[str]:
    """What the human said, up to the first turn that is empty or of another shape; nothing where the model began."""
    found: list[str] = []
    for turn in said:
        speaker, text = (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)
        human = speaker in ("human", "user")
        if not isinstance(text, str) or not text.strip() or not (found or human):
            break
        found += [text] if human else []
    return found


def _records(file: TextIO, name: str, warnings: list[str]) -> Iterator[Any]:
    """The elements of one JSON array, read piece by piece."""
    decoder, text, place = json.JSONDecoder(), file.read(READ_CHARS), 0
    if not text.lstrip().startswith("["):
        raise ConfigError(
            f"workload.path={name} is no JSON array of conversations; use workload.source=jsonl for one record a line"
        )
    place, count = text.index("[") + 1, 1
    while True:
        place = _skip(text, place)
        if text[place : place + 1] == "]":
            return
        try:
            record, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            # Reading as much again as is held keeps the retries of one long record linear in its length.
            more = file.read(max(READ_CHARS, len(text) - place))
            if more and len(text) - place <= RECORD_CHARS_MAX:
                text, place = text[place:] + more, 0
                continue
            if more or not _cut_off(error, text):
                raise ConfigError(f"{name}, record {count}: not JSON; correct or remove the record") from None
            warnings.append(f"{name} is cut off inside a record; its whole records are used")
            return
        yield record
        place, count = end, count + 1


def _cut_off(error: Exception, text: str) -> bool:
    """Whether JSON at the end of a file is only not whole: what is wrong is that it ends."""
    return isinstance(error, json.JSONDecodeError) and (
        error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip()) - CUT_CHARS_MAX
    )


def _skip(text: str, place: int) -> int:
    """The next place that is neither space nor comma."""
    while text[place : place + 1].isspace() or text[place : place + 1] == ",":
        place += 1
    return place
