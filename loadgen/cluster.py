"""Ray: a cluster for the length of a run, its nodes, the server's actor (workers and their board are crew's).

Calls happen for each Point and once a second for each worker, never for each request. Every wait is cut into short
pieces, so that a signal is heard within a fraction of a second.
"""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Set before Ray is imported: no usage reports, and an actor that reserves no GPU sees what the node has.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Ray starts its workers with niceness 15: every other program on the machine would go before our clocks and servers.
os.environ.setdefault("RAY_worker_niceness", "0")
# Ray's server keeps a record of each call of an actor, up to 100,000: 1.4 MiB a minute that nobody reads.
os.environ.setdefault("RAY_task_events_report_interval_ms", "0")

import ray
import ray._private.node
import ray._private.ray_constants
import ray.exceptions
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from loadgen import cores, footprint, reach, surface, warden
from loadgen import visit as visiting
from loadgen.config import Cluster
from loadgen.errors import ClusterError, ConfigError, Interrupted, last_line
from loadgen.interrupt import Stop, signals
from loadgen.nodes import LABEL, LOOPBACK, Node, Places, place
from server.actor import ServerActor
from server.variant import ServerSpec

POLL_S = 0.2
VISIT_S_MAX = 60.0  # our packages travel to a node once, and a process starts there
SERVER_CALL_S_MAX = 60.0  # short questions to the server's actor; it puts its own, shorter bounds on HTTP
SIGNALLED_S_MAX = 3.0  # a question under way when a signal comes: an answer that all need is there long before
STARTS = 2  # of a Ray of our own, whose first process is now and then not there within Ray's half minute
OBJECT_STORE_BYTES = 200 * 1024 * 1024  # nothing large goes through it: plans in, counts out
BESIDE_WORKERS = 2  # processes of Ray's that a run uses: the server's actor and the board's
RAYS_OWN = "_ray_internal"  # how Ray names actors of its own, the one that runs a submitted job among them
ACTOR_TITLE = "ray::ServerActor"  # how Ray shows the process of the server's actor
# What starts programs of Ray that nothing here uses: its web pages, its reader of logs, its autoscaler. They took two
# thirds of a start's CPU and ran beside every measurement. Private names: where one is unknown, its program starts.
UNUSED = ("start_api_server", "start_log_monitor", "start_monitor")

_joined = False  # the cluster was there before us
HELD: dict[str, Any] = {}  # actors that live until the cluster is left; Ray ends one that nobody holds


@contextlib.contextmanager
def opened(address: str | None, workers: int = 1) -> Iterator[None]:
    """A Ray cluster for the block: this machine's own, or the one at `address`, or the one already joined.

    One that is started leaves a core of this machine to each of `workers`, and is gone afterwards, with its folder.
    Raises ClusterError where it cannot be had, ConfigError where this machine is too small.
    """
    if ray.is_initialized():
        yield
        return
    if address:
        address = reach.require(address)
    elif workers > (cpus := os.cpu_count() or 1):
        raise ConfigError(
            f"cluster.workers={workers} needs {workers} CPUs, this machine has {cpus}; ask for at most {cpus}"
        )
    own = cores.spared(0 if address else workers)
    with signals() as stop, own, contextlib.nullcontext() if address else footprint.folder(stop) as folder:
        try:
            _start(address, folder, workers, stop)
            with signals():  # again, since ray.init replaces SIGTERM's handler
                stop.check()
                with warden.watching(folder):
                    yield
        finally:
            _end()
        stop.check()  # a signal that came while it ended


def _start(address: str | None, folder: str | None, workers: int, stop: Stop, left: int = STARTS) -> None:
    before = set(footprint.processes())
    try:
        _init(address, folder, workers)
    except SystemExit as error:  # what Ray makes of a SIGTERM from here on
        raise Interrupted(signal.SIGTERM) from error
    except Exception as error:
        if left > 1 and not address:
            ray.shutdown()
            footprint.await_gone([one for one in footprint.processes() if one not in before], 0.0)
            stop.check()
            return _start(address, folder, workers, stop, left - 1)
        told = (str(error) or type(error).__name__).splitlines()[0]
        raise ClusterError(f"Ray did not start ({told}); {_advice(address)}") from error


def _end() -> None:
    """Leave the cluster; processes of it that we started are given a moment to end, then ended."""
    for name in list(HELD):
        end_held(name)
    with signals():
        ours, whole = footprint.processes(), ray.is_initialized()
        ray.shutdown()
        warden.forget()
        # A cluster that a signal cut off in its start knows nothing of an orderly end.
        footprint.await_gone(ours, footprint.GONE_S_MAX if whole else 0.0)


def _init(address: str | None, folder: str | None, workers: int) -> None:
    global _joined
    _joined = address is not None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
    if address:
        packages = [str(Path(__file__).parent.parent / name) for name in ("loadgen", "server")]
        ray.init(address=address, runtime_env={"py_modules": packages}, **quiet)
    else:
        # The environment may name a cluster (RAY_ADDRESS); without cluster.address this machine's own is meant.
        os.environ.pop("RAY_ADDRESS", None)
        # Ray starts a process for each CPU at once: so many as a run uses, not one for each of a large node's cores.
        small: dict[str, Any] = {"num_cpus": workers + BESIDE_WORKERS, "object_store_memory": OBJECT_STORE_BYTES}
        with lean(), surface.loopback(ray._private.ray_constants):
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


def end_held(name: str) -> None:
    """End the actor that is held under this name, if there is one."""
    actor = HELD.pop(name, None)
    if actor is not None and not warden.trouble():  # without a cluster Ray would start one to kill in
        with contextlib.suppress(Exception):
            ray.kill(actor)


def nodes() -> list[Node]:
    """The living nodes of the cluster, by name: Ray tells them in another order each time."""
    warden.require_whole()  # without its GCS Ray would look for ever
    found = [
        Node(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            name=node["NodeManagerHostname"],
            cpus=int(node["Resources"].get("CPU", 0)),
            gpus=int(node["Resources"].get("GPU", 0)),
            beside=0 if _joined else BESIDE_WORKERS,
            role=node.get("Labels", {}).get(LABEL),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda node: (node.name, node.address))


def named() -> list[str]:
    """The named actors of the cluster and their namespaces: all of them are others', none of ours has a name."""
    found: list[dict[str, str]] = []
    with contextlib.suppress(Exception):  # who does not hear of them measures all the same
        found = [one for one in list_named_actors(all_namespaces=True) if not one["name"].startswith(RAYS_OWN)]
    return sorted(f"{one['name']} ({one['namespace']})" for one in found)


def head() -> str:
    """The address at which the cluster's head answers, host:port."""
    return str(ray.get_runtime_context().gcs_address)


def places(wanted: Cluster, gpus: int, ours: bool) -> Places:
    """Which node does what, see nodes.place; the driver's is the one that this process is on. Raises ConfigError."""
    alive, here = nodes(), ray.get_runtime_context().get_node_id()
    driver = next((node for node in alive if node.id == here), alive[0])
    return place(alive, driver, wanted, gpus, ours)


def on(node: Node | None) -> dict[str, Any]:
    """The options of a task or an actor that belong on this node and on no other."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False)} if node else {}


def visit(
    where: Mapping[Node, Sequence[str]], variable: str | None, stop: Stop, wait_s_max: float = VISIT_S_MAX
) -> tuple[dict[Node, visiting.Told], dict[Node, str]]:
    """What each node tells of itself and of the files it should have, see visiting.tell; and who is silent, and why."""
    asked = {node: ray.remote(visiting.tell).options(num_cpus=0, max_retries=0, **on(node)) for node in where}
    refs = {node: task.remote(where[node], variable) for node, task in asked.items()}
    deadline_s, told, silent = time.monotonic() + wait_s_max, dict[Node, visiting.Told](), dict[Node, str]()
    for node, ref in refs.items():
        try:
            told[node] = result(ref, stop, max(0.0, deadline_s - time.monotonic()), "a question to it")
        except ClusterError as error:
            silent[node] = str(error)
    return told, silent


def result(ref: Any, stop: Stop | None, wait_s_max: float, what: str, signalled_s_max: float = 0.0) -> Any:
    """The value of a reference. Raises ClusterError when it is lost or not there in time, Interrupted on a signal.

    After a signal it is waited for `signalled_s_max` more at most; without a `stop` as long as ever.
    """
    deadline_s = time.monotonic() + wait_s_max
    while True:
        warden.require_whole()
        done, _ = ray.wait([ref], timeout=POLL_S)
        if done:
            try:
                return ray.get(ref)
            except ray.exceptions.RayError as error:
                raise ClusterError(f"{what} was lost: {last_line(error)}") from error
        now_s = time.monotonic()
        if stop is not None and stop.signum is not None:
            deadline_s = min(deadline_s, now_s + signalled_s_max)  # the first look after the signal decides
        if now_s >= deadline_s:
            if stop is not None:
                stop.check()
            raise ClusterError(f"{what} did not answer within {wait_s_max:g} s")


def is_done(ref: Any, wait_s: float) -> bool:
    """Whether the reference has its value, waiting up to `wait_s` for it."""
    return bool(ray.wait([ref], timeout=wait_s)[0])


@dataclass(frozen=True)
class Server:
    """The server's actor, seen from the driver; a signal that was `heard` ends what waits for it."""

    actor: Any
    heard: Stop | None = None

    def ask(self, method: str, *args: Any, wait_s_max: float = SERVER_CALL_S_MAX) -> Any:
        """Call a method of the actor and wait for its answer, at most `wait_s_max` seconds; see `result`."""
        return result(self.send(method, *args), self.heard, wait_s_max, "the server's actor", SIGNALLED_S_MAX)

    def send(self, method: str, *args: Any) -> Any:
        """Call a method of the actor; the reference of its answer."""
        warden.require_whole()
        return getattr(self.actor, method).remote(*args)

    def end(self) -> None:
        """End the actor; its guard ends the server if that still runs."""
        with contextlib.suppress(Exception):
            warden.require_whole()
            ray.kill(self.actor)
        footprint.kill_frozen(ACTOR_TITLE)


def place_server(
    spec: ServerSpec, folder: Path, log_name: str, name: str, where: Places, mark: Path, stop: Stop | None = None
) -> Server:
    """Place the actor for `spec` and the launch of this name: it reserves no CPU, and the GPUs that the server takes.

    Its log goes to `folder` where `mark` is found, and else to a folder of its node, from which it is fetched.
    """
    warden.require_whole()
    actor = ray.remote(ServerActor).options(
        num_cpus=0, num_gpus=spec.gpus, max_restarts=0, max_task_retries=0, max_concurrency=8, **on(where.server)
    )
    return Server(actor.remote(spec, str(folder), where.host, log_name, name, str(mark)), stop)
