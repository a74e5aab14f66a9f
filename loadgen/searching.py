"""The story of a search: it hands out what to measure next, reads from the disk what came of it, says how it ended.

Levels follow from the Points on the disk, block by block and level by level, so a search that was interrupted goes on
with the same ones. Which levels they are is `search`'s to say.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen import comparison, evidence, objectives, pairing, resume, search
from loadgen.asked import Run
from loadgen.comparison import Contest
from loadgen.config import BASELINE, Config, Level, levels
from loadgen.errors import ConfigError
from loadgen.objectives import Standing
from loadgen.progress import Progress
from loadgen.search import CROSSOVER, FACTORS, SLO, Ended, Go, Seen
from loadgen.verdict import INVALID, VALID
from loadgen.words import clean, duration

Work = tuple[int, Run, tuple[Level, ...]]  # the place of the run that was asked for, what is measured of it, and where


@dataclass
class Search:
    """The work of a command: all levels of each run, or what its search asks for; `said` is how that ended."""

    runs: Sequence[Run]
    root: Path
    order: Callable[[Sequence[Run]], list[Run]]  # of one block's runs
    progress: Progress
    said: list[str] = field(default_factory=list)
    done: bool = False
    begun_s: float = field(default_factory=time.monotonic)

    def work(self) -> Iterator[Work]:
        """One run after the other; each has been measured when the next one is asked for."""
        kind = self.runs[0].config.load.search
        if kind == CROSSOVER:
            yield from self._blocks([run for run in self.runs if not run.repeat])
        for place, run in enumerate(self.runs):
            if kind == CROSSOVER and not run.repeat:
                continue
            if kind == SLO and not run.repeat:
                yield from self._climb(place, run)
            else:
                yield place, run, levels(run.config.load)
        self.done = True

    def ending(self) -> str:
        """What a search says at its end; empty where nothing was searched."""
        if self.runs[0].config.load.search is None:
            return ""
        told = [*self.said, *([] if self.done else ["the search is not finished: go on with resume=true"])]
        return "\n".join(clean(f"search: {line}") for line in told)

    def _late(self) -> str:
        """That the time is over, in words; empty while it is not."""
        bound_s = self.runs[0].config.load.search_s_max
        over = bound_s is not None and time.monotonic() - self.begun_s >= bound_s
        return f"{duration(bound_s or 0)} are over (load.search_s_max)" if over else ""

    def _measured(self, place: int, run: Run, at: tuple[Level, ...]) -> Iterator[Work]:
        """The levels, and once more those that are INVALID: a moment's noise should not decide where a search goes."""
        yield place, run, at
        seen = [one for one in seen_of(self.root, run, set(at)) if one.level in at]
        if again := tuple(one.level for one in seen if one.status.startswith(INVALID) and one.standing is None):
            self.progress.line(f"search: once more, since it was INVALID: {', '.join(level.words for level in again)}")
            yield place, run, again

    def _blocks(self, runs: Sequence[Run]) -> Iterator[Work]:
        """The ladder in block 0, then block after block around the crossovers that are not known well enough."""
        load, variants = runs[0].config.load, names_of(runs)
        factor, names, at = load.search_factor or FACTORS[CROSSOVER], variants, levels(load)
        contest: Contest | None = None
        for block in itertools.count():
            for run in self.order([in_block(run, block) for run in runs if run.config.variant.name in names]):
                yield from self._measured(variants.index(run.config.variant.name), run, at)
            before, contest = contest, contest_of(self.root, block)
            steps = {name: step_of(contest, name, factor, before) for name in names if name != BASELINE}
            self.said += [step.why for step in steps.values() if isinstance(step, Ended)]
            going = {name: step for name, step in steps.items() if isinstance(step, Go)}
            if not going:
                return
            if stopped := self._stopped(block, going, contest):
                self.said += [f"{step.why}: not known better, {stopped}" for step in going.values()]
                return
            names = [BASELINE, *going]
            at = tuple(
                Level(level, load.requests) for level in sorted({one for go in going.values() for one in go.levels})
            )
            shown = ", ".join(str(level.concurrency) for level in at)
            self.progress.line(
                f"search: {'; '.join(step.why for step in going.values())}; block {block + 1} at {shown}"
            )

    def _stopped(self, block: int, going: Mapping[str, Go], contest: Contest | None) -> str:
        """What ends the search although it has not found all; empty where nothing does."""
        most = self.runs[0].config.load.search_blocks_max
        if block + 1 >= most:
            return f"{most} blocks were measured (load.search_blocks_max)"
        ratios = (
            {row.variant for row in contest.rows.values() if row.output.ratio and _has(row, block)}
            if contest
            else set()
        )
        if not ratios & set(going):
            return f"block {block} brought no VALID Point of {' and '.join(going)} beside {BASELINE}'s"
        return self._late()

    def _climb(self, place: int, run: Run) -> Iterator[Work]:
        """Up the ladder until an objective is missed, then between the highest level kept and the lowest missed."""
        load = run.config.load
        factor, ladder, tried = load.search_factor or FACTORS[SLO], levels(load), set[Level]()
        limits = objectives.in_words_of(objectives.asked(run.config.slo), load.kind == "open")
        while True:
            seen = seen_of(self.root, run, tried)
            level, stopped = search.next_level(ladder, seen, factor), self._late()
            if level and len(seen) >= load.search_points_max:
                stopped = f"{load.search_points_max} levels were measured (load.search_points_max)"
            if level is None or stopped:
                break
            tried.add(level)
            yield from self._measured(place, run, (level,))
        self.said.append(search.answer(run.config.variant.name, limits, seen, stopped if level else ""))


def names_of(runs: Sequence[Run]) -> list[str]:
    """The variants' names."""
    return [run.config.variant.name for run in runs]


def _has(row: comparison.Row, block: int) -> bool:
    return any(one.number == block for one in row.output.by_block)


def in_block(run: Run, block: int) -> Run:
    """The run in a block: the first is the run itself, the others lie in folders below it."""
    if not block:
        return run
    return dataclasses.replace(
        run, config=dataclasses.replace(run.config, block=block), folder=run.folder / f"block{block}"
    )


def contest_of(root: Path, block: int) -> Contest | None:
    """The comparison of all Points up to this block; None where nothing is VALID."""
    points = [point for point in evidence.read([root]).points if point["block"] <= block]
    found = comparison.contests(points, lambda _: {}, pairing.labels(points, ()), BASELINE)
    return found[0] if found else None


def step_of(contest: Contest | None, variant: str, factor: float, before: Contest | None) -> Go | Ended:
    """What a variant needs next."""
    if contest is None:
        return Ended(f"nothing VALID of both {variant} and {BASELINE}")
    return search.crossover(contest, variant, factor, before)


def seen_of(root: Path, run: Run, tried: set[Level]) -> list[Seen]:
    """What is known of a run's levels: of earlier commands what is VALID, of this one all that was `tried`."""
    points = {point["point_id"]: point for point in resume.points(root)}
    return [
        _seen(level, line, points.get(line["point_id"]))
        for level, line in lines_of(root, run).items()
        if line["status"] == VALID or level in tried
    ]


def lines_of(root: Path, run: Run) -> dict[Level, Mapping[str, Any]]:
    """The last line of the ledger for each level of a run."""
    me = (str(run.folder.relative_to(root)), run.config.variant.name, run.config.block)
    mine = [line for line in resume.newest(root) if (line["folder"], line["variant"], line["block"]) == me]
    return {Level(line["concurrency"], run.config.load.requests, line.get("rate")): line for line in mine}


def _seen(level: Level, line: Mapping[str, Any], point: Mapping[str, Any] | None) -> Seen:
    summary = (point or {}).get("summary") or {}
    if point and "overload" in {reason["rule"] for reason in point["verdict"]["reasons"]}:
        return Seen(level, line["status"], Standing(False, True, "overloaded"))
    if line["status"] != VALID or "slo" not in summary:
        return Seen(level, f"{line['status']}, {line.get('reason') or 'no summary'}", None)
    return Seen(level, VALID, objectives.standing(summary["slo"]), summary["goodput_requests_per_s"])


def check(configs: Sequence[Config]) -> None:
    """Refuse a search that the runs of a command cannot be together. Raises ConfigError."""
    kinds = {conf.load.search for conf in configs}
    if len(kinds) > 1:
        raise ConfigError("load.search differs between the runs of one command; give one")
    if kinds != {CROSSOVER}:
        return
    names = [conf.variant.name for conf in configs]
    if BASELINE not in names or len(set(names)) < 2:
        raise ConfigError(
            f"load.search=crossover holds variants against the baseline: add -m +variant={BASELINE},OTHER"
        )
    if len(set(names)) < len(names):
        raise ConfigError(
            "load.search=crossover takes one run a variant: give levels as a list, as in load.concurrency=[1,16], "
            "and leave other sweeps out"
        )
