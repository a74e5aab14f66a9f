"""The story of a whole command: runs are checked and ordered, servers reused, Points measured, the ledger kept.

Owns the order of things and the exit code. How a server lives is `launch`'s, what happens inside a Point is `point`'s, what a
person sees is `report`'s.
"""

import dataclasses
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen import cluster, config, errors, forecast, launch, point, prompts, report, store, verdict
from loadgen.config import Config, Level
from loadgen.errors import ClusterError, Interrupted, LoadgenError, ServerError
from loadgen.forecast import Ladder
from loadgen.launch import Launched
from loadgen.plan import Prompt
from loadgen.progress import Progress
from server.variant import ServerSpec


@dataclass(frozen=True)
class Run:
    """One composed configuration and the folder of its results."""

    config: Config
    folder: Path


@dataclass(frozen=True)
class Collected:
    """All runs of one command; `root` holds the ledger, `chosen` says that the user named it, `command` is what was typed."""

    runs: tuple[Run, ...]
    root: Path
    chosen: bool
    command: str


def run_all(collected: Collected) -> int:
    """Measure every run; the exit code. Raises LoadgenError where nothing could be started at all."""
    runs = order(collected.runs)
    texts = [_prompts(run.config) for run in runs]
    specs = [launch.server_spec(run.config, run.config.engine.kind) for run in runs]
    if any(run.config.launch.dry_run for run in runs):
        print(report.dry_run(list(zip([run.config for run in runs], specs, strict=True))))
        return 0
    root = store.claim(collected.root, collected.chosen)
    runs = [dataclasses.replace(run, folder=root / run.folder.relative_to(collected.root)) for run in runs]
    with cluster.opened(runs[0].config.cluster.address), cluster.signals() as stop:
        return measure(runs, texts, root, stop, collected.command)


def order(runs: Sequence[Run]) -> list[Run]:
    """Blocks come first; inside a block variants in an order drawn by the block (two: A B, then B A), each with all its runs."""
    ordered: list[Run] = []
    for block in sorted({run.config.block for run in runs}):
        mine = [run for run in runs if run.config.block == block]
        names = list(dict.fromkeys(run.config.variant.name for run in mine))
        if len(names) == 2:
            names = names[::-1] if block % 2 else names
        else:
            random.Random(block).shuffle(names)
        ordered += [run for name in names for run in mine if run.config.variant.name == name]
    return ordered


def _prompts(conf: Config) -> tuple[Prompt, ...]:
    found, warnings = prompts.load(conf.workload)
    for warning in warnings:
        print(f"loadgen: warning: {warning}", file=sys.stderr)
    return found


def measure(
    runs: Sequence[Run], texts: Sequence[tuple[Prompt, ...]], root: Path, stop: cluster.Stop, command: str
) -> int:
    """Measure `runs` in their order on the open cluster; the exit code."""
    gpus = cluster.gpus_of_nodes()
    specs = [launch.server_spec(run.config, launch.resolve_engine(run.config, gpus)) for run in runs]
    for run in runs:
        cluster.require_cpus(run.config.cluster.workers or 1)
    grid = Grid(root, stop)
    with Progress(runs[0].config.output.quiet) as progress:
        progress.line(report.plan_text([run.config for run in runs], specs, root))
        try:
            for run, spec, found in zip(runs, specs, texts, strict=True):
                grid.run(run, spec, found, progress)
        except Interrupted as interrupted:
            grid.codes.append(interrupted.exit_code)
        finally:
            grid.end(progress)
    print(report.ending(grid.points, grid.lines, root, command))
    return errors.worst(grid.codes)


@dataclass
class Grid:
    """A command under way: the running server, the Points and ledger lines so far, the exit codes collected."""

    root: Path
    stop: cluster.Stop
    launched: Launched | None = None
    points: list[dict[str, Any]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def run(self, run: Run, spec: ServerSpec, found: tuple[Prompt, ...], progress: Progress) -> None:
        """One run: its levels in the order given. A server that does not start fails them all; one that dies fails one."""
        levels = config.levels(run.config.load)
        ladder = Ladder(run.config.load, levels, forecast.simulated(spec, run.config.workload.max_tokens))
        for place, level in enumerate(levels):
            self.stop.check()
            try:
                launched = self._serve(run, spec, progress)
            except ServerError as error:
                for left in levels[place:]:
                    self._fail(run, spec, left, error, progress)
                return
            ladder.warm_up_s, ladder.measured = launched.warm_up_s, launched.measured
            try:
                done, code = point.measure(launched, run.config, level, run.folder, found, ladder, progress, self.stop)
            except ClusterError as error:
                self._fail(run, spec, level, error, progress)
                self.end(progress)
                continue
            self._keep(run, level, done, code, progress)
            self.stop.check()

    def _serve(self, run: Run, spec: ServerSpec, progress: Progress) -> Launched:
        """The server that `run` asks for: the running one where it is the same, else a fresh one after that one's end."""
        if self.launched is None or (self.launched.spec, self.launched.block) != (spec, run.config.block):
            self.end(progress)
            self.launched = launch.start(spec, run.config, run.folder, progress, self.stop)
        return self.launched

    def _keep(self, run: Run, level: Level, done: dict[str, Any], code: int, progress: Progress) -> None:
        self.points.append(done)
        numbers = done["summary"] or {}
        self._ledger(
            run, done["variant"], level, done["verdict"], code, done["point_id"], numbers.get("output_tokens_per_s")
        )
        for reason in done["verdict"]["reasons"]:
            progress.line(
                f"{done['verdict']['status']} at concurrency {level.concurrency}: {reason['rule']}: {reason['measured']}"
            )
        if done["verdict"]["status"] == verdict.FAILED:
            self.end(progress)  # whatever state it is in, the next Point starts with a fresh one

    def _fail(self, run: Run, spec: ServerSpec, level: Level, error: LoadgenError, progress: Progress) -> None:
        progress.warn(f"FAILED at concurrency {level.concurrency}: {error}")
        rule = "server" if isinstance(error, ServerError) else "cluster"
        reason = {"rule": rule, "measured": str(error), "limit": None, "advice": None}
        self._ledger(run, spec.variant, level, {"status": "FAILED", "reasons": [reason]}, error.exit_code, None, None)

    def _ledger(
        self,
        run: Run,
        variant: str,
        level: Level,
        judged: dict[str, Any],
        code: int,
        point_id: str | None,
        tokens_per_s: float | None,
    ) -> None:
        """One line for each Point, on disk before the next one begins."""
        self.codes.append(code)
        line = {
            "point_id": point_id,
            "study": run.config.study,
            "variant": variant,
            "block": run.config.block,
            "concurrency": level.concurrency,
            "status": judged["status"],
            "reason": "; ".join(f"{reason['rule']}: {reason['measured']}" for reason in judged["reasons"]) or None,
            "exit_code": code,
            "output_tokens_per_s": tokens_per_s,
            "folder": str(run.folder.relative_to(self.root)),
        }
        self.lines.append(line)
        store.append_line(self.root / store.LEDGER, line)

    def end(self, progress: Progress) -> None:
        """Stop the running server, if any, and check that it is gone."""
        launched, self.launched = self.launched, None
        if launched:
            launch.end(launched, progress)
