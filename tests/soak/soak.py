"""Half an hour at 250 streams: does anything grow, or drift?

    python tests/soak/soak.py             30 minutes
    python tests/soak/soak.py 5           5 minutes

A real command against the simulator at its full speed, 40,000 tokens a second. Once a second every process of the run
is sampled; a control beside it leaks 1 MiB a minute, and a soak that does not find it has found nothing. A process
on each core tells how long the machine lets anybody wait and how fast it is: what figures owe to that is no drift.
Growth is told after a warm-up of 30 % of the window, by the rules of judging.py. Exit code: 0 nothing grows or drifts,
6 something does, 1 it could not be judged.
"""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import figures
import psutil
from findings import Finding, control_found, of_figures, of_processes, without_control
from machine import Machine, watched
from sampling import Held, Watch

from server import guard

HERE = Path(__file__).parent
MINUTES, STREAMS, SPEED = 30.0, 250, 52
AROUND_S_MAX, END_S_MAX = 600.0, 60.0  # start, ramp, drain, and the reading of millions of events; an end
CONTROL_MIB_PER_MIN = 1.0
MIB = 1024 * 1024
JUDGED = (0, 6)  # a Point that is INVALID, for what others do to this machine, has been driven as long
STOPPED = "loop_lag_max"  # the rule that a Point breaks whose worker stood still for longer than a tenth of a second


@dataclass(frozen=True)
class Soak:
    """How the run ended, what its Point says, and what its processes held."""

    code: int
    told: figures.Told
    seen: Sequence[Held]
    reasons: Sequence[str]
    disk_bytes: int


def main(words: list[str]) -> int:
    """Runs, prints the table and the verdict."""
    minutes = float(words[0]) if words else MINUTES
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)  # a guard is nobody's child: it comes to us
    with tempfile.TemporaryDirectory() as folder:
        with watched(Path(folder)) as machine:
            code, seen = driven(Path(folder), minutes, machine)
        files = list(Path(folder).glob("outputs/**/point.json"))
        if code not in JUDGED or len(files) != 1:
            print(f"the run ended with {code} and {len(files)} Points: nothing can be said")
            return 1
        soak = whole(files[0], code, seen, machine)
    return say(soak)


def driven(folder: Path, minutes: float, machine: Machine) -> tuple[int, list[Held]]:
    """The run beside its control; its exit code and what every process held."""
    asked = ("+variant=baseline", "engine=sim", f"engine.sim_speed={SPEED}", f"load.concurrency={STREAMS}")
    command = [sys.executable, "-m", "loadgen", *asked, f"load.window_s={60 * minutes:g}", "output.quiet=true"]
    print("python", *command[1:], flush=True)
    control = subprocess.Popen([sys.executable, str(HERE / "leaking.py"), str(CONTROL_MIB_PER_MIN)])
    run = subprocess.Popen(command, cwd=folder)
    me = psutil.Process()
    try:
        with Watch(lambda: _ours(me, machine), run.pid) as watch:
            code = run.wait(60 * minutes + AROUND_S_MAX)
    finally:
        _end(run, control)
    return code, list(watch.seen.values())


def _ours(me: psutil.Process, machine: Machine) -> list[psutil.Process]:
    """All that was started here but who watches the machine."""
    return [one for one in me.children(recursive=True) if one.pid not in machine.pids]


def _end(*processes: subprocess.Popen[bytes]) -> None:
    """Nothing that was started here is left behind."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(END_S_MAX)


def whole(file: Path, code: int, seen: Sequence[Held], machine: Machine) -> Soak:
    """All that is known of the run whose one Point this is."""
    reasons = [reason["rule"] for reason in json.loads(file.read_text())["verdict"]["reasons"]]
    disk = sum(one.stat().st_size for one in file.parent.rglob("*") if one.is_file())
    told = figures.read(file)
    told = replace(told, machine=machine.by_block(told.start_s, told.end_s))
    return Soak(code, told, seen, reasons, disk)


def say(soak: Soak) -> int:
    """Prints what was found; the exit code."""
    told = soak.told
    found = [*of_processes(told, soak.seen), *of_figures(told)]
    for one in found:
        print(f"{one.what:42} {one.level:>10}  {one.change:58} {one.word}")
    minutes = (told.end_s - told.start_s) / 60
    print(f"window of {minutes:.1f} minutes, {told.requests} requests, {told.tokens} tokens; Point: {_verdict(soak)}")
    peak = max(max(held.memory) for held in soak.seen if held.role == "driver")
    print(f"on the disk {soak.disk_bytes / told.tokens:.1f} bytes a token; ", end="")
    print(f"the driver at its end {peak / MIB:.0f} MiB, {peak / told.tokens:.0f} bytes a token")
    if not control_found(found):
        print(f"the control's leak of {CONTROL_MIB_PER_MIN:g} MiB a minute was not found: nothing is known")
        return 1
    return conclusion([one for one in without_control(found) if one.bad], soak.reasons)


def _verdict(soak: Soak) -> str:
    return f"INVALID for {', '.join(soak.reasons)}" if soak.reasons else "VALID"


def conclusion(bad: Sequence[Finding], reasons: Sequence[str]) -> int:
    """The last lines, and the exit code.

    Where the machine stopped the client, what a process held while it was behind may be too noisy to tell: that is
    said, and is no finding of the program. What grows or drifts beyond that noise is one all the same.
    """
    blind = [one.what for one in bad if one.blind and STOPPED in reasons]
    if blind:
        print(f"not judged, since the machine stopped the client ({STOPPED}): {', '.join(blind)}")
    bad = [one for one in bad if one.what not in blind]
    named = "; ".join(f"{one.what} {one.word}" for one in bad)
    print(f"SOAK: {named}" if bad else "SOAK: flat (the control's leak was found)")
    return 6 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
