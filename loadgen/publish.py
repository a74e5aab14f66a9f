"""A Point's place on the file system that output.uri names: a folder of its id, whole when its point.json is there.

Workers' nodes write their own rows; the driver what is small, the parts that are not there then, and last the commit
mark. The Point on the driver's disk stands whatever becomes of it, and resume=true catches up with what is missing.
"""

import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadgen import claimed, crew, remote, store
from loadgen.asked import Run
from loadgen.cell import Cell
from loadgen.config import Config
from loadgen.dataset import point_files, read_json
from loadgen.errors import Interrupted, LoadgenError, StorageError
from loadgen.interrupt import Stop
from loadgen.nodes import Node
from loadgen.progress import Progress
from loadgen.resume import RUNS
from loadgen.verdict import INTERRUPTED
from loadgen.watch import Watch

REQUIRE_S_MAX = 60.0  # an empty file
POLL_S = 0.2


def require(configs: Iterable[Config]) -> None:
    """Show that what these ask for can be written where they ask for it. Raises StorageError.

    Nothing is started yet, no task either: in a thread, since who waits for a network hears no Ctrl-C.
    """
    for uri in dict.fromkeys(conf.output.uri for conf in configs):
        if uri is None:
            continue
        wrong: list[StorageError | None] = []
        threading.Thread(target=_try, args=(uri, wrong), daemon=True).start()
        deadline_s = time.monotonic() + REQUIRE_S_MAX
        while not wrong and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        if not wrong:
            raise StorageError(f"cannot write {uri}: no answer within {REQUIRE_S_MAX:g} s; look at the network")
        if wrong[0]:
            raise wrong[0]


def _try(uri: str, wrong: list[StorageError | None]) -> None:
    try:
        remote.require(uri)
        wrong.append(None)
    except StorageError as error:
        wrong.append(error)


def whole(
    cell: Cell,
    watch: Watch,
    window_ns: tuple[int, int] | None,
    point: Mapping[str, Any],
    progress: Progress,
    stop: Stop,
) -> bool:
    """Publish a Point that is on the driver's disk; False where it could not be, which is told.

    One that a signal ends, or whose tables the driver's disk did not take, is not published.
    """
    uri, places = str(cell.conf.output.uri), cell.launched.places
    kept = point["files"]["requests"] is not None
    seats = dict(enumerate(places.seats(cell.workers)))
    apart = {number: Path(told["apart"]) for number, told in watch.returned.items() if told.get("apart")}
    try:
        if kept and stop.signum is None:
            progress.phase(f"writing to {uri}")
            judged = _judged(uri, cell.folder, point, window_ns, watch.died_ns)
            given = {number: (seats[number], apart.get(number, cell.folder)) for number in watch.returned}
            written = crew.publish(judged, given, stop)
            if ours := crew.complete(judged, cell.folder, written, places.driver, stop):
                who = f"worker{'s' * (len(ours) > 1)} {', '.join(map(str, ours))}"
                progress.warn(f"{who}: written to {uri} from here; their node could not, or has another disk there")
    except Interrupted:
        pass  # whoever waits next hears of it; the Point stands
    except LoadgenError as error:
        progress.warn(f"{error}; the Point is in {cell.folder}: resume=true catches up")
        return False
    finally:
        crew.forget({number: (seats[number], folder) for number, folder in apart.items()})
        if kept:
            store.drop_streams(cell.folder)
    return True


def missing(runs: Sequence[Run], root: Path, driver: Node, stop: Stop) -> None:
    """Publish the Points of a command's runs that are not there yet: a kill or a lost network came between.

    Raises StorageError, Interrupted.
    """
    for run in runs:
        if (uri := run.config.output.uri) is None:
            continue
        for path in point_files(run.folder):
            point = read_json(path)
            kept = point["files"]["requests"] is not None and point["verdict"]["status"] != INTERRUPTED
            if kept and claimed.belongs(path, root):
                stop.check()
                judged = _judged(uri, path.parent, point, None, None)
                if crew.complete(judged, path.parent, {}, driver, stop) is not None:
                    print(f"{path.parent} is in {uri} now", file=sys.stderr)


def _judged(
    uri: str, folder: Path, point: Mapping[str, Any], window_ns: tuple[int, int] | None, died_ns: int | None
) -> remote.Judged:
    """Points of one command lie in one folder there, by which a reader knows them: here it is that of its ledger."""
    root = claimed.root_of(folder)
    assert root, f"{folder} lies below no ledger"
    command = read_json(root / RUNS)["name"]
    return remote.Judged(uri, f"{command}/{point['point_id']}", point["verdict"]["status"], window_ns, died_ns)
