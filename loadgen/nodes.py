"""Which node of a cluster does what: one runs the server, the others drive it.

Pure. Owns the choice and its words; knows nothing of Ray, or of how many workers a load needs.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loadgen.config import Cluster
from loadgen.errors import ClusterError, ConfigError

LABEL = "loadgen"  # of a node: `ray start --labels=loadgen=server`, or client
LOOPBACK = "127.0.0.1"
NAMED_SHOWN_MAX = 5  # actors of others


@dataclass(frozen=True)
class Node:
    """One node of the cluster, as Ray knows it; `role` is what its label says."""

    id: str
    address: str
    name: str
    cpus: int
    gpus: int
    role: str | None = None
    beside: int = 0  # of its CPUs, for what runs beside workers: the server's actor, the board

    def called(self, name: str) -> bool:
        """Whether a user means this node."""
        return name in (self.name, self.address, self.id)

    @property
    def words(self) -> str:
        """Its name and address."""
        return f"{self.name} ({self.address})"


@dataclass(frozen=True)
class Places:
    """The node of the server, those of the workers, and that of the driver and its board."""

    server: Node
    clients: tuple[Node, ...]
    driver: Node
    capacities: Mapping[str, Any] = field(default_factory=dict)  # what each visited host has recalled of its own

    @property
    def host(self) -> str:
        """The address on which the server listens: loopback where nobody comes from another node."""
        return LOOPBACK if self.clients == (self.server,) else self.server.address

    @property
    def workers_meant(self) -> int:
        """How many workers the client nodes are meant for."""
        return sum(max(1, node.cpus - node.beside) for node in self.clients)

    def seats(self, workers: int) -> list[Node]:
        """The node of each worker: one after the other, as long as a node has a CPU left. Raises ClusterError."""
        if too_many := _too_many(workers, self):
            raise ClusterError(too_many)
        turns = (node for turn in itertools.count() for node in self.clients if turn < node.cpus)
        return list(itertools.islice(turns, workers))

    def without(self, gone: Iterable[Node]) -> "Places":
        """The same after client nodes have gone; all of them stay where none would be left."""
        left = tuple(node for node in self.clients if node not in gone)
        return replace(self, clients=left or self.clients)

    def told(self) -> dict[str, Any]:
        """What launch.json says of it."""
        shown = {"server": self.server, "driver": self.driver}
        one = {role: {"name": node.name, "address": node.address} for role, node in shown.items()}
        return {**one, "clients": [{"name": node.name, "address": node.address} for node in self.clients]}

    @property
    def words(self) -> str:
        """Who does what, for a person."""
        return f"server on {self.server.words}, load from {', '.join(node.words for node in self.clients)}"


def place(nodes: Sequence[Node], driver: Node, wanted: Cluster, gpus: int, ours: bool) -> Places:
    """Choose by the configuration, else by labels, else by GPUs: the server's node needs `gpus` of them.

    `ours`: the server is started by us; one that runs elsewhere needs no node. Raises ConfigError.
    """
    server = _server(nodes, driver, wanted.server, gpus) if ours or wanted.server else driver
    if server.gpus < gpus:
        raise ConfigError(f"the server needs {gpus} GPUs, {server.words} has {server.gpus}; see cluster.server")
    return Places(server, _clients(nodes, server, wanted.clients, ours), driver)


def _server(nodes: Sequence[Node], driver: Node, name: str | None, gpus: int) -> Node:
    if name:
        return _named(nodes, name, "cluster.server")
    labelled = [node for node in nodes if node.role == "server"]
    if len(labelled) > 1:
        raise ConfigError(
            f"{_listed(labelled)} are all labelled {LABEL}=server; label one of them, or choose by cluster.server"
        )
    fit = [node for node in nodes if node.gpus >= gpus > 0]
    # Of several, the first by address: the same one every time.
    return (labelled or sorted(fit, key=lambda node: (-node.gpus, node.address)) or [driver])[0]


def _clients(nodes: Sequence[Node], server: Node, names: Sequence[str] | None, ours: bool) -> tuple[Node, ...]:
    if names:
        return tuple(dict.fromkeys(_named(nodes, name, "cluster.clients") for name in names))
    able = [node for node in nodes if node.cpus > 0]
    chosen = [node for node in able if node.role == "client"]
    others = [node for node in able if not ours or node is not server]
    return tuple(sorted(chosen or others or [server], key=lambda node: node.address))


def _named(nodes: Sequence[Node], name: str, key: str) -> Node:
    found = [node for node in nodes if node.called(name)]
    if len(found) == 1:
        return found[0]
    known = f"the cluster has {_listed(nodes)}"
    raise ConfigError(f"{key}={name} names {'no node' if not found else 'several nodes'}; {known}")


def _listed(nodes: Iterable[Node]) -> str:
    return ", ".join(node.words for node in nodes)


def require_cpus(workers: int, places: Places) -> None:
    """Refuse more workers than the client nodes have CPUs. Raises ConfigError naming both numbers."""
    if too_many := _too_many(workers, places):
        raise ConfigError(too_many)


def _too_many(workers: int, places: Places) -> str | None:
    cpus = sum(node.cpus for node in places.clients)
    if workers <= cpus:
        return None
    where = "the cluster" if places.clients == (places.driver,) else _listed(places.clients)
    return f"cluster.workers={workers} needs {workers} CPUs, {where} has {cpus}; ask for at most {cpus}"


def warnings(named: Sequence[str]) -> list[str]:
    """What a person should know of the named actors of a cluster, which are others': nobody touches them."""
    if not named:
        return []
    shown = ", ".join([*named[:NAMED_SHOWN_MAX], *(["..."] if len(named) > NAMED_SHOWN_MAX else [])])
    return [f"the cluster holds named actors of others, which may take its nodes' time from a measurement: {shown}"]
