"""Which node does what, how many workers a load needs, how far apart they began."""

import pytest

from loadgen import capacity, clocks, staffing, visit
from loadgen.config import Cluster
from loadgen.errors import ClusterError, ConfigError
from loadgen.nodes import LOOPBACK, Node, Places, place

HEAD = Node("h", "10.0.0.1", "head", 2, 0)
GPUS = Node("g", "10.0.0.2", "gpus", 8, 8)
ONE = Node("a", "10.0.0.3", "one", 2, 0)
TWO = Node("b", "10.0.0.4", "two", 1, 0)
IDLE = Node("i", "10.0.0.5", "idle", 0, 0)
ALL = [HEAD, GPUS, ONE, TWO, IDLE]


def placed(nodes: list[Node], gpus: int = 0, ours: bool = True, **wanted: object) -> Places:
    return place(nodes, nodes[0], Cluster(**wanted), gpus, ours)  # type: ignore[arg-type]


def test_the_node_with_gpus_serves_and_the_others_drive() -> None:
    """A node without CPUs is no client; the server listens where the others reach it."""
    found = placed(ALL, gpus=8)
    assert (found.server, found.clients, found.driver) == (GPUS, (HEAD, ONE, TWO), HEAD)
    assert (found.host, found.workers_meant) == ("10.0.0.2", 5)


def test_labels_come_before_gpus_and_names_before_labels() -> None:
    """`ray start --labels=loadgen=server` decides; cluster.server and cluster.clients decide against it."""
    labelled = Node("s", "10.0.0.6", "labelled", 1, 0, role="server")
    client = Node("c", "10.0.0.7", "client", 1, 0, role="client")
    assert placed([*ALL, labelled]).server == labelled
    assert placed([*ALL, client]).clients == (client,)
    forced = placed([*ALL, labelled], server="one", clients=["10.0.0.4", "head"])
    assert (forced.server, forced.clients) == (ONE, (TWO, HEAD))


def test_without_gpus_or_labels_the_driver_serves() -> None:
    """One node alone does everything on loopback; a server that is not ours needs no node."""
    assert placed([HEAD, ONE]).server == HEAD
    alone = placed([HEAD])
    assert (alone.server, alone.clients, alone.host) == (HEAD, (HEAD,), LOOPBACK)
    assert placed([HEAD, ONE], ours=False).clients == (HEAD, ONE)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"server": "three"}, "cluster.server=three names no node; the cluster has head (10.0.0.1), gpus (10.0.0.2)"),
        ({"clients": ["one", "nine"]}, "cluster.clients=nine names no node"),
        ({"server": "one", "gpus": 8}, "the server needs 8 GPUs, one (10.0.0.3) has 0; see cluster.server"),
    ],
)
def test_a_wrong_place_is_a_sentence(wanted: dict, told: str) -> None:
    """With the nodes that there are."""
    with pytest.raises(ConfigError) as error:
        placed(ALL, **wanted)
    assert told in str(error.value)


def test_two_nodes_for_one_server_are_refused() -> None:
    """Nothing says which is meant."""
    twice = [Node(str(n), f"10.0.0.{n}", f"n{n}", 1, 0, role="server") for n in (1, 2)]
    with pytest.raises(ConfigError, match="are all labelled loadgen=server"):
        placed(twice)


def test_workers_sit_in_turns() -> None:
    """One on each node, then a second where there is a CPU for it; more than there are CPUs are refused."""
    found = placed([HEAD, ONE, TWO], server="head")
    assert [node.name for node in found.seats(3)] == ["one", "two", "one"]
    with pytest.raises(ClusterError, match=r"cluster.workers=4 needs 4 CPUs, one \(10.0.0.3\), two .* has 3"):
        found.seats(4)
    assert [node.name for node in found.without([ONE]).seats(1)] == ["two"]
    assert found.without([ONE, TWO]).clients == (ONE, TWO)


def test_a_node_without_cpus_gets_no_worker() -> None:
    """Also where it is asked for: a task there would wait for ever."""
    with pytest.raises(ClusterError, match="needs 1 CPUs"):
        placed(ALL, clients=["idle"]).seats(1)
    with pytest.raises(ClusterError, match="several nodes call themselves two"):
        visit.require_apart([{"host": "two"}, {"host": "one"}, {"host": "two"}])


def test_workers_by_the_load() -> None:
    """Half of the calibrated capacity each, a thousand streams at most."""
    assert staffing.needed(16, 900.0, None) == 1
    assert staffing.needed(250, 40_000.0, 26_500.0) == 4
    assert staffing.needed(4_000, 900.0, 26_500.0) == 4
    assert staffing.most(250, 2, 10.0, None) == 1
    assert staffing.most(250, 64, 1.0, None) == 10


def test_a_start_is_as_bad_as_its_latest() -> None:
    """One worker has no start to share; who did not say leaves it unknown."""
    told = [{"start_late_ns": 200_000}, {"start_late_ns": 6_200_000, "clock_rtt_ns": 1_000_000}]
    assert clocks.start(told) == clocks.Start(6.0, 6.2, 0.5)
    assert clocks.start(told[:1]) is None
    assert clocks.start([*told, {}]) is None


def test_nodes_that_differ_are_named() -> None:
    """Every difference in one sentence."""
    here = visit.tell((), None)
    other = {**here, "host": "two", "pyarrow": "14.0.1", "missing": ["/ca.pem"], "key": False}
    visit.require_alike(here, [here], None)
    with pytest.raises(ClusterError) as error:
        visit.require_alike(here, [here, other], "OPENAI_API_KEY")
    told = str(error.value)
    assert f"two has pyarrow 14.0.1, {here['host']} has {here['pyarrow']}" in told
    assert "two has no file /ca.pem" in told
    assert "OPENAI_API_KEY is not set on two" in told
    assert visit.warnings([{**here, "niceness": 15, "host": "two"}])[0].startswith("Ray runs its workers")
    assert visit.warnings([{**here, "niceness": 0}]) == []


def test_the_least_capacity_of_the_hosts_counts() -> None:
    """One that was never calibrated makes it unknown, and is named."""
    quick, slow = (capacity.Capacity(events, False, 1.0, "2026-11-30T00:00:00+00:00", {}) for events in (9e4, 3e4))
    told = {"one": (quick, "quick"), "two": (slow, "slow"), "three": (None, "not calibrated")}
    assert capacity.least(told, ["one", "two"])[0] == slow
    assert capacity.least(told, ["one", "two", "three"]) == (None, "not calibrated (three)")
    assert capacity.least(told, [])[0] is None
