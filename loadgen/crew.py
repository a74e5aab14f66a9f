"""Ray's part in a Point: its workers, and the wall on which their board hangs.

Calls happen for each Point and once a second for each worker, never for each request.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from loadgen import cluster, duty, footprint, remote, store, warden, worker
from loadgen.board import Wall
from loadgen.config import Load
from loadgen.errors import ClusterError, Interrupted, LoadgenError, StorageError, of_worker
from loadgen.interrupt import Stop
from loadgen.nodes import Node, Places
from loadgen.shard import without_plan

PARTS_S_MAX = 600.0  # all workers' rows of a long Point, over a slow network
COMPLETE_S_MAX = 1800.0  # ... where all of them go from one node
FORGET_S_MAX = 5.0  # a folder's end
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
            ray.wait(left, num_returns=len(left), timeout=KILLED_S)
        _cancel(left)


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


def publish(judged: remote.Judged, given: Mapping[int, tuple[Node, Path]], stop: Stop) -> dict[int, int]:
    """Have workers' nodes write their parts of a Point, see remote.part; the rows of each that is written.

    `given`: by worker its node, and the folder there that holds its rows. Raises Interrupted.
    """
    if warden.trouble():
        return {}
    refs = {
        number: _aside(remote.part, seat).remote(judged, number, folder) for number, (seat, folder) in given.items()
    }
    deadline_s, written = time.monotonic() + PARTS_S_MAX, {}
    try:
        for number, ref in refs.items():
            left_s = max(0.0, deadline_s - time.monotonic())
            with contextlib.suppress(ClusterError):  # whoever cannot: it is done here then
                written[number] = cluster.result(ref, stop, left_s, f"worker {number}'s part")
    finally:
        _cancel(list(refs.values()))  # one that comes late would write over what was written in its place
    return written


def complete(
    judged: remote.Judged, folder: Path, written: Mapping[int, int], driver: Node, stop: Stop
) -> list[int] | None:
    """The same of what is left, on the driver's node, see remote.complete: who waits for a network hears no signal.

    Raises StorageError, Interrupted.
    """
    if warden.trouble():
        return remote.complete(judged, folder, written)
    ref = _aside(remote.complete, driver).remote(judged, folder, written)
    try:
        done: list[int] | None = cluster.result(ref, stop, COMPLETE_S_MAX, f"{judged.uri}: what writes there")
        return done
    except ClusterError as error:
        cause = of_worker(error.__cause__) if isinstance(error.__cause__, ray.exceptions.RayError) else error
        raise (cause if isinstance(cause, StorageError) else StorageError(str(cause))) from None
    finally:
        _cancel([ref])


def forget(given: Mapping[int, tuple[Node, Path]]) -> None:
    """Take away folders on workers' nodes; one that is silent keeps its own for a day."""
    if given and not warden.trouble():
        refs = [_aside(shutil.rmtree, seat).remote(folder, ignore_errors=True) for seat, folder in given.values()]
        ray.wait(refs, num_returns=len(refs), timeout=FORGET_S_MAX)
        _cancel(refs)


def _aside(call: Callable[..., Any], seat: Node) -> Any:
    """A task that is no worker's, and does not wait for a CPU that somebody else has meanwhile."""
    return ray.remote(call).options(num_cpus=0, max_retries=0, name="loadgen:aside", **cluster.on(seat))


def _cancel(refs: list[Any]) -> None:
    if warden.trouble():
        return
    _, left = ray.wait(refs, num_returns=len(refs), timeout=0)
    for ref in left:
        with contextlib.suppress(Exception):
            ray.cancel(ref, force=True)


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
