"""Which server serves the next Point: the running one where it is the same, else a fresh one; and its end.

Owns what a command must not do twice: wait for a start that failed before. Knows nothing of Points and ledgers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from loadgen import cluster, launch
from loadgen.config import Config
from loadgen.errors import ClusterError, LoadgenError, ServerError, StorageError
from loadgen.interrupt import Stop
from loadgen.launched import Launched
from loadgen.progress import Progress
from server.variant import ServerSpec


@dataclass
class Servers:
    """The servers of one command, of which one runs at a time; `codes` are what their ends add to its exit code."""

    stop: Stop
    before_first: Callable[[cluster.Server, Progress], None] | None = None  # with the first server's place; may refuse
    launched: Launched | None = None
    failed: tuple[ServerSpec, int, LoadgenError] | None = None  # the last start that failed
    codes: list[int] = field(default_factory=list)

    def serve(self, spec: ServerSpec, conf: Config, folder: Path, progress: Progress) -> Launched:
        """The server that is asked for: the running one where it is the same, else a fresh one, its files in `folder`.

        Raises ServerError, ClusterError or Interrupted; Refused before the first one, where nothing can be started.
        """
        if self.launched is None or (self.launched.spec, self.launched.block) != (spec, conf.block):
            self.end(progress)
            if self.failed and self.failed[:2] == (spec, conf.block):
                raise self.failed[2]  # the same server would fail again, after as long a wait
            before, self.before_first = self.before_first, None
            try:
                self.launched = launch.start(spec, conf, folder, progress, self.stop, before)
            except (ServerError, ClusterError) as error:
                self.failed = (spec, conf.block, error)
                raise
        return self.launched

    def end(self, progress: Progress) -> None:
        """Stop the running server, if any, and check that it is gone."""
        launched, self.launched = self.launched, None
        try:
            if launched and not launch.end(launched, progress):
                self.codes.append(ServerError.exit_code)
        except StorageError as error:
            progress.warn(f"loadgen: {error}")
            self.codes.append(error.exit_code)
