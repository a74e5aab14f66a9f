"""The story of a whole command: runs are checked and ordered, servers reused, Points measured, the ledger kept.

Owns the order of things and the exit code. How a server lives is `launch`'s, what happens inside a Point is `point`'s,
what a person sees is `report`'s.
"""

import contextlib
import dataclasses
import itertools
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from loadgen import (
    audit,
    cluster,
    drift,
    dry,
    ending,
    engine,
    errors,
    forecast,
    placing,
    point,
    preflight,
    prompts,
    report,
    resume,
    searching,
    store,
    verdict,
)
from loadgen.asked import Collected, Run
from loadgen.config import Config, Level
from loadgen.errors import (
    Bug,
    ClusterError,
    ConfigError,
    Interrupted,
    LoadgenError,
    ServerError,
    StorageError,
)
from loadgen.forecast import Ahead, Part
from loadgen.interrupt import Stop, signals
from loadgen.margin import in_words, set_in
from loadgen.nodes import Places
from loadgen.plan import Prompt
from loadgen.progress import Progress
from loadgen.replay import trace_warnings
from loadgen.servers import Servers
from server.variant import ServerSpec


def run_all(collected: Collected) -> int:
    """Measure every run; the exit code. Raises LoadgenError where nothing could be started at all."""
    runs = order(collected.runs)
    searching.check([run.config for run in runs])
    runs += drift.repeated(runs, collected.root)
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
    results = sys.stdout
    # Ray tells of a lost process on stdout, which is for results.
    with (
        contextlib.redirect_stdout(sys.stderr),
        cluster.opened(runs[0].config.cluster.address, placing.workers_most([run.config for run in runs])),
        signals() as stop,
    ):
        specs, places = placing.settle([run.config for run in runs], stop)
        root = older or _fresh(collected, asked)
        runs = [dataclasses.replace(run, folder=root / run.folder.relative_to(collected.root)) for run in runs]
        return measure(runs, specs, asks, places, root, stop, collected.command, results)


def _older(collected: Collected, asked: list[dict[str, Any]]) -> Path | None:
    """With resume=true the folder of the same question. Raises ConfigError for none, and for a chosen one in use."""
    if all(run.config.resume for run in collected.runs):
        return resume.find(collected.root, collected.chosen, asked)
    if collected.chosen:
        store.refuse_taken(collected.root)
    return None


def _fresh(collected: Collected, asked: list[dict[str, Any]]) -> Path:
    """A folder of this command's own."""
    root = store.claim(collected.root, collected.chosen)
    resume.remember(root, asked, collected.command)
    return root


def order(runs: Sequence[Run]) -> list[Run]:
    """Blocks first; in each, variants in an order drawn by the block (two: A B, then B A), each with all its runs."""
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


def _prompts(configs: Sequence[Config]) -> list[tuple[Prompt, ...]]:
    """The prompts of each run; runs of one workload hold the same, since a file's may be large."""
    workloads = {repr(conf.workload): conf.workload for conf in configs}
    loaded = {key: prompts.load(workload) for key, workload in workloads.items()}
    told = [*(warnings for _, warnings in loaded.values()), *(trace_warnings(conf.load) for conf in configs)]
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
    grid = Grid(root, stop, resume.done(root), Servers(stop, places))
    grid.ahead = grid.look_ahead(runs, specs)
    left = [part.ladder for part in grid.ahead.parts]
    estimate_s = forecast.together_s(left)
    grid.servers.before_first = preflight.before_first(configs, specs, estimate_s, stop)
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
                grid.run(place, run, specs[place], asks[place], progress, levels)
        except (Interrupted, StorageError) as error:
            grid.codes.append(error.exit_code)
            if isinstance(error, StorageError):
                progress.warn(f"loadgen: {error}; what was written before stands")
        finally:
            grid.servers.end(progress)
    if runs[0].config.audit:
        grid.codes.append(audit.at_end(root, results))
    with contextlib.redirect_stdout(results):  # its width and colours are those that count
        ending.tell(configs, root, command, interrupted=any(code in errors.SIGNALLED for code in grid.codes))
        if told := search.ending():
            print(told)
    return errors.worst([*grid.codes, *grid.ended.values(), *grid.servers.codes])


@dataclass
class Grid:
    """A command under way: its servers, what was VALID before, the exit codes collected."""

    root: Path
    stop: Stop
    valid: set[resume.Key]
    servers: Servers
    codes: list[int] = field(default_factory=list)
    ended: dict[resume.Key, int] = field(default_factory=dict)  # each Point's code, the last time it was measured
    ahead: Ahead = field(default_factory=lambda: Ahead(()))

    def look_ahead(self, runs: Sequence[Run], specs: Sequence[ServerSpec]) -> Ahead:
        """What is to be measured of each run, and where a server is started for it."""
        parts: list[Part] = []
        last: Any = None
        for run, spec in zip(runs, specs, strict=True):
            ladder = forecast.ladder(run.config, spec)
            ladder.levels = self._unmeasured(run, ladder.levels)
            server = (spec, run.config.block, run.repeat)
            parts.append(Part((run.config.variant.name, repr(run.config.workload)), ladder, server != last))
            last = server if ladder.levels else last
        return Ahead(parts, self.servers.took_s)

    def run(
        self, place: int, run: Run, spec: ServerSpec, asking: prompts.Asking, progress: Progress, asked: Sequence[Level]
    ) -> None:
        """A run at these levels. A server that does not start fails them all; one that dies fails one."""
        left = self._unmeasured(run, asked)
        ladder = dataclasses.replace(self.ahead.ladder(place), levels=left)
        for number, level in enumerate(left):
            self.stop.check()
            try:
                launched = self.servers.serve(spec, run, progress)
            except Interrupted as interrupted:
                judged = verdict.interrupted(interrupted.signum)
                self._ledger(run, level, judged.exit_code, verdict.as_json(judged))
                raise
            except (ServerError, ClusterError, ConfigError, Bug) as error:
                progress.warn(f"{run.config.variant.name}: {error}{set_in(getattr(error, 'log_tail', ''))}")
                for unmeasured in left[number:]:
                    self._fail(run, unmeasured, error)
                return
            ladder.measured, ladder.after_s = launched.measured, self.ahead.after_s(place)
            try:
                done, code = point.measure(launched, run.config, level, run.folder, asking, ladder, progress, self.stop)
            except ClusterError as error:
                progress.warn(f"FAILED at {level.words}: {error}")
                self._fail(run, level, error)
                self.servers.end(progress)
                continue
            except StorageError as error:
                with contextlib.suppress(StorageError):  # the ledger may lie on the same full disk
                    self._fail(run, level, error)
                raise
            self.ahead.remember(place, launched.measured)
            self._keep(run, level, done, code, progress)
            self.stop.check()

    def _unmeasured(self, run: Run, asked: Sequence[Level]) -> list[Level]:
        return [level for level in asked if resume.key_of(self._line(run, level)) not in self.valid]

    def _keep(self, run: Run, level: Level, done: dict[str, Any], code: int, progress: Progress) -> None:
        judged = done["verdict"]
        for reason in judged["reasons"]:
            advice = f"; {reason['advice']}" if judged["status"] == verdict.FAILED else ""
            tail = set_in(reason.get("log_tail", ""))
            progress.line(f"{judged['status']} at {level.words}: {in_words(reason)}{advice}{tail}")
        self._ledger(run, level, code, judged, done["point_id"], (done["summary"] or {}).get("output_tokens_per_s"))
        # Whatever state the server is in, the next Point starts with a fresh one.
        if judged["status"] == verdict.FAILED and code == ServerError.exit_code:
            self.servers.lost(progress)
        elif judged["status"] == verdict.FAILED:
            self.servers.end(progress)
            self.servers.look_around(progress)

    def _fail(self, run: Run, level: Level, error: LoadgenError) -> None:
        """A Point that could not even be begun: a ledger line and no folder."""
        rule = {2: "configuration", 3: "server", 4: "cluster", 5: "storage"}.get(error.exit_code, "bug")
        tail = getattr(error, "log_tail", "")
        judged = {"status": verdict.FAILED, "reasons": [{"rule": rule, "measured": str(error), "log_tail": tail}]}
        self._ledger(run, level, error.exit_code, judged)

    def _line(self, run: Run, level: Level) -> dict[str, Any]:
        """What identifies a Point in the ledger."""
        return {
            "folder": str(run.folder.relative_to(self.root)),
            "study": run.config.study,
            "variant": run.config.variant.name,
            "workload": run.config.workload.name,
            "block": run.config.block,
            "repeat": run.repeat,
            "concurrency": level.concurrency,
            "rate": level.rate,
        }

    def _ledger(
        self,
        run: Run,
        level: Level,
        code: int,
        judged: dict[str, Any],
        point_id: str | None = None,
        output_tokens_per_s: float | None = None,
    ) -> None:
        """One line for each Point, on disk before the next one begins."""
        line = {
            **self._line(run, level),
            "point_id": point_id,
            "status": judged["status"],
            "reason": "; ".join(map(in_words, judged["reasons"])) or None,
            "advice": "; ".join(filter(None, (reason.get("advice") for reason in judged["reasons"]))) or None,
            "log_tail": "\n".join(filter(None, (reason.get("log_tail") for reason in judged["reasons"]))) or None,
            "exit_code": code,
            "output_tokens_per_s": output_tokens_per_s,
        }
        self.ended[resume.key_of(line)] = code
        store.append_line(self.root / store.LEDGER, line)
