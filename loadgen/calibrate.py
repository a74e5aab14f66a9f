"""`python -m loadgen.calibrate`: how many events a second one worker of this machine can measure, and how exactly.

Owns the search for the highest level that holds and its table. One try is `trial`'s, its figures are `exactness`'s.
"""

import argparse
import contextlib
import dataclasses
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from loadgen import capacity, cluster, trial
from loadgen.capacity import Capacity
from loadgen.errors import INVALID_POINTS, Interrupted, LoadgenError
from loadgen.exactness import BOUND_MS, DISTURBED, GAVE_UP, HELD, MISSED, WORKER_CPU_MAX, Try, bound_ms
from loadgen.interrupt import signals
from loadgen.report import rendered
from loadgen.words import figure, percent

IDLE_PER_S = 4_000.0  # little enough that what is wrong then is the machine's
START_PER_S = 16_000.0  # in the middle of what machines can do
CEILING_PER_S = 256_000.0
NEAR = 1.12  # the search ends when the level that held is so near below the one that did not
IDLE_TRIES = 3
TRIES_MAX = 4  # of a level: two that agree decide, and those that others disturbed do not count
SEARCH_S_MAX = 68.0  # no try is begun later; all is over within 90 s

EXAMPLES = """examples:
  python -m loadgen.calibrate                          measure, print the table, remember the figure
  python -m loadgen.calibrate --dry-run                measure and print, remember nothing
  XDG_STATE_HOME=/scratch python -m loadgen.calibrate  remember it there; later runs look there too

exit codes: 0 a figure was found; 2 the command line; 4 a worker was lost; 5 it could not be written;
6 no level held, and nothing is remembered; 130 / 143 interrupted
"""


@dataclass(frozen=True)
class Level:
    """One level with its tries; `outcome` is what most of them came to."""

    events_per_s: float
    bound_ms: float
    tries: tuple[Try, ...]

    @property
    def outcome(self) -> str:
        """What two tries agree on; DISTURBED where they could not, since too few were left alone."""
        counts = Counter(one.outcome(self.bound_ms) for one in self.tries)
        agreed = [word for word, count in counts.items() if count > 1 and word != DISTURBED]
        return agreed[0] if agreed else DISTURBED

    @property
    def held(self) -> Try:
        """Of the tries that held the one in the middle."""
        good = [one for one in self.tries if one.outcome(self.bound_ms) == HELD]
        return sorted(good, key=lambda one: one.events_per_s)[len(good) // 2]


def search(attempt: Callable[[float], Try], more: Callable[[], bool]) -> list[Level]:
    """Try levels until one that holds stands near below one that does not, or `more` says that the time is over."""
    idle = tuple(attempt(IDLE_PER_S) for _ in range(IDLE_TRIES))
    levels = [Level(IDLE_PER_S, bound_ms(idle), idle)]
    rate: float | None = START_PER_S if levels[0].outcome != MISSED else None
    while rate is not None and more():
        level = _level(rate, levels[0].bound_ms, attempt, more)
        if level.outcome == DISTURBED and len(level.tries) < TRIES_MAX:
            break  # its time was over, it says nothing
        levels.append(level)
        rate = _next(levels[1:])
    return levels


def _level(rate: float, bound: float, attempt: Callable[[float], Try], more: Callable[[], bool]) -> Level:
    level = Level(rate, bound, (attempt(rate),))
    while level.outcome == DISTURBED and len(level.tries) < TRIES_MAX and more():
        level = dataclasses.replace(level, tries=(*level.tries, attempt(rate)))
    return level


def _next(levels: Sequence[Level]) -> float | None:
    """The level to try next after these, above the idle one; None where the search is over."""
    low = max((level.events_per_s for level in levels if level.outcome == HELD), default=IDLE_PER_S)
    high = min((level.events_per_s for level in levels if level.events_per_s > low), default=None)
    if high is None:
        return 2 * low if 2 * low <= CEILING_PER_S else None
    return math.sqrt(low * high) if high / low > NEAR else None


def found(levels: Sequence[Level], machine: dict[str, str], now: datetime) -> Capacity | None:
    """The capacity that the levels show; None where none held."""
    good = [level for level in levels if level.outcome == HELD]
    if not good:
        return None
    best = max(good, key=lambda level: level.events_per_s)
    above = _above(levels, best)
    at_least = above is None or above.outcome != MISSED
    return Capacity(best.held.events_per_s, at_least, best.bound_ms, now.isoformat(timespec="seconds"), machine)


def _above(levels: Sequence[Level], best: Level) -> Level | None:
    """The lowest level that did not hold: why the search did not go higher."""
    higher = [level for level in levels if level.events_per_s > best.events_per_s]
    return min(higher, key=lambda level: level.events_per_s, default=None)


def table(levels: Sequence[Level]) -> Table:
    """Every try, by level."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    headers = (
        "asked\nevents/s", "drawn\nevents/s", "stamp error\nms p50", "\np99", "\nmax", "TTFT error\nms p99",
        "gap error\nms p99", "loop lag\nms p99", "worker\nCPU",
        "others on\nits core", "server\nlate",
    )  # fmt: skip
    for header in headers:
        shown.add_column(header, justify="right", vertical="bottom")
    shown.add_column("")
    for level in sorted(levels, key=lambda level: level.events_per_s):
        for one in level.tries:
            shown.add_row(*_cells(level, one))
    return shown


def _cells(level: Level, one: Try) -> list[Text]:
    errors = (one.stamp_p50_ms, one.stamp_p99_ms, one.stamp_max_ms, one.ttft_p99_ms, one.gap_p99_ms)
    figures = [figure(level.events_per_s), figure(one.events_per_s), *(f"{error:.2f}" for error in errors)]
    shares = map(percent, (one.worker_cpu, one.waited_share, one.late_share))
    outcome = one.outcome(level.bound_ms)
    cells = [*figures, f"{one.loop_lag_p99_ms:.2f}", *shares, outcome]
    return [Text(cell, style="" if outcome == HELD else "dim") for cell in cells]


def ending(levels: Sequence[Level], best: Capacity | None) -> str:
    """What the table means, in sentences."""
    bound = levels[0].bound_ms
    lines = [
        f"{trial.STREAMS} streams of one worker; held: stamp and TTFT errors p99 at most {bound:.3g} ms and worker CPU "
        f"at most {percent(WORKER_CPU_MAX)}, twice"
    ]
    if bound > BOUND_MS:
        lines.append(f"this machine was busy: even {figure(IDLE_PER_S)} events/s erred by half of that; {trial.CALM}")
    if best is None:
        return "\n".join([*lines, f"not even {figure(IDLE_PER_S)} events/s held, nothing is remembered; {trial.CALM}"])
    why = {
        GAVE_UP: " (then the null server gave up)",
        DISTURBED: f" (then others had the worker's core; {trial.CALM})",
    }
    next_one = _above(levels, max(levels, key=lambda level: (level.outcome == HELD, level.events_per_s)))
    told = why.get(next_one.outcome, "") if next_one else " (nothing higher was tried)"
    return "\n".join([*lines, f"capacity: {best.least}{figure(best.events_per_s)} events/s a worker{told}"])


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line; argparse exits 2 where it cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m loadgen.calibrate",
        description="Measure how many events a second one worker of this machine stamps exactly, against a server "
        "that does nothing but send them; later runs say what share of it they used. Takes at most 90 s.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dry-run", action="store_true", help="remember nothing")
    return parser.parse_args(words)


def measure(began_s: float) -> list[Level]:
    """The search on this machine. Raises ClusterError where Ray or a worker is lost, Interrupted on a signal."""
    own = 2 if len(os.sched_getaffinity(0)) > 2 else 1  # a core for the worker, and one for the null server
    with cluster.opened(None, own), signals() as stop, trial.null_server() as address:

        def attempt(rate: float) -> Try:
            one = trial.attempt(address, rate, stop)
            line = f"{figure(rate)} events/s: errors p99 {one.stamp_p99_ms:.2f} ms, of TTFT {one.ttft_p99_ms:.2f} ms"
            print(line, file=sys.stderr, flush=True)
            return one

        return search(attempt, lambda: time.monotonic() - began_s < SEARCH_S_MAX)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    began_s = time.monotonic()
    given = options(words)
    try:
        machine, results = capacity.machine(), sys.stdout
        with contextlib.redirect_stdout(sys.stderr):  # Ray writes to it; it is for results
            levels = measure(began_s)
        best = found(levels, machine, datetime.now(UTC))
        print(rendered(table(levels), results))
        print(ending(levels, best))
        if best is not None and not given.dry_run:
            tries = [
                {"asked_per_s": lev.events_per_s, **dataclasses.asdict(one)} for lev in levels for one in lev.tries
            ]
            print(f"remembered: {capacity.remember(best, tries)}")
        return INVALID_POINTS if best is None else 0
    except LoadgenError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before anything was started
        return Interrupted(signal.SIGINT).exit_code


if __name__ == "__main__":
    sys.exit(main())
