"""Ray, and only here: a cluster for the length of a run, the server's actor, the board, the workers.

Calls happen for each Point and once a second for each worker, never for each request. Every wait is cut into short
pieces, so that a signal is heard within a fraction of a second.
"""

import contextlib
import os
import resource
import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Set before Ray is imported: no usage reports, and an actor that reserves no GPU sees what the node has.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Ray starts its workers with niceness 15: every other program on the machine would go before our clocks and servers.
os.environ.setdefault("RAY_worker_niceness", "0")

import ray
import ray._private.node
import ray.exceptions

from loadgen import cores, duty, footprint, worker
from loadgen.board import Wall
from loadgen.config import Load
from loadgen.errors import ClusterError, ConfigError, Interrupted, LoadgenError, last_line, of_worker
from loadgen.interrupt import Stop, signals
from server.actor import ServerActor
from server.variant import ServerSpec

POLL_S = 0.2
LOOPBACK = "127.0.0.1"
BOARD_S_MAX = 10.0  # an answer of the board; it does nothing but count
SERVER_CALL_S_MAX = 60.0  # short questions to the server's actor; it puts its own, shorter bounds on HTTP
OBJECT_STORE_BYTES = 200 * 1024 * 1024  # nothing large goes through it: plans in, counts out
BESIDE_WORKERS = 2  # processes of Ray's that a run uses: the server's actor and the board's
# What starts programs of Ray that nothing here uses: its web pages, its reader of logs, its autoscaler. They took two
# thirds of a start's CPU and ran beside every measurement. Private names: where one is unknown, its program starts.
UNUSED = ("start_api_server", "start_log_monitor", "start_monitor")

_held: Any = None  # the wall; Ray ends an actor that nobody holds


@contextlib.contextmanager
def opened(address: str | None, workers: int = 1) -> Iterator[None]:
    """A Ray cluster for the block: this machine's own, or the one at `address`, or the one already joined.

    One that is started leaves a core of this machine to each of `workers`, and is gone afterwards, with its folder.
    Raises ClusterError where it cannot be had, ConfigError where this machine is too small.
    """
    if ray.is_initialized():
        yield
        return
    if not address:
        _refuse_too_many(workers, os.cpu_count() or 1, "this machine")
    own = cores.spared(0 if address else workers)
    with signals() as stop, own, contextlib.nullcontext() if address else footprint.folder(stop) as folder:
        try:
            _start(address, folder, workers)
            with signals():  # again, since ray.init replaces SIGTERM's handler
                stop.check()
                yield
        finally:
            _end()
        stop.check()  # a signal that came while it ended


def _start(address: str | None, folder: str | None, workers: int) -> None:
    try:
        _init(address, folder, workers)
    except SystemExit as error:  # what Ray makes of a SIGTERM from here on
        raise Interrupted(signal.SIGTERM) from error
    except Exception as error:
        told = (str(error) or type(error).__name__).splitlines()[0]
        raise ClusterError(f"Ray did not start ({told}); {_advice(address)}") from error


def _end() -> None:
    """Leave the cluster; processes of it that we started are given a moment to end, then ended."""
    drop_wall()
    with signals():
        ours, whole = footprint.processes(), ray.is_initialized()
        ray.shutdown()
        # A cluster that a signal cut off in its start knows nothing of an orderly end.
        footprint.await_gone(ours, footprint.GONE_S_MAX if whole else 0.0)


def _init(address: str | None, folder: str | None, workers: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
    if address:
        packages = [str(Path(__file__).parent.parent / name) for name in ("loadgen", "server")]
        ray.init(address=address, runtime_env={"py_modules": packages}, **quiet)
    else:
        # The environment may name a cluster (RAY_ADDRESS); without cluster.address this machine's own is meant.
        os.environ.pop("RAY_ADDRESS", None)
        # Ray starts a process for each CPU at once: so many as a run uses, not one for each of a large node's cores.
        small: dict[str, Any] = {"num_cpus": workers + BESIDE_WORKERS, "object_store_memory": OBJECT_STORE_BYTES}
        with lean():
            ray.init(**small, include_dashboard=False, _temp_dir=folder, _node_ip_address=LOOPBACK, **quiet)


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """Ray's start without the programs that no run uses."""
    node: Any = ray._private.node.Node
    kept = {name: getattr(node, name) for name in UNUSED if hasattr(node, name)}
    for name in kept:
        setattr(node, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, starts in kept.items():
            setattr(node, name, starts)


def _advice(address: str | None) -> str:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"check that a Ray cluster answers at cluster.address={address}, and that RAY_AUTH_MODE and the token of this "
        "shell are the cluster's"
        if address
        else f"check free memory, space in /tmp and the limit of open files (ulimit -n, {files} here)"
    )


def gpus_of_nodes() -> list[int]:
    """GPUs of each living node of the cluster."""
    return [int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]]


def require_one_node() -> None:
    """Refuse a joined cluster of several nodes: server and workers meet on loopback. Raises ConfigError."""
    alive = sum(1 for node in ray.nodes() if node["Alive"])
    if alive > 1:
        raise ConfigError(f"the cluster at cluster.address has {alive} nodes; several are not built yet, join one of 1")


def require_cpus(workers: int) -> None:
    """Refuse more workers than the cluster has CPUs. Raises ConfigError naming both numbers."""
    _refuse_too_many(workers, int(ray.cluster_resources().get("CPU", 0)), "the cluster")


def _refuse_too_many(workers: int, cpus: int, where: str) -> None:
    if workers > cpus:
        raise ConfigError(f"cluster.workers={workers} needs {workers} CPUs, {where} has {cpus}; ask for at most {cpus}")


def result(ref: Any, stop: Stop | None, wait_s_max: float, what: str) -> Any:
    """The value of a reference. Raises ClusterError when it is lost or not there in time, Interrupted on a signal."""
    deadline = time.monotonic() + wait_s_max
    while True:
        done, _ = ray.wait([ref], timeout=POLL_S)
        if done:
            try:
                return ray.get(ref)
            except ray.exceptions.RayError as error:
                raise ClusterError(f"{what} was lost: {last_line(error)}") from error
        if stop is not None:
            stop.check()
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not answer within {wait_s_max:g} s")


def is_done(ref: Any, wait_s: float) -> bool:
    """Whether the reference has its value, waiting up to `wait_s` for it."""
    return bool(ray.wait([ref], timeout=wait_s)[0])


@dataclass(frozen=True)
class Server:
    """The server's actor, seen from the driver."""

    actor: Any

    def ask(self, method: str, *args: Any, stop: Stop | None = None, wait_s_max: float = SERVER_CALL_S_MAX) -> Any:
        """Call a method of the actor and wait for its answer, at most `wait_s_max` seconds."""
        return result(self.send(method, *args), stop, wait_s_max, "the server's actor")

    def send(self, method: str, *args: Any) -> Any:
        """Call a method of the actor; the reference of its answer."""
        return getattr(self.actor, method).remote(*args)

    def end(self) -> None:
        """End the actor; its guard ends the server if that still runs."""
        with contextlib.suppress(Exception):
            ray.kill(self.actor)


def place_server(spec: ServerSpec, folder: Path, log_name: str, name: str) -> Server:
    """Place the actor for `spec` and the launch of this name: it reserves no CPU, and the GPUs that the server takes.

    The server listens on loopback: workers on other hosts than the server's are not built yet.
    """
    actor = ray.remote(ServerActor).options(
        num_cpus=0, num_gpus=spec.gpus, max_restarts=0, max_task_retries=0, max_concurrency=8
    )
    server = Server(actor.remote(spec, str(folder), LOOPBACK, log_name, name))
    # While the server starts, so do the board and the first worker, which takes a second to start and import.
    _wall()
    _hired("first").remote(None, None, "", None)
    return server


@dataclass(frozen=True)
class Crew:
    """The workers of one Point and the wall on which their board hangs under `key`."""

    key: str
    wall: Any
    refs: list[Any]

    def look(self) -> dict[str, Any]:
        """The board's picture of the Point."""
        return result(self.wall.look.remote(self.key), None, BOARD_S_MAX, "the board")

    def stop(self, reason: str) -> None:
        """Have all workers stop at their next beat."""
        result(self.wall.stop.remote(self.key, reason), None, BOARD_S_MAX, "the board")

    def ended(self, wait_s: float) -> tuple[dict[int, dict[str, Any]], dict[int, LoadgenError], bool]:
        """Workers that returned, those lost with the reason, and whether all have ended; waits up to `wait_s`."""
        done, left = ray.wait(self.refs, num_returns=len(self.refs), timeout=wait_s)
        returned: dict[int, dict[str, Any]] = {}
        lost: dict[int, LoadgenError] = {}
        for ref in done:
            place = self.refs.index(ref)
            try:
                returned[place] = ray.get(ref)
            except ray.exceptions.RayError as error:
                lost[place] = of_worker(error)
        return returned, lost, not left

    def dismiss(self) -> None:
        """End the workers that are still there; the board stays until the next one hangs in its place."""
        for ref in self.refs:
            with contextlib.suppress(Exception):
                ray.cancel(ref, force=True)


def hire(shards: list[worker.Shard], load: Load, ramp_s: float, counted: bool, folder: Path | None) -> Crew:
    """Hang up a board and start one worker a shard; rows go to `folder`, or nowhere when it is None (warm-up)."""
    key = secrets.token_hex(8)
    wall = _hang(key, load, len(shards), ramp_s, counted)
    place = str(folder) if folder else None
    return Crew(key, wall, [_hired(f"worker {shard.worker}").remote(shard, wall, key, place) for shard in shards])


def _hired(title: str) -> Any:
    """A worker's task, to be called with its work: the same task of a Point before it leaves its process to it."""
    return ray.remote(duty.work).options(num_cpus=1, max_retries=0, name=f"loadgen:{title}")


def _hang(*board: Any, again: bool = True) -> Any:
    """The wall with a Point's board on it; where the wall of the last Point is gone, another one."""
    wall = _wall()
    try:
        result(wall.hang.remote(*board), None, SERVER_CALL_S_MAX, "the board")
    except ClusterError:
        drop_wall()
        if not again:
            raise
        return _hang(*board, again=False)
    return wall


def drop_wall() -> None:
    """End a wall that is lost, or frozen: workers notice and stop by themselves, the next Point gets another."""
    global _held
    wall, _held = _held, None
    if wall is not None:  # without a cluster Ray would start one to kill in
        with contextlib.suppress(Exception):
            ray.kill(wall)


def _wall() -> Any:
    """The one process for all boards of a run: one for each would start beside its measurement."""
    global _held
    if _held is None:
        _held = ray.remote(Wall).options(num_cpus=0, max_restarts=0).remote()
    return _held
