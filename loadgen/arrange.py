"""What a command measures, in which order: blocks, variants inside them, repetitions at the end, one run a fault."""

import random
from collections.abc import Sequence

from loadgen import chaos, drift, searching
from loadgen.asked import Collected, Run


def arranged(collected: Collected) -> list[Run]:
    """All runs of the command in their order. Raises ConfigError where they cannot be one command."""
    runs = order(collected.runs)
    searching.check([run.config for run in runs])
    return chaos.spread([*runs, *drift.repeated(runs, collected.root)])


def order(runs: Sequence[Run]) -> list[Run]:
    """Blocks first; in each, variants in an order drawn by the block (two: A B, then B A), each with all its runs."""
    ordered: list[Run] = []
    for block in sorted({run.config.block for run in runs}):
        mine = [run for run in runs if run.config.block == block]
        names = list(dict.fromkeys(run.config.variant.name for run in mine))
        if len(names) == 2:
            names = names[::-1] if block % 2 else names
        else:
            random.Random(block).shuffle(names)
        ordered += [run for name in names for run in mine if run.config.variant.name == name]
    return ordered
