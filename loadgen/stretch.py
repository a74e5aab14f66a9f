"""The profiled stretch after a Point: its load once more, unrecorded, while the server profiles some of its steps.

Beside the Point and never in it, since a profiler slows what it looks at. Nothing that goes wrong here is the Point's:
it becomes a warning, and the reason in the place of the shares.
"""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen import cluster
from loadgen.cell import Cell, shards_of
from loadgen.crew import Crew, hire
from loadgen.errors import ClusterError, Interrupted
from loadgen.interrupt import Stop
from loadgen.margin import margin
from loadgen.plan import Prompt
from loadgen.progress import Progress
from loadgen.watch import Watch, observe

STRETCH_S_MAX = 900.0  # beyond the bounds of server.torch_trace, a long trace's reading included
SHORT_S_MAX = 60.0  # until all streams are there, however long one request takes
ANSWER_S_MAX = 10.0


@dataclass
class Asking:
    """Asks for the profile once all streams are there, and ends the load when it has come."""

    cell: Cell
    crew: Crew
    after_s: float
    asked: Any = None

    def look(self, board: Mapping[str, Any]) -> None:
        """What is done at each look at the board."""
        since_s = board["t_ns"] / 1e9
        if self.asked is None and since_s > self.after_s and board["reads"]:
            name = self.cell.identity["point_id"]
            self.asked = self.cell.launched.server.send("profile", name, self.cell.conf.engine.profile_steps)
        came = self.asked is not None and cluster.is_done(self.asked, 0)
        if (came or since_s > STRETCH_S_MAX) and not board["reason"]:
            self.crew.stop("profiled")


def profile(cell: Cell, found: tuple[Prompt, ...], progress: Progress, stop: Stop) -> dict[str, Any]:
    """The shares of the profiled steps for point.json, see server.profiling; or `trace` None and `why`."""
    steps = cell.conf.engine.profile_steps
    progress.phase(f"{cell.conf.variant.name}: profiling {steps} steps at {cell.level.words}")
    try:
        told = _taken(cell, found, stop)
    except (ClusterError, Interrupted) as error:  # the Point is written: a signal ends what comes after it
        told = {"trace": None, "why": str(error)}
    if told["trace"] is None:
        progress.warn(f"engine.profile: no trace came at {cell.level.words} ({told['why']}); the Point stands without")
        return told
    return {**told, "trace": os.path.relpath(Path(told["trace"]), cell.folder)}


def _taken(cell: Cell, found: tuple[Prompt, ...], stop: Stop) -> dict[str, Any]:
    launched = cell.launched
    launched.server.ask("flush")
    launched.profiled = True
    endless = dataclasses.replace(cell, level=dataclasses.replace(cell.level, requests=None))
    crew = hire(shards_of(endless, found), cell.conf.load, cell.ramp_s, True, launched.places, None, stop)
    asking = Asking(cell, crew, min(cell.stagger_s, SHORT_S_MAX))
    try:
        watch = observe(crew, launched, asking.look, stop, STRETCH_S_MAX)
    finally:
        crew.dismiss()
    return _told(asking, watch, launched.server.ask("look")["alive"])


def _told(asking: Asking, watch: Watch, alive: bool) -> dict[str, Any]:
    asking.cell.launched.gone = not alive
    if watch.failed and (not alive or asking.asked is None or not cluster.is_done(asking.asked, 0)):
        (reason,) = watch.failed.reasons
        return {"trace": None, "why": margin(dataclasses.asdict(reason))}
    if asking.asked is None:
        return {"trace": None, "why": "the load ended before all its streams were there"}
    told: dict[str, Any] = cluster.result(asking.asked, asking.crew.heard, ANSWER_S_MAX, "the profile")
    return told
