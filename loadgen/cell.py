"""What one Point is: one level of a run on a running server, its identity, and the shares of its workers."""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen import capacity, prompts, replay, staffing, window, worker
from loadgen.config import Config, Level
from loadgen.launched import Launched
from loadgen.loads import in_flight_max
from loadgen.plan import Prompt
from loadgen.shard import limits
from loadgen.window import Expected

DURATION_S_MIN = 0.001  # of a warm-up request, to divide by


@dataclass(frozen=True)
class Cell:
    """What one Point is: one level of a run on a running server, and what is expected of it."""

    launched: Launched
    conf: Config
    level: Level
    folder: Path
    identity: Mapping[str, Any]
    expected: Expected
    turns: int  # the most turns of a conversation
    flushed: bool  # the server emptied its cache and its totals of speculation before the Point
    log_start: int = 0  # bytes of the server's log before the Point
    workers: int = 1

    @property
    def counted(self) -> bool:
        """A fixed count of requests, and so no window."""
        return self.level.counted

    @property
    def stagger_s(self) -> float:
        """Over how many seconds the first requests are spread.

        Conversations are spread over all their turns: later ones have longer prompts, and must not all come at once.
        """
        pauses_s = self.conf.workload.think_s * (self.turns - 1)
        whole = dataclasses.replace(self.expected, duration_s=self.expected.duration_s * self.turns + pauses_s)
        return window.stagger_s(self.conf.load, self.level.concurrency, whole)

    @property
    def ramp_s(self) -> float:
        """What the board waits for before it thinks of a window."""
        return self.expected.duration_s if self.level.open else self.stagger_s


def identity_of(launched: Launched, conf: Config, level: Level, folder: Path, asked: str) -> dict[str, Any]:
    """The identity columns of every row of the Point."""
    return {
        "study": conf.study,
        "variant": conf.variant.name,
        "spec_mode": launched.spec_mode,
        "engine": launched.spec.engine,
        "engine_version": launched.endpoint.get("version"),
        "simulated": launched.simulated,
        "sim_speed": launched.sim_speed,
        "model": conf.model.name,
        "workload": conf.workload.name,
        "workload_hash": asked,
        "block": conf.block,
        "repeat": launched.repeat,
        "concurrency": level.concurrency,
        "rate": replay.resolved(conf.load, level).rate,
        "point_id": launched.point_id(folder.name),
        "launch_id": launched.id,
        "stack": launched.must_match.get("hash"),
        "started_at": None,  # known when the board gives the start
    }


def workers_of(launched: Launched, conf: Config, level: Level, expected: Expected) -> int:
    """How many workers drive a level: as many as were asked for, else as its load needs; never more than streams."""
    streams = in_flight_max(conf, level) or sys.maxsize
    if conf.cluster.workers:
        return min(conf.cluster.workers, streams)
    clients, rate = launched.places.clients, replay.resolved(conf.load, level).rate
    requests_per_s = rate or (level.concurrency or 1) / max(expected.duration_s, DURATION_S_MIN)
    able, _ = capacity.least(launched.places.capacities, {node.name for node in clients})
    tokens_per_s = requests_per_s * prompts.output_lengths(conf.workload).typical
    needed = staffing.needed(level.concurrency or 1, tokens_per_s, able.events_per_s if able else None)
    return min(streams, max(len(clients), min(needed, launched.places.workers_meant)))


def shards_of(cell: Cell, found: tuple[Prompt, ...]) -> list[worker.Shard]:
    """One shard a worker; never more workers than streams."""
    conf, launched = cell.conf, cell.launched
    count, most = cell.workers, in_flight_max(conf, cell.level)
    plan = prompts.plan(conf.workload, found, conf.block, replay.resolved(conf.load, cell.level).requests)
    plan = dataclasses.replace(plan, arrivals=replay.arrivals(conf.load, cell.level, plan.seed))
    if launched.tells_verify_steps and conf.engine.api == "chat":
        plan = dataclasses.replace(plan, body={"return_spec_tokens_details": True, **plan.body})
    return [
        worker.Shard(
            worker=number,
            workers=count,
            concurrency=most,
            plan=plan,
            point_id=cell.identity["point_id"],
            base_urls=tuple(launched.endpoint["urls"]),
            api=conf.engine.api,
            model_id=launched.endpoint.get("model_id") or conf.model.name,
            stagger_s=cell.stagger_s,
            limits=limits(conf.load),
            identity=cell.identity,
            api_key_env=conf.engine.api_key_env,
            tls=launched.spec.tls,
            keep_text=conf.output.text,
            keep_rows=conf.output.uri is not None,
        )
        for number in range(count)
    ]


def load_of(cell: Cell) -> dict[str, Any]:
    """What point.json says of the load: what was asked, of a trace also its mean rate."""
    load, level = cell.conf.load, cell.level
    if not level.open:
        return {"kind": load.kind, "concurrency": level.concurrency, "requests": level.requests}
    known = replay.resolved(load, level)
    names = ("burstiness", "max_in_flight") if load.trace is None else ("trace", "trace_speed", "max_in_flight")
    arrival = "trace" if load.trace else load.arrival
    asked = {"kind": load.kind, "rate": known.rate, "requests": known.requests, "arrival": arrival}
    return {**asked, **{name: getattr(load, name) for name in names}}
