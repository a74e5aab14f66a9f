"""Whether variants answered as the baseline did, prompt by prompt: greedy speculation must not change an answer.

    python -m loadgen.audit outputs/2026-01-31/12-00-00 ...

compares what finished runs left; `audit=outputs` does the same at the end of a command. Exit code 6 for a difference,
2 where there is nothing to compare. Owns what makes two requests the same question.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadgen.config import BASELINE, Config, in_words
from loadgen.dataset import read_dataset
from loadgen.errors import ConfigError, LoadgenError
from loadgen.record import Outcome
from loadgen.report import rendered
from loadgen.words import clean

DIFFERENT_EXIT = 6
SHOWN_MAX = 20  # differences listed for a variant; a wrong one may have thousands
COLUMNS = (
    "engine",
    "model",
    "workload_hash",
    "block",
    "repeat",
    "concurrency",
    "rate",
    "seq",
    "prompt_id",
    "variant",
    "outcome",
    "answer_sha256",
)

Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass
class Compared:
    """A variant beside the baseline: how many answers are equal, which questions got another answer, or none."""

    variant: str
    equal: int = 0
    different: list[Row] = field(default_factory=list)
    missing: list[Row] = field(default_factory=list)


def require_baseline(configs: Sequence[Config]) -> None:
    """Raise ConfigError for an audit that could compare nothing."""
    names = {conf.variant.name for conf in configs}
    if any(conf.audit for conf in configs) and (BASELINE not in names or len(names) < 2):
        raise ConfigError(f"audit=outputs compares variants with {BASELINE}: add -m and +variant={BASELINE},OTHER")


def compare(rows: Sequence[Row]) -> list[Compared]:
    """Every variant beside the baseline's answers to the same questions: same workload, block, level and place in it.

    A question that the baseline did not answer says nothing, nor does one that it was asked once more at the end.
    Raises ConfigError where there is nothing to compare.
    """
    rows = [row for row in rows if not row.get("repeat")]
    asked = {key_of(row): row for row in rows if row["variant"] == BASELINE and _answered(row)}
    if not asked:
        raise ConfigError(f"no answer of variant {BASELINE} is there to compare with; run it in the same command")
    found: dict[str, Compared] = {}
    answers: dict[str, dict[Key, Row]] = {}
    for row in rows:
        if row["variant"] != BASELINE:
            answers.setdefault(row["variant"], {})[key_of(row)] = row
    if not answers:
        raise ConfigError(f"there is no other variant beside {BASELINE} to compare with it")
    for name, theirs in answers.items():
        found[name] = _beside(name, asked, theirs)
    return list(found.values())


def _beside(variant: str, asked: Mapping[Key, Row], theirs: Mapping[Key, Row]) -> Compared:
    compared = Compared(variant)
    levels = {key[:-1] for key in theirs}
    for key, row in asked.items():
        other = theirs.get(key)
        if other is None or not _answered(other):
            if key[:-1] in levels:
                compared.missing.append(row)
        elif _alike(row, other):
            compared.equal += 1
        else:
            compared.different.append(row)
    return compared


def key_of(row: Row) -> Key:
    """What makes two requests the same question to the same model: their place in the plan comes last."""
    names = ("engine", "model", "workload_hash", "block", "concurrency", "rate", "seq")
    return tuple(row[name] for name in names)


def _answered(row: Row) -> bool:
    return row["outcome"] == Outcome.OK.value and row["answer_sha256"] is not None


def _alike(one: Row, other: Row) -> bool:
    assert one["prompt_id"] == other["prompt_id"], "the same place in the same plan holds the same prompt"
    return bool(one["answer_sha256"] == other["answer_sha256"])


def told(found: Sequence[Compared]) -> RenderableType:
    """The table, and below it the questions that were answered otherwise."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column("variant", overflow="fold")
    for header in ("equal", "different", "missing"):
        table.add_column(header, justify="right")
    for one in found:
        table.add_row(clean(one.variant), str(one.equal), str(len(one.different)), str(len(one.missing)))
    head = Text(f"audit: answers beside the {BASELINE}'s, the same prompt at the same level of the same block", "bold")
    return Group(head, table, *(line for one in found for line in _listed(one)))


def _listed(one: Compared) -> list[Text]:
    lines = []
    for word, rows in (("answered otherwise", one.different), ("not answered", one.missing)):
        if rows:
            shown = [clean(f"{row['prompt_id']} (block {row['block']}, {_level(row)})") for row in rows[:SHOWN_MAX]]
            more = f", and {len(rows) - SHOWN_MAX} more" if len(rows) > SHOWN_MAX else ""
            lines.append(Text(f"{one.variant} {word}: {', '.join(shown)}{more}", "yellow", overflow="fold"))
    if kinds := Counter(str(row["prompt_id"]).rpartition("-")[0] for row in one.different):
        lines.append(Text(f"{one.variant}, different by kind: {', '.join(f'{k} {n}' for k, n in kinds.most_common())}"))
    return lines


def _level(row: Row) -> str:
    return in_words(row["concurrency"], row["rate"])


def outputs(roots: Path | Sequence[Path]) -> tuple[str, int]:
    """What the audit of these folders says, and its exit code: 0, or 6 for a different answer."""
    table = read_dataset(roots)
    known = [name for name in COLUMNS if name in table.column_names]
    found = compare(table.select(known).to_pylist())
    different = any(one.different for one in found)
    return rendered(told(found), sys.stdout), DIFFERENT_EXIT if different else 0


def at_end(root: Path, results: TextIO) -> int:
    """Print the audit of a command's folder to `results`; its exit code, 6 also where there is nothing to compare."""
    try:
        text, code = outputs(root)
    except LoadgenError as error:
        text, code = f"audit: {error}", DIFFERENT_EXIT
    print(f"{text}\n", file=results)
    return code


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    try:
        text, code = outputs([Path(name) for name in arguments])
    except LoadgenError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return error.exit_code
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
