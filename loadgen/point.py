"""The story of one Point: plan, shards, start, watch, window, verdict, numbers, on disk.

Whole or not at all: what a Point's folder holds counts only with its point.json, which is written last.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadgen import (
    capacity,
    chaos,
    clocks,
    dataset,
    launch,
    prompts,
    proven,
    publish,
    record,
    replay,
    served,
    stack,
    store,
    stretch,
    strike,
    summary,
    verdict,
    window,
)
from loadgen.cell import Cell, identity_of, load_of, shards_of, workers_of
from loadgen.clocks import Start
from loadgen.columns import columns
from loadgen.config import Config, Level
from loadgen.crew import hire
from loadgen.errors import ClusterError, Interrupted, StorageError
from loadgen.facts import gather
from loadgen.forecast import Ladder
from loadgen.interrupt import Stop
from loadgen.launched import Launched
from loadgen.progress import Progress
from loadgen.verdict import Verdict
from loadgen.watch import Watch, cut_off, hang_after_s, observe
from loadgen.window import Measured, Window

GO_ON = "go on with resume=true when there is room; its rows are in its folder's streams"


def measure(
    launched: Launched,
    conf: Config,
    level: Level,
    folder: Path,
    asking: prompts.Asking,
    ladder: Ladder,
    progress: Progress,
    stop: Stop,
) -> tuple[dict[str, Any], int]:
    """Measure one level on a running server; point.json's content and the exit code it stands for.

    Raises ClusterError when the server's actor or the board is lost before it begins, Interrupted for a signal by then,
    StorageError when results cannot be written.
    """
    found, asked = asking
    if launched.measured_hash != asked:
        launched.measured_hash, launched.measured = asked, []
    expected = window.expect_at(level.concurrency, launched.warm_up_s, launched.measured)
    place = store.new_folder(folder, level.folder)
    identity = identity_of(launched, conf, level, place, asked)
    progress.phase("flushing the cache")
    flushed = bool(launched.server.ask("flush"))
    log_start = served.before(launched)
    count = workers_of(launched, conf, level, expected)
    cell = Cell(launched, conf, level, place, identity, expected, prompts.turns(found), flushed, log_start, count)
    with store.marked(place) as mark:
        crew = hire(shards_of(cell, found), conf.load, cell.ramp_s, cell.counted, launched.places, mark, stop)
        try:
            with strike.beside(conf, launched, _shower(cell, ladder, progress)) as show:
                watch = observe(crew, launched, show, stop, hang_after_s(conf))
        finally:
            crew.dismiss()
    keep_what_is_left(watch, place)
    point, code = _conclude(cell, watch)
    if conf.engine.profile and point["summary"] and point["verdict"]["status"] != verdict.FAILED:
        # The Point is whole and on the disk: whatever becomes of the profile, it stands.
        point["summary"]["profile"] = stretch.profile(cell, found, progress, stop)
        try:
            store.write_json(place / store.POINT, point)
        except StorageError as error:
            progress.warn(f"the profile is not kept: {error}")
    if conf.output.uri is not None and not publish.whole(cell, watch, _inside(cell, watch), point, progress, stop):
        return point, StorageError.exit_code
    return point, code


def keep_what_is_left(watch: Watch, place: Path) -> None:
    """The last rows of workers that have not this disk; where it does not take them the Point is not whole."""
    for one in watch.returned.values():
        if "left" in one and (trouble := store.kept(place, one["worker"], one["left"])):
            watch.failed = watch.failed or verdict.failed("storage", trouble, None, GO_ON, StorageError.exit_code)


def _shower(cell: Cell, ladder: Ladder, progress: Progress) -> Callable[[Mapping[str, Any]], None]:
    """Shows phase, counts and the time left, as the board has them."""
    place, known = ladder.levels.index(cell.level), replay.resolved(cell.conf.load, cell.level)
    later_s = ladder.left_s(place + 1)
    later_turns_s = cell.stagger_s - window.stagger_s(cell.conf.load, cell.level.concurrency, cell.expected)
    fixed = {
        "variant": cell.conf.variant.name,
        "level": place + 1,
        "levels": len(ladder.levels),
        "concurrency": cell.level.concurrency,
        "rate": cell.identity["rate"],
        "trace": cell.conf.load.trace,
    }

    def show(board: Mapping[str, Any]) -> None:
        known_s = board["duration_s"] or 0.0
        duration_s = known_s if board["window"] else max(known_s, cell.expected.duration_s)
        whole_s = later_turns_s + window.level_s(cell.conf.load, known, duration_s)
        left_s = max(0.0, whole_s - board["t_ns"] / 1e9)
        whole_left_s = None if later_s is None else left_s + later_s
        counts = {name: board[name] for name in ("phase", "finished", "failed", "tokens_per_s", "in_flight")}
        after_s = None if whole_left_s is None or ladder.after_s is None else whole_left_s + ladder.after_s
        left = {"level_left_s": left_s, "ladder_left_s": whole_left_s, "command_left_s": after_s}
        progress.update({**fixed, **counts, **left})

    return show


def _inside(cell: Cell, watch: Watch) -> tuple[int, int] | None:
    """The window (ns) in which requests count; None where all do."""
    span: Window | None = watch.board["window"]
    return (span.start_ns, span.end_ns) if span else None if cell.counted else (0, 0)


def _conclude(cell: Cell, watch: Watch) -> tuple[dict[str, Any], int]:
    """Judge, compute, write. The rows of a Point that failed are kept and marked; it has no headline numbers."""
    rows = store.requests_table(cell.folder, _inside(cell, watch))
    if watch.died_ns is not None:
        rows = dataset.mark_server_gone(rows, watch.died_ns)
    health = [{**cell.identity, **row} for row in watch.health]
    try:
        with contextlib.suppress(StorageError):  # kept in memory, and written with the next ones or told at the end
            launch.collect(cell.launched)
        judged, numbers = (watch.failed, None) if watch.failed else _whole(cell, watch, columns(rows), health)
    except (ClusterError, Interrupted) as error:
        judged, numbers = watch.failed or cut_off(error), None
    point = _content(cell, watch, judged, numbers)
    try:
        store.commit_point(cell.folder, rows, health, point, streams_needed=cell.conf.output.uri is not None)
    except StorageError as error:
        return _unkept(cell, point, judged, error)
    return point, judged.exit_code


def _unkept(cell: Cell, point: dict[str, Any], judged: Verdict, error: StorageError) -> tuple[dict[str, Any], int]:
    """The Point FAILED, with its numbers and without tables: the disk did not take them."""
    if judged.exit_code != error.exit_code:
        judged = verdict.failed("storage", str(error), None, GO_ON, error.exit_code)
    failed = {
        **point,
        "verdict": verdict.as_json(judged),
        "files": {**point["files"], "requests": None, "health": None},
    }
    with contextlib.suppress(StorageError):  # then its numbers are printed, and stand nowhere else
        store.commit_failed(cell.folder, failed)
    return failed, judged.exit_code


def _whole(
    cell: Cell, watch: Watch, told: dict[str, Any], health: list[dict[str, Any]]
) -> tuple[Verdict, dict[str, Any] | None]:
    """The verdict and the numbers of a Point that nothing ended before its time."""
    board = watch.board
    if board["window"] is None and not cell.counted:
        advice = "read the outcomes in requests.parquet and the server's log"
        reason = board["reason"] or "not reached"
        return verdict.failed("window", reason, None, advice, ClusterError.exit_code), None
    rows, expected = len(told["outcome"]), sum(one["sent"] + one["unsent"] for one in watch.returned.values())
    assert rows == expected, f"{rows} rows of {expected} requests in {cell.folder}"
    hosts = {one["host"] for one in watch.returned.values()}
    cols = served.with_cache_as_told(cell.launched, told)
    judged, numbers = _judge(cell, cols, health, board, hosts, clocks.start(watch.returned.values()))
    if duration_s := board["duration_s"]:
        streams = cell.level.concurrency or max(1, round((cell.identity["rate"] or 0) * duration_s))
        cell.launched.measured.append(Measured(streams, duration_s))
    return judged, None if judged.status == verdict.FAILED else numbers


def _judge(
    cell: Cell,
    cols: dict[str, Any],
    health: list[dict[str, Any]],
    board: Mapping[str, Any],
    hosts: set[str],
    begun: Start | None,
) -> tuple[Verdict, dict[str, Any]]:
    """The verdict and the numbers of a Point that ran to its end. A server of ours proves itself once more."""
    launched, span = cell.launched, board["window"]
    found = proven.again(launched, cell.level.concurrency or 1)  # in open loop requests may queue
    able, note = capacity.least(launched.places.capacities, hosts)
    facts = gather(
        cols,
        health,
        span,
        cell.conf.load,
        cell.level.concurrency,
        found.wrong,
        found.quiet,
        proof_needed=launched.spec.engine != "external",
        sharing_meant=prompts.shares(cell.conf.workload),
        think_s=cell.conf.workload.think_s,
        capacity_events_per_s=able.events_per_s if able else None,
        capacity_at_least=able is not None and able.at_least,
        capacity_note=note,
        start=begun,
        died=found.replaced,
    )
    judged = verdict.judge(facts)
    overloaded = any(reason.rule == "overload" for reason in judged.reasons)
    return judged, served.numbers(cell, cols, board["start_utc_ns"], span, list(found.infos.values()), overloaded)


def _workers(cell: Cell, watch: Watch) -> list[dict[str, Any]]:
    """Who drove the Point, from where, how late each began, and how far its clock is ahead of the board's."""
    ms = {name.removesuffix("_ns") + "_ms": name for name in ("start_late_ns", "clock_ahead_ns", "clock_rtt_ns")}
    seats = cell.launched.places.seats(cell.workers)
    return [
        {
            "worker": number,
            "host": seat.name,
            "address": seat.address,
            **{shown: told[name] / 1e6 if told.get(name) is not None else None for shown, name in ms.items()},
            **{name: told.get(name) for name in ("pid", "sent", "reason")},
        }
        for number, seat in enumerate(seats)
        for told in [watch.returned.get(number, {})]
    ]


def _content(cell: Cell, watch: Watch, judged: Verdict, numbers: dict[str, Any] | None) -> dict[str, Any]:
    """The content of point.json."""
    board = watch.board
    span: Window | None = board["window"]
    begun_ns = board["start_utc_ns"]
    conf, stem = cell.conf, cell.launched.stem
    beside = os.path.relpath(cell.launched.folder, cell.folder)
    how = span.how if span else "whole run" if cell.counted else "no window was reached"
    spread = f"expected duration {cell.expected.duration_s:.2f} s, {cell.expected.how}"
    return {
        "schema_version": record.SCHEMA_VERSION,
        **{name: value for name, value in cell.identity.items() if name not in ("concurrency", "rate")},
        "started_at": datetime.fromtimestamp(begun_ns / 1e9, UTC) if begun_ns else None,
        "model_id": cell.launched.endpoint.get("model_id"),
        "cache_flushed": cell.flushed,
        "load": load_of(cell),
        "tags": conf.tags,
        "fault": chaos.fault_of(conf),
        "caveats": [
            *prompts.caveats(conf.workload),
            *summary.caveats(numbers),
            *cell.launched.remarks,
            *served.caveats(numbers, cell),
        ],
        "window": {
            "start_s": span.start_ns / 1e9 if span else None,
            "end_s": span.end_ns / 1e9 if span else None,
            "how": f"{how}; {spread}",
        },
        "workers": _workers(cell, watch),
        "verdict": verdict.as_json(judged),
        "summary": numbers,
        "must_match": stack.must_match(
            {**cell.launched.must_match.get("of", {}), "workload_hash": cell.identity["workload_hash"]}
        ),
        "files": {
            "requests": store.REQUESTS_FILE,
            "health": store.HEALTH_FILE,
            "launch": f"{beside}/launch{stem}.json",
            "server_log": f"{beside}/server{stem}.log" if cell.launched.spec.engine != "external" else None,
            "server_metrics": f"{beside}/server_metrics{stem}.parquet",
        },
    }
