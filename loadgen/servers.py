"""Which server serves the next Point: the running one where it is the same, else a fresh one; and its end.

Owns what a command must not do twice: wait for a start that failed before. Knows nothing of Points and ledgers.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from loadgen import cluster, launch, placing
from loadgen.asked import Run
from loadgen.errors import ClusterError, LoadgenError, ServerError, StorageError
from loadgen.interrupt import Stop
from loadgen.launched import Launched
from loadgen.nodes import Places
from loadgen.progress import Progress
from server.variant import ServerSpec

RESTARTS_MAX = 1  # a server that died may have met a level too high for it; twice is its way


@dataclass
class Servers:
    """The servers of one command, of which one runs at a time; `codes` are what their ends add to its exit code."""

    stop: Stop
    places: Places
    before_first: Callable[[cluster.Server, Progress], None] | None = None  # with the first server's place; may refuse
    launched: Launched | None = None
    failed: tuple[ServerSpec, int, LoadgenError] | None = None  # the last start that failed
    died: list[tuple[ServerSpec, int]] = field(default_factory=list)  # with its block, each that died in a Point
    left: tuple[str, ...] = ()  # what could not be cleaned up: its node is not used any more
    codes: list[int] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)  # each change of servers so far: an end and a start

    def serve(self, spec: ServerSpec, run: Run, progress: Progress) -> Launched:
        """The server that `run` asks for: the running one where it is the same, else a fresh one.

        Raises ServerError, ClusterError or Interrupted; Refused before the first one, where nothing can be started.
        """
        if (
            self.launched is None
            or self.launched.gone
            or (self.launched.spec, self.launched.block, self.launched.repeat) != (spec, run.config.block, run.repeat)
        ):
            begun_s = time.monotonic()
            self.end(progress)
            self._refuse(spec, run.config.block)
            before, self.before_first = self.before_first, None
            try:
                self.launched = launch.start(spec, run, self.places, progress, self.stop, before)
            except (ServerError, ClusterError) as error:
                self.failed = (spec, run.config.block, error)
                self.left = self.left or getattr(error, "left", ())
                raise
            self.took_s.append(time.monotonic() - begun_s)
        return self.launched

    def _refuse(self, spec: ServerSpec, block: int) -> None:
        """Raise the reason why this server is not started, if there is one."""
        if self.left and spec.engine != "external":
            dirty = f"not started: the node is not clean ({', '.join(self.left)})"
            raise ServerError(f"{dirty}; clean it, then go on with resume=true")
        if self.failed and self.failed[:2] == (spec, block):
            raise self.failed[2]  # the same server would fail again, after as long a wait
        if (deaths := self.died.count((spec, block))) > RESTARTS_MAX:
            raise ServerError(
                f"not started again: this server has failed in {deaths} Points of block {block}; "
                "see their reasons, then go on with resume=true"
            )

    def drop(self, progress: Progress) -> None:
        """The running server died, or hung, in a Point: end what is left of it, and remember."""
        if self.launched:
            self.died.append((self.launched.spec, self.launched.block))
        self.end(progress)

    def look_around(self, progress: Progress) -> None:
        """After a Point lost a worker: leave out the nodes that are gone."""
        self.places, told = placing.left(self.places, self.stop)
        if told:
            progress.warn(told)
            self.failed = None  # on other nodes a start may go well

    def end(self, progress: Progress) -> None:
        """Stop the running server, if any, and check that it is gone."""
        launched, self.launched = self.launched, None
        if launched is None:
            return
        try:
            left = launch.end(launched, progress)
        except StorageError as error:
            progress.warn(f"loadgen: {error}")
            self.codes.append(error.exit_code)
            return
        if left:
            self.left = left
            self.codes.append(ServerError.exit_code)
