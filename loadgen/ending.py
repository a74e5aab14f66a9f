"""What a finished command prints: tables of its Points, how its variants compare, the next step.

Owns when a comparison is made at the end of a command; what it says is `compared`'s. Never changes an exit code.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from loadgen import chaos, report
from loadgen.asked import Run
from loadgen.compared import compare, text
from loadgen.config import BASELINE, Config, levels
from loadgen.errors import LoadgenError
from loadgen.ledger import Ledger
from loadgen.words import clean


def tell(configs: Sequence[Config], ledger: Ledger, command: str, interrupted: bool) -> None:
    """Print it all to stdout, also what could not be written; `command` is what was typed."""
    root, lines = ledger.root, ledger.lines()
    if told := report.ending(ledger.measured(), lines):
        print(told)
    names = {config.variant.name for config in configs}
    if BASELINE in names and len(names) > 1:
        # Who has pressed Ctrl-C does not wait until all rows are read.
        print(f"{_later(root) if interrupted else compared(root)}\n")
    planned = sum(len(levels(config.load)) for config in configs if not config.load.search)
    print(report.next_step(root, lines, command, planned))


def trials(runs: Sequence[Run], ledger: Ledger, took_s: Mapping[str, float], left: Sequence[str]) -> int:
    """Print how each fault's Point has ended, and what is `left` of servers; the exit code, 0 where all as expected."""
    root, lines = ledger.root, {line["folder"]: line for line in ledger.lines()}
    folders = {str(run.folder.relative_to(root)): run.config.chaos[0] for run in runs}
    found = [chaos.Outcome(fault, lines.get(name), took_s.get(name, 0.0)) for name, fault in folders.items()]
    text, code = chaos.told(found, left)
    print(f"{clean(text)}\nresults: {root}")
    return code


def _later(root: Path) -> str:
    return f"what there is so far can be compared: python -m loadgen.compare {root}"


def compared(root: Path) -> str:
    """The comparison of a command's Points, or in one line why there is none."""
    try:
        found = compare([root])
    except LoadgenError as error:
        return f"no comparison: {'; '.join(line.strip() for line in str(error).splitlines())}"
    # What is not VALID stands in the tables above it.
    return text(found, missing=False) if found.contests else "no comparison: no Point is VALID"
