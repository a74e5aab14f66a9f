"""R6: a signal ends what waits for somebody in the cluster who does not answer."""

import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
import ray
from running import eventually

from loadgen import cluster, crew, footprint, trial
from loadgen.config import Cluster, Load
from loadgen.errors import ClusterError, Interrupted
from loadgen.interrupt import Stop
from loadgen.nodes import Places

pytestmark = pytest.mark.usefixtures("one_ray")

START_S_MAX = 60.0
HEARD_S_MAX = 10.0  # a fraction of a second; the board itself is waited for for a minute, twice


@pytest.fixture
def places() -> Places:
    """Of the tests' Ray."""
    return cluster.places(Cluster(), 0, ours=True)


@pytest.fixture
def frozen(places: Places) -> Iterator[psutil.Process]:
    """The board's process, which says nothing any more."""
    crew.first(places)
    (wall,) = eventually(lambda: footprint.titled(crew.WALL_TITLE), START_S_MAX, "the board's process")
    wall.send_signal(signal.SIGSTOP)
    yield wall
    crew.drop_wall()
    eventually(lambda: not footprint.titled(crew.WALL_TITLE), HEARD_S_MAX, "the end of the frozen process")


def test_r06_while_the_board_is_waited_for(places: Places, frozen: psutil.Process) -> None:
    """Nobody is hired any more, and nobody waits for the minute that a board may take to be there."""
    stop, shard = Stop(), trial._shard("http://127.0.0.1:9", trial.asked_for(1000.0))
    heard = threading.Timer(0.5, stop.hear, (signal.SIGINT, None))
    heard.start()
    begun_s = time.monotonic()
    with pytest.raises(Interrupted):
        crew.hire([shard], Load(), 0.0, True, places, None, stop)
    assert time.monotonic() - begun_s < HEARD_S_MAX
    heard.join()


def test_r06_an_answer_that_is_on_its_way() -> None:
    """It is waited for a little, since it may be about what was measured; by who hears no signals, until its time."""
    task = ray.remote(lambda pause_s: time.sleep(pause_s) or "told").options(num_cpus=0)
    stop = Stop(signal.SIGTERM)
    assert cluster.result(task.remote(1.0), stop, 60.0, "it", 30.0) == "told"
    never = task.remote(600.0)
    with pytest.raises(Interrupted):
        cluster.result(never, stop, 60.0, "it", 0.5)
    with pytest.raises(ClusterError, match=r"it did not answer within 0\.5 s"):
        cluster.result(never, None, 0.5, "it")
    ray.cancel(never, force=True)
