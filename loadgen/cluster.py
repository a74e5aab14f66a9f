"""Ray, and only here: a cluster for the length of a run, the server's actor, the board, the workers.

Calls happen for each Point and once a second for each worker, never for each request. Every wait is cut into short
pieces, so that a signal is heard within a fraction of a second.
"""

import contextlib
import errno
import os
import signal
import time
from collections import Counter
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
import ray.exceptions
import uvloop

from loadgen import cores, footprint, record, store, worker
from loadgen.board import Board
from loadgen.config import Load
from loadgen.errors import Bug, ClusterError, ConfigError, Interrupted, LoadgenError
from loadgen.interrupt import Stop, signals
from server.actor import ServerActor
from server.variant import ServerSpec

POLL_S = 0.2
LOOPBACK = "127.0.0.1"
BOARD_S_MAX = 10.0  # an answer of the board; it does nothing but count
SERVER_CALL_S_MAX = 60.0  # short questions to the server's actor; it puts its own, shorter bounds on HTTP
MORE_FILES = "raise the limit of open files (ulimit -n), or use more workers (cluster.workers)"
OBJECT_STORE_BYTES = 200 * 1024 * 1024  # nothing large goes through it: plans in, counts out


@contextlib.contextmanager
def opened(address: str | None, workers: int = 1) -> Iterator[None]:
    """A Ray cluster for the block: this machine's own, or the one at `address`, or the one already joined.

    One that is started leaves a core of this machine to each of `workers`, and is gone afterwards, with its folder.
    Raises ClusterError where it cannot be had.
    """
    if ray.is_initialized():
        yield
        return
    own = cores.spared(0 if address else workers)
    with signals() as stop, own, contextlib.nullcontext() if address else footprint.folder(stop) as folder:
        try:
            _start(address, folder)
            with signals():  # again, since ray.init replaces SIGTERM's handler
                stop.check()
                yield
        finally:
            _end()
        stop.check()  # a signal that came while it ended


def _start(address: str | None, folder: str | None) -> None:
    try:
        _init(address, folder)
    except SystemExit as error:  # what Ray makes of a SIGTERM from here on
        raise Interrupted(signal.SIGTERM) from error
    except Exception as error:
        told = (str(error) or type(error).__name__).splitlines()[0]
        raise ClusterError(f"Ray did not start ({told}); {_advice(address)}") from error


def _end() -> None:
    """Leave the cluster; processes of it that we started are given a moment to end, then ended."""
    with signals():
        ours, whole = footprint.processes(), ray.is_initialized()
        ray.shutdown()
        # A cluster that a signal cut off in its start knows nothing of an orderly end.
        footprint.await_gone(ours, footprint.GONE_S_MAX if whole else 0.0)


def _init(address: str | None, folder: str | None) -> None:
    quiet: dict[str, Any] = {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": "error",
        "configure_logging": True,
    }
    if address:
        ray.init(
            address=address,
            **{k: v for k, v in quiet.items() if k != "include_dashboard"},
            runtime_env={"py_modules": _packages()},
        )
    else:
        # The environment may name a cluster (RAY_ADDRESS); without cluster.address this machine's own is meant.
        os.environ.pop("RAY_ADDRESS", None)
        small: dict[str, Any] = {"num_cpus": os.cpu_count(), "object_store_memory": OBJECT_STORE_BYTES}
        ray.init(**small, _temp_dir=folder, _node_ip_address=LOOPBACK, **quiet)


def _packages() -> list[str]:
    root = Path(__file__).parent.parent
    return [str(root / "loadgen"), str(root / "server")]


def _advice(address: str | None) -> str:
    return (
        f"check that a Ray cluster answers at cluster.address={address}"
        if address
        else "check free memory and space in /tmp"
    )


def gpus_of_nodes() -> list[int]:
    """GPUs of each living node of the cluster."""
    return [int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]]


def require_one_node() -> None:
    """Refuse a joined cluster of several nodes: server and workers meet on loopback. Raises ConfigError."""
    alive = sum(1 for node in ray.nodes() if node["Alive"])
    if alive > 1:
        raise ConfigError(
            f"the cluster at cluster.address has {alive} nodes; several nodes are not built yet, join one of 1"
        )


def require_cpus(workers: int) -> None:
    """Refuse more workers than the cluster has CPUs. Raises ConfigError naming both numbers."""
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if workers > cpus:
        raise ConfigError(
            f"cluster.workers={workers} needs {workers} CPUs, the cluster has {cpus}; ask for at most {cpus}"
        )


def result(ref: Any, stop: Stop | None, wait_s_max: float, what: str) -> Any:
    """The value of a reference. Raises ClusterError when it is lost or not there in time, Interrupted on a signal."""
    deadline = time.monotonic() + wait_s_max
    while True:
        done, _ = ray.wait([ref], timeout=POLL_S)
        if done:
            try:
                return ray.get(ref)
            except ray.exceptions.RayError as error:
                raise ClusterError(f"{what} was lost: {_reason(error)}") from error
        if stop is not None:
            stop.check()
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not answer within {wait_s_max:g} s")


def is_done(ref: Any, wait_s: float) -> bool:
    """Whether the reference has its value, waiting up to `wait_s` for it."""
    return bool(ray.wait([ref], timeout=wait_s)[0])


def _reason(error: BaseException) -> str:
    """The last line of Ray's story is the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


def _cause(error: BaseException) -> LoadgenError:
    """What ended a worker: our own error (its disk was full), a bug of ours, else that the worker is lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, LoadgenError):
        return cause
    if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
        return ClusterError(f"{cause.strerror}; {MORE_FILES}")
    return ClusterError(_reason(error)) if cause is None else Bug(_reason(error))


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


def place_server(spec: ServerSpec, folder: Path, log_name: str) -> Server:
    """Place the actor for `spec`: it reserves no CPU, and the GPUs that the server takes.

    The server listens on loopback: workers on other hosts than the server's are not built yet.
    """
    actor = ray.remote(ServerActor).options(
        num_cpus=0, num_gpus=spec.gpus, max_restarts=0, max_task_retries=0, max_concurrency=8
    )
    return Server(actor.remote(spec, str(folder), LOOPBACK, log_name))


@dataclass(frozen=True)
class Crew:
    """The board and the workers of one Point."""

    board: Any
    refs: list[Any]

    def look(self) -> dict[str, Any]:
        """The board's picture of the Point."""
        return result(self.board.look.remote(), None, BOARD_S_MAX, "the board")

    def stop(self, reason: str) -> None:
        """Have all workers stop at their next beat."""
        result(self.board.stop.remote(reason), None, BOARD_S_MAX, "the board")

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
                lost[place] = _cause(error)
        return returned, lost, not left

    def dismiss(self) -> None:
        """End whatever is still there."""
        for ref in self.refs:
            with contextlib.suppress(Exception):
                ray.cancel(ref, force=True)
        with contextlib.suppress(Exception):
            ray.kill(self.board)


def hire(shards: list[worker.Shard], load: Load, ramp_s: float, counted: bool, folder: Path | None) -> Crew:
    """Start a board and one worker a shard; rows go to `folder`, or nowhere when it is None (warm-up)."""
    board = ray.remote(Board).options(num_cpus=0, max_restarts=0).remote(load, len(shards), ramp_s, counted)
    task, place = ray.remote(_work), str(folder) if folder else None
    refs = [
        task.options(num_cpus=1, max_retries=0, name=f"loadgen:worker {shard.worker}").remote(shard, board, place)
        for shard in shards
    ]
    return Crew(board, refs)


def _work(shard: worker.Shard, board: Any, folder: str | None) -> dict[str, Any]:
    """A worker's whole life, in a process that Ray chose."""
    with cores.alone(shard.worker):
        return _drive(shard, board, folder)


def _drive(shard: worker.Shard, board: Any, folder: str | None) -> dict[str, Any]:
    async def tell(beat: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await board.beat.remote(beat)
        return answer

    if folder is None:
        outcomes: Counter[str] = Counter()
        done = uvloop.run(
            worker.drive(
                shard,
                tell,
                lambda rows: outcomes.update(f"{row['outcome']} {row['error'] or ''}".strip() for row in rows),
            )
        )
        return {**done, "outcomes": dict(outcomes)}
    rows = store.RowWriter(store.stream_path(Path(folder), shard.worker), record.IDENTITY + record.REQUEST)
    try:
        return uvloop.run(worker.drive(shard, tell, rows.append_with_texts))
    finally:
        rows.close()
