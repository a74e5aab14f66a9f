"""How long things will take: what a person is told before and while a ladder runs. Never part of a result."""

import contextlib
import dataclasses
import io
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from loadgen import prompts, replay, window
from loadgen.config import Config, Level, Load, levels
from loadgen.window import Measured
from server.sim import faults, flags, profile, settings
from server.variant import ServerSpec, argv

CROWD_MAX = 256
Durations = Callable[[int], float]


def simulated(spec: ServerSpec, max_tokens: int) -> Durations | None:
    """A request's duration in seconds by concurrency, from the simulator's profile; None for another engine."""
    if spec.engine != "sim":
        return None
    words = argv(spec, host="127.0.0.1", port=1, seed=1)[3:]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            given = flags.build_parser(flags.version_of(words)).parse_args(words)
        hardware = profile.parse(Path(given.sim_profile or profile.SHIPPED).read_text(encoding="utf-8"))
        resolved = settings.resolve(given, spec.env, hardware, faults.parse([]))
    except (SystemExit, OSError, profile.ProfileError, settings.SettingsError):
        return None  # the start itself will say what is wrong, with the server's own words
    cap = int(resolved.flags["max_running_requests"])

    def duration_s(concurrency: int) -> float:
        rate = profile.throughput(hardware, resolved.curve, concurrency, max_running=cap) * spec.sim_speed
        return concurrency * max_tokens / rate

    return duration_s


@dataclass
class Ladder:
    """The levels of one run: how long those that are left will take, by a profile or by what was measured so far."""

    load: Load
    levels: Sequence[Level]
    known: Durations | None = None
    measured: list[Measured] = field(default_factory=list)
    after_s: float | None = None  # what the command has to do after this run; None: nothing, or nothing tells

    def left_s(self, place: int) -> float | None:
        """Seconds for the levels from `place` on; None while nothing is known."""
        if not self.levels[place:]:
            return 0.0
        if self.known is None and len(self.measured) < 2:
            return None  # one level says nothing of how the next ones grow
        seen = list(self.measured)
        total = 0.0
        for level in (replay.resolved(self.load, level) for level in self.levels[place:]):
            if self.known is not None:
                duration_s = self.known(level.concurrency or in_flight(self.known, level.rate or 0.0))
            else:
                duration_s = window.expect_at(level.concurrency, 0.0, seen).duration_s
            seen.append(Measured(level.concurrency or 1, duration_s))
            total += window.level_s(self.load, level, duration_s)
        return total


def in_flight(durations: Durations, rate: float) -> int:
    """How many requests a rate keeps in flight, by Little's law; CROWD_MAX where the server cannot keep up."""
    crowd = 1
    while crowd < CROWD_MAX and crowd < rate * durations(crowd):
        crowd *= 2
    return crowd


def ladder(conf: Config, spec: ServerSpec) -> Ladder:
    """All levels of a run."""
    typical = prompts.output_lengths(conf.workload).typical
    return Ladder(conf.load, levels(conf.load), simulated(spec, typical))


def together_s(ladders: Sequence[Ladder]) -> float | None:
    """Seconds that these runs take, without starts; None where one is unknown."""
    known = [seconds for one in ladders if (seconds := one.left_s(0)) is not None]
    return sum(known) if len(known) == len(ladders) else None


def remembered(measured: Sequence[Measured]) -> Durations | None:
    """Durations as they were measured, between levels by a power law, above them in proportion; None of nothing."""
    by_level = {one.concurrency: one.duration_s for one in measured}
    if not by_level:
        return None
    highest = max(by_level)
    known, durations = np.log(sorted(by_level)), np.log([by_level[level] for level in sorted(by_level)])

    def duration_s(concurrency: int) -> float:
        within = float(np.exp(np.interp(np.log(concurrency), known, durations)))
        return within * max(1.0, concurrency / highest)

    return duration_s


@dataclass
class Part:
    """One run of a command, less what is measured already. `alike` is what runs that take the same time share."""

    alike: Hashable
    ladder: Ladder
    starts: bool  # a server is started for it


@dataclass
class Ahead:
    """A whole command: how long all runs after the current one will take, their servers' starts included.

    Where no profile tells, a run takes as long as one that was measured of the same kind, else as the last of any.
    """

    parts: Sequence[Part]
    took_s: Sequence[float] = ()  # changes of servers so far; grows meanwhile
    seen: dict[Hashable, Sequence[Measured]] = field(default_factory=dict)

    def ladder(self, place: int) -> Ladder:
        """The run at `place`, with the durations of one of its kind where it has none of its own."""
        part = self.parts[place]
        return self._known(part) if self.seen.get(part.alike) else part.ladder

    def remember(self, place: int, measured: Sequence[Measured]) -> None:
        """Keep what the run at `place` has shown so far."""
        self.seen[self.parts[place].alike] = measured

    def after_s(self, place: int) -> float | None:
        """Seconds for the runs after `place`; None while nothing tells, and for a single run."""
        rest = [part for part in self.parts[place + 1 :] if part.ladder.levels]
        levels_s = together_s([self._known(part) for part in rest])
        if levels_s is None or len(self.parts) == 1:
            return None
        starts = sum(part.starts for part in rest)
        return levels_s + (starts * float(np.mean(self.took_s)) if self.took_s else 0.0)

    def _known(self, part: Part) -> Ladder:
        if part.ladder.known is not None:
            return part.ladder
        same = self.seen.get(part.alike) or next(reversed(self.seen.values()), ())
        return dataclasses.replace(part.ladder, known=remembered(same))
