"""What a command asked for: its runs, composed and checked, and where their results lie.

It imports next to nothing, since help and refusals wait for it.
"""

from dataclasses import dataclass
from pathlib import Path

from loadgen.config import Config


@dataclass(frozen=True)
class Run:
    """One composed configuration and the folder of its results.

    `repeat`: it measures once more, on a server of its own, what another run of the command measured before.
    """

    config: Config
    folder: Path
    repeat: bool = False


@dataclass(frozen=True)
class Collected:
    """All runs of one command; `root` holds the ledger, `chosen`: the user named it, `command`: what was typed."""

    runs: tuple[Run, ...]
    root: Path
    chosen: bool
    command: str
