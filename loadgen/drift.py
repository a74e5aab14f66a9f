"""The baseline once more at the end of a command: did the machine itself change while the variants were measured?

Pure. Owns which runs are repeated and at which levels. That a repeated Point enters no pair is for those who pair to
see to: `repeat` is true in its rows, its point.json and its ledger line.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from loadgen.asked import Run
from loadgen.config import BASELINE, CONCURRENCY_MAX, Config, Load, levels
from loadgen.errors import ConfigError

FOLDER = "drift"  # of the first repeated run, below the command's; others are drift-2, drift-3


def check_drift(config: Config) -> None:
    """Refuse levels that cannot be measured. Raises ConfigError."""
    asked = config.drift
    if not asked:
        return
    if config.load.kind == "open":
        raise ConfigError(f"drift={asked} names concurrencies, and this load is open: leave it out (drift=[])")
    if len(set(asked)) != len(asked) or not all(1 <= level <= CONCURRENCY_MAX for level in asked):
        raise ConfigError(f"drift={asked}: name concurrencies from 1 to {CONCURRENCY_MAX}, each once, as drift=[1,30]")
    repeated_load(config)


def repeated_load(config: Config) -> Load:
    """The load of the repetition: that of the run at the levels of `drift`. Raises ConfigError."""
    load, count = config.load, config.load.requests
    if isinstance(count, list):
        counts = {level.concurrency: level.requests for level in levels(load)}
        if unknown := [level for level in config.drift if level not in counts]:
            raise ConfigError(
                f"drift={config.drift}: load.requests has no number for concurrency {unknown[0]}; "
                "name levels of load.concurrency, or give one number for all"
            )
        count = [counts[level] for level in config.drift]
    elif isinstance(count, int) and count < max(config.drift):
        raise ConfigError(
            f"drift={config.drift}: load.requests={count} is below the concurrency {max(config.drift)}; ask for more"
        )
    return dataclasses.replace(load, concurrency=list(config.drift), requests=count)


def repeated(runs: Sequence[Run], root: Path) -> list[Run]:
    """What is measured after all others: the lowest block's baseline, once for each workload, in folders below `root`.

    Raises ConfigError where drift is asked for and no run is the baseline.
    """
    asked = [run for run in runs if run.config.drift]
    mine = [run.config for run in asked if run.config.variant.name == BASELINE]
    if not asked:
        return []
    if not mine:
        raise ConfigError(
            f"drift={asked[0].config.drift} measures {BASELINE} once more, and no run of this command is of it: "
            f"add -m and +variant={BASELINE},OTHER, or drift=[]"
        )
    lowest = min(config.block for config in mine)
    found: list[Config] = []
    for config in mine:
        again = dataclasses.replace(config, load=repeated_load(config))
        # The levels of a ladder may be runs of their own: they have one repetition.
        if config.block == lowest and again not in found:
            found.append(again)
    return [Run(config, root / _folder(place), repeat=True) for place, config in enumerate(found)]


def _folder(place: int) -> str:
    return FOLDER if place == 0 else f"{FOLDER}-{place + 1}"
