"""How long things will take: what a person is told before and while a ladder runs. Never part of a result."""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadgen import replay, window
from loadgen.config import Level, Load
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

    def left_s(self, place: int) -> float | None:
        """Seconds for the levels from `place` on; None while nothing is known."""
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
