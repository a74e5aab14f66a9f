"""What the machine did beside a run: how long it let processes wait for its cores, and how fast these were.

Figures follow both, and others that come or go in the midst of a soak are no drift of the program's.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from judging import BLOCKS

sys.path.append(str(Path(__file__).parents[1] / "accuracy"))

from witness import on_each_core, whole_lines

LATE, WORK = "late", "work"  # shares of a core, all cores added up; CPU ms of a fixed piece of work


@dataclass(frozen=True)
class Machine:
    """The processes that tell, one on each core, and what each has told."""

    pids: frozenset[int]
    files: Sequence[Path]

    def by_block(self, start_s: float, end_s: float) -> dict[str, np.ndarray]:
        """Both figures in each of judging's blocks of a time; NaN where nothing was told."""
        told = [_blocks(file, start_s, end_s) for file in self.files]
        late, work = (np.array([one[place] for one in told]) for place in (0, 1))
        return {LATE: late.sum(axis=0), WORK: work.mean(axis=0)}


def _blocks(file: Path, start_s: float, end_s: float) -> tuple[np.ndarray, np.ndarray]:
    rows = np.array([line.split() for line in whole_lines(file)], dtype=float).reshape(-1, 3)
    place = np.floor((rows[:, 0] - start_s) / (end_s - start_s) * BLOCKS)
    parts = [rows[place == one, 1:] for one in range(BLOCKS)]
    means = np.array([part.mean(axis=0) if len(part) else (np.nan, np.nan) for part in parts])
    return means[:, 0], means[:, 1]


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[Machine]:
    """One process on each core for the length of the block; what they tell stands in the folder."""
    with on_each_core(folder, str(Path(__file__).with_name("waking.py"))) as running:
        yield Machine(frozenset(running.values()), list(running))
