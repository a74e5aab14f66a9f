"""Ray's part in a Point: its workers, and the wall on which their board hangs.

Calls happen for each Point and once a second for each worker, never for each request.
"""

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from loadgen import cluster, duty, footprint, store, warden, worker
from loadgen.board import Wall
from loadgen.config import Load
from loadgen.errors import ClusterError, Interrupted, LoadgenError, of_worker
from loadgen.interrupt import Stop
from loadgen.nodes import Node, Places
from loadgen.shard import without_plan

KILLED_S = 1.0  # until Ray has seen the end of what was killed
BOARD_S_MAX = 10.0  # an answer of the board; it does nothing but count
WALL = "wall"
WORKER_TITLE = "ray::loadgen:worker"  # how Ray shows a process that runs a task of this name
WALL_TITLE = "ray::Wall"  # ... or that is an actor of this class


@dataclass(frozen=True)
class Crew:
    """The workers of one Point and the wall on which their board hangs under `key`."""

    key: str
    wall: Any
    refs: list[Any]
    plan: Any  # held for workers that have not fetched it yet
    heard: Stop

    def look(self) -> dict[str, Any]:
        """The board's picture of the Point."""
        return self._told(self.wall.look.remote(self.key))

    def stop(self, reason: str) -> None:
        """Have all workers stop at their next beat."""
        self._told(self.wall.stop.remote(self.key, reason))

    def _told(self, ref: Any) -> Any:
        return cluster.result(ref, self.heard, BOARD_S_MAX, "the board", cluster.SIGNALLED_S_MAX)

    def ended(self, wait_s: float) -> tuple[dict[int, dict[str, Any]], dict[int, LoadgenError], bool]:
        """Workers that returned, those lost with the reason, and whether all have ended; waits up to `wait_s`."""
        warden.require_whole()
        done, left = ray.wait(self.refs, num_returns=len(self.refs), timeout=wait_s)
        warden.require_whole()  # its own end ends them too, and says more
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
        if warden.trouble():
            return
        _, left = ray.wait(self.refs, num_returns=len(self.refs), timeout=0)
        # Ray only asks them to end, which who is frozen does not hear; an answer that crosses it ends the driver.
        if left and footprint.kill(footprint.titled(WORKER_TITLE)):
            _, left = ray.wait(left, num_returns=len(left), timeout=KILLED_S)
        for ref in left:
            with contextlib.suppress(Exception):
                ray.cancel(ref, force=True)


def hire(
    shards: Sequence[worker.Shard],
    load: Load,
    ramp_s: float,
    counted: bool,
    places: Places,
    mark: Path | None,
    stop: Stop,
) -> Crew:
    """Hang up a board and start one worker a shard, each on its node.

    All shards are of one plan. Rows go to the folder of `mark`, or nowhere when it is None (warm-up). ClusterError for
    too few CPUs, Interrupted where a signal comes before the board hangs.
    """
    warden.require_whole()
    key = secrets.token_hex(8)
    seats = places.seats(len(shards))
    wall = _hang(places.driver, stop, key, load, len(shards), ramp_s, counted, str(mark.parent) if mark else None)
    found = str(mark) if mark else None
    # The plan is put once: nodes fetch it from each other, and the driver's calls do not grow with its texts.
    plan = ray.put(shards[0].plan)
    tasks = [
        _hired(f"worker {shard.worker}", seat).remote(without_plan(shard), wall, key, found, plan)
        for shard, seat in zip(shards, seats, strict=True)
    ]
    return Crew(key, wall, tasks, plan, stop)


def first(places: Places) -> None:
    """Begin what takes a second before there is work for it: the board's process and a worker's."""
    _wall(places.driver)
    _hired("first", places.seats(1)[0]).remote(None, None, "", None, None)


def _hired(title: str, seat: Node) -> Any:
    """A worker's task, to be called with its work: the same task of a Point before it leaves its process to it."""
    where = cluster.on(seat)
    return ray.remote(duty.work).options(num_cpus=1, max_retries=0, name=f"loadgen:{title}", **where)


def _hang(driver: Node, stop: Stop, *board: Any, again: bool = True) -> Any:
    """The wall with a Point's board on it; where the wall of the last Point is gone, another one."""
    wall = _wall(driver)
    try:
        cluster.result(wall.hang.remote(*board), stop, cluster.SERVER_CALL_S_MAX, "the board")
    except (ClusterError, Interrupted) as error:
        drop_wall()
        if isinstance(error, Interrupted) or not again:
            raise
        return _hang(driver, stop, *board, again=False)
    return wall


def drop_wall() -> None:
    """End a wall that is lost, or frozen: workers notice and stop by themselves, the next Point gets another."""
    cluster.end_held(WALL)
    footprint.kill_frozen(WALL_TITLE)


def _wall(driver: Node) -> Any:
    """The one process for all boards, on the driver's disk: one for each Point would start beside its measurement."""
    if WALL not in cluster.HELD:
        # The store takes Arrow: half a second of a core that only several nodes can need.
        keep = store.kept if len(cluster.nodes()) > 1 else None
        cluster.HELD[WALL] = ray.remote(Wall).options(num_cpus=0, max_restarts=0, **cluster.on(driver)).remote(keep)
    return cluster.HELD[WALL]
