"""Which engine a command means on the cluster that it has, which node does what, and whether the nodes are fit for it.

Owns the questions to the nodes before anything starts, and after one was lost. Knows nothing of Points.
"""

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace

from loadgen import capacity, cluster, engine, nodes, staffing, surface, visit
from loadgen.capacity import Capacity
from loadgen.config import Config, levels
from loadgen.errors import ClusterError, ConfigError
from loadgen.interrupt import Stop
from loadgen.nodes import Places
from server.variant import ServerSpec

AGAIN_S_MAX = 10.0  # a node that served a Point a moment ago answers at once, or is gone


def require_one_cluster(configs: Sequence[Config]) -> None:
    """Refuse runs of one command that are to run in different places. Raises ConfigError."""
    for key in ("address", "server", "clients"):
        if len({repr(getattr(conf.cluster, key)) for conf in configs}) > 1:
            raise ConfigError(f"cluster.{key} differs between the runs of one command; give one")


def workers_most(configs: Sequence[Config]) -> int:
    """For how many workers a cluster of this machine alone keeps room."""
    able, _ = capacity.recall({socket.gethostname()})
    return max(_most(conf, able.events_per_s if able else None) for conf in configs)


def _most(conf: Config, events_per_s: float | None) -> int:
    if conf.cluster.workers:
        return conf.cluster.workers
    streams = max((level.concurrency or conf.load.max_in_flight or 1 for level in levels(conf.load)), default=1)
    speed = conf.engine.sim_speed if conf.engine.kind in ("auto", "sim") else 1.0
    return staffing.most(streams, len(os.sched_getaffinity(0)), speed, events_per_s)


def settle(configs: Sequence[Config], stop: Stop) -> tuple[list[ServerSpec], Places]:
    """The server of each run, and the nodes for all of them; a joined cluster's nodes are visited.

    Raises ConfigError and ClusterError, before anything is started.
    """
    gpus = [node.gpus for node in cluster.nodes()]
    specs = [engine.server_spec(conf, engine.resolve_engine(conf, gpus)) for conf in configs]
    ours = any(spec.engine != "external" for spec in specs)
    places = cluster.places(configs[0].cluster, max(spec.gpus for spec in specs), ours)
    for conf in configs:
        nodes.require_cpus(conf.cluster.workers or 1, places)
    if configs[0].cluster.address:
        places = replace(places, capacities=_visit(configs, specs, places, stop))
    return specs, places


def _visit(
    configs: Sequence[Config], specs: Sequence[ServerSpec], places: Places, stop: Stop
) -> dict[str, tuple[Capacity | None, str]]:
    """Look at every node that is used; what each host's worker can measure, by the host's name."""
    used = list(dict.fromkeys([places.server, *places.clients]))
    files = {node: _files(specs, node == places.server) for node in used}
    variable = next((conf.engine.api_key_env for conf in configs if conf.engine.api_key_env), None)
    told, silent = cluster.visit(files, variable, stop)
    if silent:
        words = "; ".join(f"{node.words}: {why}" for node, why in silent.items())
        raise ClusterError(f"{words}; look at Ray there (`ray status`), then run again")
    visit.require_apart(told.values())
    visit.require_alike(visit.tell((), None), told.values(), variable)
    head = surface.host_of(cluster.head())
    opened = surface.warnings(head) if head else []
    for warning in [*visit.warnings(told.values()), *nodes.warnings(cluster.named()), *opened]:
        print(f"loadgen: warning: {warning}", file=sys.stderr)
    return {one["host"]: one["capacity"] for one in told.values()}


def _files(specs: Sequence[ServerSpec], serves: bool) -> tuple[str, ...]:
    """The files that a node needs, by the paths that they have on the driver's: all of TLS, the server's node more."""
    found = {name for spec in specs for name in spec.tls.files}
    if serves:
        named = {spec.args.get(flag) for spec in specs for flag in engine.FILE_FLAGS}
        found |= {str(name) for name in named | {spec.sim_profile for spec in specs} if name}
    return tuple(sorted(found))


def left(places: Places, stop: Stop) -> tuple[Places, str]:
    """The places without client nodes that answer no more, and what is to be said of those."""
    if len(places.clients) == 1:
        return places, ""
    _, silent = cluster.visit(dict.fromkeys(places.clients, ()), None, stop, AGAIN_S_MAX)
    gone = list(silent)
    if not gone or len(gone) == len(places.clients):
        return places, ""
    words = ", ".join(node.words for node in gone)
    return places.without(gone), f"{words} answers no more: the next Points go on without"
