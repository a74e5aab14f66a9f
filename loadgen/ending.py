"""What a finished command prints: tables of its Points, how its variants compare, the next step.

Owns when a comparison is made at the end of a command; what it says is `compared`'s. Never changes an exit code.
"""

from collections.abc import Sequence
from pathlib import Path

from loadgen import report
from loadgen.compared import compare, text
from loadgen.config import BASELINE, Config, levels
from loadgen.errors import LoadgenError
from loadgen.ledger import Ledger


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
