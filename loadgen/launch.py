"""The story of one Launch: a server is started and proven, warmed up, serves its Points, is stopped and found gone.

Writes launch.json and server_metrics.parquet through `store`. Knows nothing of levels and Points.
"""

import contextlib
import dataclasses
import secrets
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadgen import cluster, config, proven, record, stack, store
from loadgen.asked import Run
from loadgen.bury import STOP_S_MAX, bury
from loadgen.config import Config
from loadgen.crew import first
from loadgen.errors import ClusterError, ServerError, StorageError
from loadgen.interrupt import Stop
from loadgen.launched import Launched, suffix
from loadgen.nodes import Places
from loadgen.plan import WARM_UP_REQUESTS
from loadgen.progress import Progress
from loadgen.warm_up import warm_up
from server.ask import redacted
from server.variant import ServerSpec, notes

ACTOR_S_MAX = 10.0  # a question that it answers from memory
PLACED_S_MAX = 60.0  # GPUs that others hold do not come free by waiting
START_SLACK_S = 30.0  # the actor itself ends the wait at ready_s_max; this is for the call
PROBE_S_MAX = 30.0  # an external server answers the actor within 10 s or counts as not there
PROVENANCE_S_MAX = 90.0  # the engine's interpreter tells its packages
READY_POLL_S = 0.5
# Of the endpoint, what launch.json shows as it is.
TOLD = (
    "started_at",
    "ready_s",
    "url",
    "endpoints",
    "host",
    "pid",
    "cores",
    "seed",
    "gpus",
    "argv",
    "env",
    "model_id",
)


def start(
    spec: ServerSpec,
    run: Run,
    places: Places,
    progress: Progress,
    stop: Stop,
    before: Callable[[cluster.Server, Progress], None] | None = None,
) -> Launched:
    """Start (or, external, find) the server of `run` in its place, prove it, warm it up; `before` looks there first.

    Raises ServerError, ClusterError or Interrupted, and then leaves nothing.
    """
    conf, folder = run.config, run.folder
    folder.mkdir(parents=True, exist_ok=True)
    stem = _stem(folder)
    name = secrets.token_hex(4)
    with store.marked(folder) as mark:
        server = cluster.place_server(spec, folder, f"server{stem}.log", name, places, mark, stop)
        launched = Launched(
            f"{spec.variant}-{name}", name, spec, conf.block, server, {}, folder, places, stem, repeat=run.repeat
        )
        try:
            _begin(launched, conf, progress, stop, before)
        except BaseException as error:
            left: tuple[str, ...] = ()
            with contextlib.suppress(StorageError):  # what ended the start is the one to tell
                left = end(launched, progress)
            if isinstance(error, ServerError | ClusterError):
                error.left = left
            raise
    return launched


def _begin(
    launched: Launched,
    conf: Config,
    progress: Progress,
    stop: Stop,
    before: Callable[[cluster.Server, Progress], None] | None,
) -> None:
    spec, server = launched.spec, launched.server
    first(launched.places)  # while the server starts
    if before:
        before(server, progress)
    _say_what_runs(spec, None, progress)
    launched.endpoint = _ready(server, spec, progress, stop)
    _say_what_runs(spec, launched.endpoint.get("version"), progress)
    _write(launched, conf)
    most = max((level.concurrency or 1 for level in config.levels(conf.load)), default=1)
    for warning in proven.warnings(launched, most):
        progress.warn(warning)
    progress.phase(f"{spec.variant}: {WARM_UP_REQUESTS} warm-up requests")
    launched.warm_up_s = _warm_up(launched, conf, stop)


def _warm_up(launched: Launched, conf: Config, stop: Stop) -> float:
    """Seconds of a warm-up request; a server that ends meanwhile says more of itself than its unanswered requests."""
    try:
        took_s = warm_up(launched, conf, stop)
    except ServerError:
        proven.require_alive(launched)
        raise
    proven.require_alive(launched)
    return took_s


def _say_what_runs(spec: ServerSpec, found: str | None, progress: Progress) -> None:
    """Tell once what runs in a variant's place: before the start, or as soon as the installed version was `found`."""
    known = spec.version is not None or spec.engine == "sim"
    if known != (found is not None):
        for note in notes(dataclasses.replace(spec, version=spec.version or found)):
            progress.warn(note)


def _stem(folder: Path) -> str:
    """A suffix for this Launch's files that no earlier Launch of the folder has taken."""
    count = 1
    while (folder / f"launch{suffix(count)}.json").exists() or (folder / f"server{suffix(count)}.log").exists():
        count += 1
    return suffix(count)


def _ready(server: cluster.Server, spec: ServerSpec, progress: Progress, stop: Stop) -> dict[str, Any]:
    """Wait for the proven endpoint, showing the log's milestones meanwhile."""
    begun = time.monotonic()
    try:
        for left in server.ask("leftovers", wait_s_max=PLACED_S_MAX):
            progress.warn(left)
    except ClusterError as error:
        raise ClusterError(f"no place for the server and its {spec.gpus} GPUs ({error}); are GPUs taken?") from None
    starting = server.send("start")
    wait_s_max = PROBE_S_MAX if spec.engine == "external" else spec.ready_s_max + START_SLACK_S
    while not cluster.is_done(starting, READY_POLL_S):
        stop.check()
        waited = time.monotonic() - begun
        if waited > wait_s_max:
            late = f"the server was not ready within {wait_s_max:g} s"
            raise ServerError(f"{late}; raise engine.ready_s_max or read its log")
        progress.phase(f"{spec.variant}: starting, {waited:.0f} s: {server.ask('progress')}")
    endpoint: dict[str, Any] = cluster.result(starting, stop, wait_s_max, "the server's actor")
    if not endpoint["ok"]:
        raise ServerError(endpoint["reason"], endpoint.get("log_tail") or "")
    return endpoint


def _write(launched: Launched, conf: Config) -> None:
    """launch.json: what was started, where, with what; no secret in it."""
    content = _content(launched, conf)
    launched.must_match = content["must_match"]
    store.write_json(launched.folder / f"launch{launched.stem}.json", content)


def _content(launched: Launched, conf: Config) -> dict[str, Any]:
    endpoint, told = launched.endpoint, {name: launched.endpoint.get(name) for name in TOLD}
    content: dict[str, Any] = {
        "schema_version": record.SCHEMA_VERSION,
        "launch_id": launched.id,
        "variant": launched.spec.variant,
        "spec_mode": launched.spec_mode,
        "engine": launched.spec.engine,
        "engine_version": endpoint.get("version"),
        "simulated": launched.simulated,
        "sim_speed": launched.sim_speed,
        "block": launched.block,
        "repeat": launched.repeat,
        **told,
        "places": launched.places.told(),
        "server_info": endpoint.get("server_info"),
        "provenance": launched.server.ask("provenance", wait_s_max=PROVENANCE_S_MAX),
        "git_commit": git_commit(),
        "config": config.as_dict(conf),
    }
    shown = {**redacted(content), "env": {name: redacted(value) for name, value in (told["env"] or {}).items()}}
    return {**shown, "must_match": stack.must_match(stack.ingredients(shown))}


def git_commit() -> str | None:
    """The commit of our own checkout, "-dirty" where files differ from it; None outside one."""
    root = Path(__file__).resolve().parent.parent
    try:
        told = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None


def end(launched: Launched, progress: Progress) -> tuple[str, ...]:
    """Stop the server and keep its metrics; what is left of it, in words. Never raises for a server already gone.

    Raises StorageError, after the stop, when the metrics could not be written.
    """
    launched.server = dataclasses.replace(launched.server, heard=None)  # what a signal asks for is this end
    ours = launched.spec.engine != "external"
    progress.phase(f"{launched.spec.variant}: {'stopping the server' if ours else 'done'}")
    left: tuple[str, ...] = ()
    not_kept = None
    try:
        # Who is silent now will not stop anything either, placed or not: its guard will.
        launched.server.ask("clock", wait_s_max=ACTOR_S_MAX)
        try:
            collect(launched)
        except StorageError as error:
            not_kept = error  # a full disk must not keep the server alive
        left = tuple(launched.server.ask("stop", wait_s_max=STOP_S_MAX + launched.spec.stop_s_max)["left"])
        try:
            _fetch_log(launched)
        except StorageError as error:
            not_kept = not_kept or error
        launched.server.ask("forget", wait_s_max=ACTOR_S_MAX)
        launched.server.end()
    except ClusterError as error:
        launched.server.end()
        if ours:
            left = bury(launched)
            progress.warn(f"{error}; its guard ended the server{'' if left else ', nothing is left of it'}")
    if left:
        progress.warn(f"left behind by {launched.spec.variant}: {', '.join(left)}")
    if not_kept:
        raise not_kept
    return left


def collect(launched: Launched) -> None:
    """Write what /metrics has said so far: server_metrics.parquet, once a second, in long form."""
    if not launched.endpoint:
        return
    sample(launched)
    _keep_metrics(launched)
    _fetch_log(launched)


def _fetch_log(launched: Launched) -> None:
    """What the server has written to its log since the last time, from a node that has not the driver's disk."""
    while part := launched.server.ask("log_part", launched.log_bytes, wait_s_max=ACTOR_S_MAX):
        store.write_at(launched.log, launched.log_bytes, part)
        launched.log_bytes += len(part)


def sample(launched: Launched) -> None:
    """Take over what was sampled so far and read the server's counters now."""
    launched.metrics += launched.server.ask("telemetry", wait_s_max=ACTOR_S_MAX)


def server_clock_ns(launched: Launched, utc_ns: int) -> int:
    """What the server node's monotonic clock showed at a wall time of the driver, to within half a call to its actor.

    The board gave the Point's start on its own node's wall clock, which is taken for the driver's.
    """
    before = time.time_ns()
    shown: int = launched.server.ask("clock", wait_s_max=ACTOR_S_MAX)
    return shown - (before + time.time_ns()) // 2 + utc_ns


def _keep_metrics(launched: Launched) -> None:
    constant = {
        "launch_id": launched.id,
        "variant": launched.spec.variant,
        "engine": launched.spec.engine,
        "simulated": launched.simulated,
    }
    table = [
        {
            **constant,
            "utc": datetime.fromtimestamp(row["t_utc_ns"] / 1e9, UTC),
            **{name: row[name] for name in ("t_mono_ns", "name", "labels", "value")},
        }
        for row in launched.metrics
    ]
    store.write_parquet(launched.folder / f"server_metrics{launched.stem}.parquet", table, record.SERVER_METRICS)
