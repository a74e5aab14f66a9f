"""The story of a whole command: runs are checked and ordered, servers reused, Points measured, the ledger kept.

Owns the order of things and the exit code. How a server lives is `launch`'s, what happens inside a Point is `point`'s,
what a person sees is `report`'s.
"""

import contextlib
import dataclasses
import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO

from loadgen import (
    audit,
    claimed,
    cluster,
    dry,
    ending,
    engine,
    errors,
    forecast,
    placing,
    point,
    preflight,
    prompts,
    publish,
    report,
    resume,
    searching,
    verdict,
    volume,
)
from loadgen.arrange import arranged, order
from loadgen.asked import Collected, Run
from loadgen.config import Config, Level
from loadgen.errors import Bug, ClusterError, ConfigError, Interrupted, ServerError, StorageError
from loadgen.forecast import Ahead, Part
from loadgen.interrupt import Stop, signals
from loadgen.ledger import Ledger
from loadgen.margin import in_words, set_in
from loadgen.nodes import Places
from loadgen.plan import Prompt
from loadgen.progress import Progress
from loadgen.replay import trace_warnings
from loadgen.servers import Servers
from server.variant import ServerSpec


def run_all(collected: Collected) -> int:
    """Measure every run; the exit code. Raises LoadgenError where nothing could be started at all."""
    runs = arranged(collected)
    for run in runs:
        engine.check_inputs(run.config)
    texts = _prompts([run.config for run in runs])
    # What engine=auto means is known with the cluster only; both meanings are checked, and shown by a dry run.
    kinds = {"auto": ("sglang", "sim")}
    planned = [
        (run, engine.server_spec(run.config, kind))
        for run in runs
        for kind in kinds.get(run.config.engine.kind, (run.config.engine.kind,))
    ]
    if any(run.config.launch.dry_run for run in runs):
        print(dry.dry_run(planned))
        return 0
    for run in runs:
        engine.require_weights(run.config, run.config.engine.kind)
    audit.require_baseline([run.config for run in runs])
    placing.require_one_cluster([run.config for run in runs])
    asks = [prompts.Asking(found, prompts.digest(run.config, found)) for run, found in zip(runs, texts, strict=True)]
    folders = [run.folder.relative_to(collected.root) for run in runs]
    asked = resume.question([run.config for run in runs], folders, [one.digest for one in asks])
    older = _older(collected, asked)
    publish.require([run.config for run in runs])
    results = sys.stdout
    # Ray tells of a lost process on stdout, which is for results.
    with (
        contextlib.redirect_stdout(sys.stderr),
        cluster.opened(runs[0].config.cluster.address, placing.workers_most([run.config for run in runs])),
        signals() as stop,
    ):
        specs, places = placing.settle([run.config for run in runs], stop)
        root = older or claimed.claim(collected.root, collected.chosen)
        runs = [dataclasses.replace(run, folder=root / run.folder.relative_to(collected.root)) for run in runs]
        with claimed.held(root):
            resume.begin(root, asked, collected.command)
            publish.missing(runs, root, places.driver, stop)
            return measure(runs, specs, asks, places, root, stop, collected.command, results)


def _older(collected: Collected, asked: list[dict[str, Any]]) -> Path | None:
    """With resume=true the folder of the same question. Raises ConfigError for none, and for a chosen one in use."""
    if all(run.config.resume for run in collected.runs):
        return resume.find(collected.root, collected.chosen, asked)
    if collected.chosen:
        claimed.refuse_taken(collected.root)
    return None


def _prompts(configs: Sequence[Config]) -> list[tuple[Prompt, ...]]:
    """The prompts of each run; runs of one workload hold the same, since a file's may be large."""
    workloads = {repr(conf.workload): conf.workload for conf in configs}
    loaded = {key: prompts.load(workload) for key, workload in workloads.items()}
    told = [*(said for _, said in loaded.values()), *(trace_warnings(c.load) + engine.warnings(c) for c in configs)]
    for warning in dict.fromkeys(itertools.chain(*told)):
        print(f"loadgen: warning: {warning}", file=sys.stderr)
    return [loaded[repr(conf.workload)][0] for conf in configs]


def measure(
    runs: Sequence[Run],
    specs: Sequence[ServerSpec],
    asks: Sequence[prompts.Asking],
    places: Places,
    root: Path,
    stop: Stop,
    command: str,
    results: TextIO,
) -> int:
    """Measure `runs` in their order on the open cluster, less what is VALID already; tables go to `results`.

    Returns the exit code.
    """
    configs = [run.config for run in runs]
    grid = Grid(Ledger(root, resume.done(root)), stop, Servers(stop, places))
    grid.ahead = grid.look_ahead(runs, specs)
    left = [part.ladder for part in grid.ahead.parts]
    estimate_s = forecast.together_s(left)
    took_s: dict[str, float] = {}
    grid.servers.before_first = preflight.before_first(configs, specs, estimate_s, root, volume.together(configs, left))
    with Progress(runs[0].config.output.quiet) as progress:
        search = searching.Search(runs, root, order, progress)
        if len({places.server, *places.clients}) > 1:
            progress.line(places.words)
        progress.line(report.plan_text(runs, specs, root, estimate_s, [len(ladder.levels) for ladder in left]))
        for warned in dict.fromkeys(map(dry.cap_warning, configs, specs)):
            if warned:
                progress.warn(warned)
        try:
            for place, run, levels in search.work():
                begun_s = time.monotonic()
                grid.run(place, run, specs[place], asks[place], progress, levels)
                if run.config.chaos:
                    grid.servers.end(progress)  # what becomes of its server is part of a fault
                took_s[str(run.folder.relative_to(root))] = time.monotonic() - begun_s
        except (Interrupted, StorageError) as error:
            grid.codes.append(error.exit_code)
            if isinstance(error, StorageError):
                if stop.signum is not None:  # the signal is why the Point ended, also where it could not be kept
                    grid.codes.append(Interrupted(stop.signum).exit_code)
                progress.warn(f"loadgen: {error}; what was written before stands")
        finally:
            grid.servers.end(progress)
    if runs[0].config.audit:
        grid.codes.append(audit.at_end(root, results))
    with contextlib.redirect_stdout(results):  # its width and colours are those that count
        if configs[0].chaos:
            return errors.worst([*grid.codes, ending.trials(runs, grid.ledger, took_s, grid.servers.left)])
        ending.tell(configs, grid.ledger, command, interrupted=any(code in errors.SIGNALLED for code in grid.codes))
        if told := search.ending():
            print(told)
    return errors.worst([*grid.codes, *grid.ledger.codes.values(), *grid.servers.codes])


@dataclass
class Grid:
    """A command under way: its ledger, its servers, the exit codes collected beside those of its Points."""

    ledger: Ledger
    stop: Stop
    servers: Servers
    codes: list[int] = field(default_factory=list)
    ahead: Ahead = field(default_factory=lambda: Ahead(()))

    def look_ahead(self, runs: Sequence[Run], specs: Sequence[ServerSpec]) -> Ahead:
        """What is to be measured of each run, and where a server is started for it."""
        parts: list[Part] = []
        last: Any = None
        for run, spec in zip(runs, specs, strict=True):
            ladder = forecast.ladder(run.config, spec)
            ladder.levels = self.ledger.unmeasured(run, ladder.levels)
            server = (spec, run.config.block, run.repeat)
            parts.append(Part((run.config.variant.name, repr(run.config.workload)), ladder, server != last))
            last = server if ladder.levels else last
        return Ahead(parts, self.servers.took_s)

    def run(
        self, place: int, run: Run, spec: ServerSpec, asking: prompts.Asking, progress: Progress, asked: Sequence[Level]
    ) -> None:
        """A run at these levels. A server that does not start fails them all; one that dies fails one."""
        left = self.ledger.unmeasured(run, asked)
        ladder = dataclasses.replace(self.ahead.ladder(place), levels=left)
        for number, level in enumerate(left):
            self.stop.check()
            try:
                claimed.make(run.folder)
                launched = self.servers.serve(spec, run, progress)
            except Interrupted as interrupted:
                self.ledger.interrupted(run, level, verdict.interrupted(interrupted.signum))
                raise
            except (ServerError, ClusterError, ConfigError, Bug) as error:
                progress.warn(f"{run.config.variant.name}: {error}{set_in(getattr(error, 'log_tail', ''))}")
                for unmeasured in left[number:]:
                    self.ledger.fail(run, unmeasured, error)
                if isinstance(error, ClusterError):
                    self.servers.look_around(progress)
                return
            except StorageError as error:
                self._full(run, level, error)
            ladder.measured, ladder.after_s = launched.measured, self.ahead.after_s(place)
            try:
                done, code = point.measure(launched, run.config, level, run.folder, asking, ladder, progress, self.stop)
            except Interrupted as interrupted:
                self.ledger.interrupted(run, level, verdict.interrupted(interrupted.signum))
                raise
            except ClusterError as error:
                progress.warn(f"FAILED at {level.words}: {error}")
                self.ledger.fail(run, level, error)
                self.servers.end(progress)
                continue
            except StorageError as error:
                self._full(run, level, error)
            self.ahead.remember(place, launched.measured)
            self._keep(run, level, done, code, progress)
            self.stop.check()

    def _full(self, run: Run, level: Level, error: StorageError) -> NoReturn:
        """End the command: the disk takes nothing, of this Point not even a part."""
        with contextlib.suppress(StorageError):  # the ledger may lie on the same full disk; its line is printed
            self.ledger.fail(run, level, error)
        raise error

    def _keep(self, run: Run, level: Level, done: dict[str, Any], code: int, progress: Progress) -> None:
        judged = done["verdict"]
        for reason in judged["reasons"]:
            advice = f"; {reason['advice']}" if judged["status"] == verdict.FAILED else ""
            tail = set_in(reason.get("log_tail", ""))
            progress.line(f"{judged['status']} at {level.words}: {in_words(reason)}{advice}{tail}")
        self.ledger.keep(run, level, done, code)
        if code == StorageError.exit_code:  # the next Point would find no room either
            raise StorageError(f"not all results of {level.words} could be written, and no other Point is begun")
        # Whatever state the server is in, the next Point starts with a fresh one.
        if judged["status"] == verdict.FAILED and code == ServerError.exit_code:
            self.servers.drop(progress)
        elif judged["status"] == verdict.FAILED:
            self.servers.end(progress)
            self.servers.look_around(progress)
