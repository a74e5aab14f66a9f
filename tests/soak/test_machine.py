"""What the machine lets anybody wait: told a second by the processes on its cores, and read by blocks."""

import os
import time
from pathlib import Path

import numpy as np
from judging import BLOCKS
from machine import LATE, WORK, Machine, watched

WAIT_S_MAX = 30.0


def test_every_core_tells(tmp_path: Path) -> None:
    """Real processes, one on each core, and none of them is left."""
    began_s, deadline_s = time.time(), time.monotonic() + WAIT_S_MAX
    with watched(tmp_path) as machine:
        assert len(machine.pids) == len(machine.files) == len(os.sched_getaffinity(0))
        while not all(file.read_text().count("\n") for file in machine.files):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    told = machine.by_block(began_s, time.time())
    assert np.nanmin(told[LATE]) >= 0
    assert np.nanmin(told[WORK]) > 0
    assert not [pid for pid in machine.pids if os.path.exists(f"/proc/{pid}")]


def test_blocks_of_what_was_told(tmp_path: Path) -> None:
    """Waits of all cores are added up, speeds are averaged; a line that is cut off and a block without one are none."""
    lines = [(0.5 + second, 0.1, 2.0) for second in range(BLOCKS) if second != 3]
    text = "".join(f"{at} {late} {work}\n" for at, late, work in lines)
    files = [tmp_path / "core0", tmp_path / "core1"]
    files[0].write_text(text + "5.0 0.9")
    files[1].write_text(text.replace(" 2.0", " 4.0"))
    told = Machine(frozenset(), files).by_block(0.0, float(BLOCKS))
    assert np.isnan(told[LATE]).tolist() == [place == 3 for place in range(BLOCKS)]
    assert set(told[LATE][~np.isnan(told[LATE])].round(9)) == {0.2}
    assert set(told[WORK][~np.isnan(told[WORK])]) == {3.0}
