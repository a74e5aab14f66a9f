"""Watching a Point while its workers run: what ends it before its time, and what was seen until then."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadgen import verdict, warden
from loadgen.config import Config
from loadgen.crew import Crew, drop_wall
from loadgen.errors import ClusterError, Interrupted, LoadgenError, ServerError, StorageError
from loadgen.interrupt import Stop
from loadgen.launched import Launched
from loadgen.verdict import Verdict

LOOK_S = 0.25  # how often the driver looks at the board
SERVER_LOOK_S = 0.5  # how often it asks whether the server lives: its death ends the Point within two seconds
HANG_SLACK_S = 5.0  # the requests' own deadlines come first, so that their rows tell why
SILENT_S_MIN = 2.5  # two missing beats: not lost yet, and nothing is concluded of the server meanwhile
SILENCE_S_MAX = 6.0  # a worker beats once a second; five missing beats are a lost worker
WORKERS_START_S_MAX = 60.0  # processes and imports on a busy machine
END_S_MAX = 12.0  # from the word to stop, or from the last request that became a row since, until all are written
ANSWER_S_MAX = 10.0  # the server's actor answers from memory
OVERLOADED = "its node is gone, frozen or overloaded; look at it, then run again"


@dataclass
class Watch:
    """What the driver saw while the workers ran. `failed` is what ended the Point before its time, if anything did."""

    board: dict[str, Any]
    health: list[dict[str, Any]]
    returned: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # what each worker says of itself
    failed: Verdict | None = None
    died_ns: int | None = None  # nanoseconds since the Point began


def hang_after_s(conf: Config) -> float:
    """Seconds without a token of any stream, while requests are in flight, after which the server hangs."""
    load = conf.load
    return min(conf.engine.hang_s_max, max(load.first_token_s_max, load.stall_s_max) + HANG_SLACK_S)


def observe(
    crew: Crew,
    launched: Launched,
    show: Callable[[Mapping[str, Any]], None],
    stop: Stop,
    hang_s_max: float,
    limit_s: float = math.inf,
) -> Watch:
    """Look at the board until all workers have returned; end the Point on a signal, a dead server or a lost worker.

    `hang_s_max`: no stream has read a byte for so long means that the server hangs, whatever its /health says.
    `limit_s`: so many seconds for all of it, where it is the warm-up. Raises ClusterError when the board or the
    server's actor is lost before the workers have met, and Interrupted when neither answers after a signal; later that
    ends the Point as a lost worker does.
    """
    watch = Watch({}, [])
    try:
        _observe(watch, crew, launched, show, stop, hang_s_max, limit_s)
    except (ClusterError, Interrupted) as error:
        if watch.board.get("start_utc_ns") is None:
            raise
        watch.failed = watch.failed or cut_off(error)
        if warden.trouble():
            return watch  # its workers are gone with it
        drop_wall()
        with contextlib.suppress(ClusterError):
            _await_workers(watch, crew)
    return watch


def cut_off(error: ClusterError | Interrupted) -> Verdict:
    """What ends a Point whose board, or whose server's actor, is gone, or silent when a signal comes."""
    if isinstance(error, Interrupted):
        return verdict.interrupted(error.signum)
    rule, told = ("node_lost", warden.trouble()) if warden.trouble() else ("cluster", str(error))
    return verdict.failed(rule, told, None, OVERLOADED, ClusterError.exit_code)


def _await_workers(watch: Watch, crew: Crew) -> None:
    """Without a board workers stop by themselves and hand on their rows."""
    deadline_s, over = time.monotonic() + END_S_MAX, False
    while not over and time.monotonic() < deadline_s:
        watch.returned, _, over = crew.ended(LOOK_S)


def _observe(
    watch: Watch,
    crew: Crew,
    launched: Launched,
    show: Callable[[Mapping[str, Any]], None],
    stop: Stop,
    hang_s_max: float,
    limit_s: float,
) -> None:
    read, read_s = 0, time.monotonic()
    begun = asked = time.monotonic()
    deadline, settled = math.inf, 0
    while True:
        watch.returned, lost, over = crew.ended(LOOK_S)
        watch.board = crew.look()
        watch.health += watch.board["health"]
        show(watch.board)
        now = time.monotonic()
        if watch.failed is None and (over or now - asked >= SERVER_LOOK_S):
            asked = now
            watch.failed = _server_failed(watch, launched)
        if watch.board["reads"] != read or not watch.board["in_flight"]:
            read, read_s = watch.board["reads"], now
        if watch.failed is None:
            ended = _ended_by(watch.board, lost, now - begun, stop) or _late(now - begun, limit_s)
            hangs = now - read_s > hang_s_max and not _unheard(watch.board)
            watch.failed = ended or (_hung(watch, launched, now - read_s) if hangs else None)
        if watch.failed and not watch.board["reason"]:
            crew.stop(watch.failed.reasons[0].rule)
        if watch.board["reason"] and (deadline == math.inf or watch.board["finished"] != settled):
            deadline, settled = now + END_S_MAX, watch.board["finished"]
        if over:
            return
        if now > deadline:
            late = f"not all workers returned within {END_S_MAX:g} s of the end"
            watch.failed = watch.failed or verdict.failed("worker_lost", late, None, OVERLOADED, ClusterError.exit_code)
            return


def _unheard(board: Mapping[str, Any]) -> bool:
    """Whether a worker is silent: what it has read since nobody knows, so it says nothing of the server."""
    return any(silent_s > SILENT_S_MIN for silent_s in board["silent_s"].values())


def _hung(watch: Watch, launched: Launched, silent_s: float) -> Verdict:
    """Each of a level's requests timing out in turn would hold a hung server's Point for hours."""
    seen = launched.server.ask("symptoms", wait_s_max=ANSWER_S_MAX * len(launched.endpoint["urls"]))
    flying = f"{watch.board['in_flight']} requests in flight"
    told = f"no stream has read anything for {silent_s:.0f} s, {flying} ({seen['kind']}; {'; '.join(seen['seen'])})"
    return _server_verdict("server_hung", told, launched, seen)


def _server_failed(watch: Watch, launched: Launched) -> Verdict | None:
    look = launched.server.ask("look", wait_s_max=ANSWER_S_MAX)
    if look["alive"]:
        return None
    watch.died_ns = watch.board["t_ns"]
    return _server_verdict("server_died", look["reason"], launched, look)


def _server_verdict(rule: str, told: str, launched: Launched, seen: Mapping[str, Any]) -> Verdict:
    """FAILED, with the advice of the failure's class and the end of the server's log."""
    ours = launched.spec.engine != "external"
    read = f"read the end of server{launched.stem}.log" if ours else "look at that server, then run again"
    advice = f"{seen['advice']}; {read}" if seen.get("advice") else read
    return verdict.failed(rule, told, None, advice, ServerError.exit_code, seen.get("log_tail") or "")


def _late(since_s: float, limit_s: float) -> Verdict | None:
    if since_s <= limit_s:
        return None
    advice = "look at the server's log for what it compiles, or raise engine.warm_up_s_max"
    return verdict.failed("warm_up", f"not over after {limit_s:g} s", None, advice, ServerError.exit_code)


def _ended_by(board: Mapping[str, Any], lost: Mapping[int, LoadgenError], since_s: float, stop: Stop) -> Verdict | None:
    """What other than the server ends the Point before its time, if anything does."""
    if stop.signum is not None:
        return verdict.interrupted(stop.signum)
    if board.get("storage"):
        advice = "make room there, then go on with resume=true"
        return verdict.failed("storage", board["storage"], None, advice, StorageError.exit_code)
    code, started = ClusterError.exit_code, board["start_utc_ns"] is not None
    for number, error in lost.items():
        if isinstance(error, StorageError):  # it names file and host
            advice = "rows that were written before are kept; go on with resume=true when there is room"
            return verdict.failed("storage", f"worker {number}: {error}", None, advice, error.exit_code)
        advice = "its rows are kept; look at the node's memory and disk, then run again"
        return verdict.failed("worker_lost", f"worker {number}: {error}", None, advice, error.exit_code)
    for number, silent_s in board["silent_s"].items():
        if started and silent_s > SILENCE_S_MAX:
            silent = f"worker {number}: silent for {silent_s:.0f} s"
            return verdict.failed("worker_lost", silent, None, OVERLOADED, code)
    if not started and since_s > WORKERS_START_S_MAX:
        advice = "look for memory or processes that are short on the nodes"
        return verdict.failed("workers", f"not all were there after {since_s:.0f} s", None, advice, code)
    return None
