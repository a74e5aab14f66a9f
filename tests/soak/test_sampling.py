"""What is sampled is what a process holds: a real one that grows, and opens files, when it is told to."""

import subprocess
import sys

import psutil
import pytest
from judging import BLOCKS, counts_grow, growth
from sampling import Watch, role_of

MIB = 1024 * 1024
# For each line: a mebibyte and a file more, kept; then an answer.
GROWING = """
import sys
kept = []
for line in sys.stdin:
    kept.append((b"x" * (1 << 20), open("/dev/null")) if line.strip() == "grow" else b"")
    print(flush=True)
"""


def sampled(word: str) -> Watch:
    """A process that was told the word before each of the samples."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", GROWING], text=True, **pipes) as process:
        assert process.stdin
        assert process.stdout
        known = psutil.Process(process.pid)
        watch = Watch(lambda: [known], driver=process.pid)
        for _ in range(4 * BLOCKS):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            process.stdout.readline()
            watch.sample()
        process.stdin.close()
    watch.sample()  # of a process that has ended: nothing
    return watch


@pytest.mark.parametrize(("word", "grows"), [("grow", True), ("stay", False)])
def test_a_real_process(word: str, grows: bool) -> None:
    """A mebibyte and a descriptor for each sample are seen as that; a process that stays is flat."""
    ((pid, held),) = sampled(word).seen.items()
    assert held.role == "driver"
    assert pid > 0
    minutes = [60.0 * place for place in range(len(held.memory))]
    assert len(minutes) == 4 * BLOCKS
    trend = growth(minutes, [size / MIB for size in held.memory])
    assert trend.above(0.05) == grows
    assert trend.per_min == pytest.approx(1.0 if grows else 0.0, abs=0.1)
    assert counts_grow(minutes, held.descriptors) == grows
    assert held.cpu_s == sorted(held.cpu_s)


def test_roles_by_titles() -> None:
    """As the processes of a run call themselves."""
    assert role_of("python -m loadgen x", driver=True) == "driver"
    assert role_of("ray::loadgen:worker 0", driver=False) == "worker"
    assert role_of("ray::IDLE", driver=False) == "idle worker"
    assert role_of("/x/python -m server.sim --port 1", driver=False) == "server: front end"
    assert role_of("sglang::scheduler_TP0", driver=False) == "server: scheduler"
