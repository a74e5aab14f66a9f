"""The board: where workers report once a second and are told to go on or to stop, and where the window is decided.

Plain classes; `crew` places the wall in an actor. They see no token, only counts, ends of requests and Health; rows of
workers on other disks pass by as bytes.
"""

import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen import window
from loadgen.config import Load
from loadgen.shard import poll_s
from loadgen.window import Crowd, Durations, End, Window

START_POLLS = 5  # all workers hear of the start before it comes
FEW = 32  # workers; of more not every report leads to a decision: each looks at all of them, and all report
DECIDE_S = 50e-6  # for each worker, between two decisions


@dataclass
class Seat:
    """What one worker said last, and when it was heard (seconds, the board's monotonic clock)."""

    beat: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    heard_s: float = field(default_factory=time.monotonic)
    done: bool = False

    def tokens_per_s(self) -> float:
        """Tokens a second between its last two beats: reads, at the tokens a read of its finished requests."""
        span_ns = self.beat.get("t_ns", 0) - self.before.get("t_ns", 0)
        if span_ns <= 0:
            return 0.0
        per_read = self.beat["done_tokens"] / self.beat["done_reads"] if self.beat.get("done_reads") else 1.0
        return (self.beat["reads"] - self.before.get("reads", 0)) * per_read * 1e9 / span_ns


class Board:
    """One Point's meeting place for `workers` workers.

    `ramp_s`: over how long first requests are spread, in open loop how long one is expected to take; `counted`: a fixed
    number of requests, and so no window.
    """

    def __init__(self, load: Load, workers: int, ramp_s: float, counted: bool) -> None:
        self._load, self._ramp_ns, self._counted = load, int(ramp_s * 1e9), counted
        self._seats = {worker: Seat() for worker in range(workers)}
        self._ready: set[int] = set()
        self._start_utc_ns: int | None = None
        self._decided_s = -math.inf
        self._ends: list[End] = []  # until they have told where the window is: a run of hours has millions
        self._durations = Durations()
        self._window: Window | None = None
        self._begun: Crowd | None = None  # open loop: at the window's two ends
        self._ended: Crowd | None = None
        self._health: list[dict[str, Any]] = []
        self._going, self._reason = True, ""

    def beat(self, beat: dict[str, Any]) -> dict[str, Any]:
        """Take a worker's report; answer {"go", "start_utc_ns", "window"}, its host and now, on the board's clock."""
        seat = self._seats[beat["worker"]]
        seat.heard_s = time.monotonic()
        if beat["phase"] == "ready":
            self._meet(beat["worker"])
        else:
            seat.before, seat.beat = seat.beat, beat
            seat.done = beat["phase"] == "done"
            self._note([End(sent, done, outcome == "ok") for sent, done, outcome in beat["ends"]])
            self._health += beat["health"]
            self._decide()
        span = [self._window.start_ns, self._window.end_ns] if self._window else None
        return {**_clock(), "go": self._going, "start_utc_ns": self._start_utc_ns, "window": span}

    def _meet(self, worker: int) -> None:
        self._ready.add(worker)
        if len(self._ready) == len(self._seats) and self._start_utc_ns is None:
            self._start_utc_ns = time.time_ns() + int(START_POLLS * poll_s(len(self._seats)) * 1e9)

    def _note(self, ends: list[End]) -> None:
        self._durations = self._durations.after(ends)
        if self._window or self._counted:
            self._ends = []
        else:
            self._ends += ends

    def _decide(self) -> None:
        if len(self._seats) > FEW and time.monotonic() < self._decided_s + DECIDE_S * len(self._seats):
            return  # the next report comes soon
        self._decided_s = time.monotonic()
        beats = [seat.beat for seat in self._seats.values()]
        if self._counted:
            if all(beat.get("exhausted") for beat in beats):
                self.stop("every request was sent and ended")
            return
        now_ns = min(beat.get("t_ns", 0) for beat in beats)
        self._window = self._window or self._found(beats, now_ns)
        if self._window is not None and all(beat.get("drained") for beat in beats):
            self.stop("every request sent in the window has ended")
        elif self._window is not None and self._load.kind == "open":
            self._give_up(self._window, beats, now_ns)

    def _give_up(self, span: Window, beats: list[dict[str, Any]], now_ns: int) -> None:
        """Stop where the window's last requests are not worth waiting for: the server does not keep up."""
        crowd = Crowd(*(sum(beat.get(name, 0) for beat in beats) for name in ("sent", "in_flight")))
        self._begun = self._begun or crowd
        if now_ns < span.end_ns:
            return
        self._ended = self._ended or crowd
        waited_s = window.drain_ns_max(self._durations) / 1e9
        if window.hopeless(self._begun, self._ended):
            self.stop("requests piled up in the window: the server does not keep up with the rate")
        elif now_ns > span.end_ns + waited_s * 1e9:
            self.stop(f"requests sent in the window had not ended {waited_s:.0f} s after it")

    def _found(self, beats: list[dict[str, Any]], now_ns: int) -> Window | None:
        """The window by what all workers have told, if that is enough."""
        if self._load.kind == "open":
            return window.find_open(self._load, self._ramp_ns, self._durations, now_ns)
        rounds = [beat.get("first_round_ns") for beat in beats]
        first_round_ns = None if None in rounds else max(value for value in rounds if value is not None)
        return window.find(self._load, self._ramp_ns, first_round_ns, self._ends)

    def stop(self, reason: str) -> None:
        """Tell all workers to stop at their next beat; the first reason stands."""
        self._reason = self._reason or reason
        self._going = False

    def look(self) -> dict[str, Any]:
        """What a display and a guardian need: counts, phase, the window, and the Health rows since the last look."""
        seats, now_s = self._seats.values(), time.monotonic()
        total = {
            name: sum(seat.beat.get(name, 0) for seat in seats)
            for name in ("sent", "finished", "failed", "in_flight", "reads")
        }
        health, self._health = self._health, []
        return {
            **total,
            "phase": self._phase(),
            "t_ns": max((seat.beat.get("t_ns", 0) for seat in seats), default=0),
            "tokens_per_s": sum(seat.tokens_per_s() for seat in seats),
            "start_utc_ns": self._start_utc_ns,
            "window": self._window,
            "duration_s": self._durations.mean_ns / 1e9 if self._durations.count else None,
            "silent_s": {worker: now_s - seat.heard_s for worker, seat in self._seats.items() if not seat.done},
            "health": health,
            "reason": self._reason,
        }

    def _phase(self) -> str:
        if self._start_utc_ns is None:
            return "workers starting"
        if not self._going:
            return "ending"
        if self._counted:
            return "whole run"
        t_ns = max(seat.beat.get("t_ns", 0) for seat in self._seats.values())
        if self._window is None:
            rounds = [seat.beat.get("first_round_ns") for seat in self._seats.values()]
            return "ramp" if None in rounds else "window"  # in open loop there are no rounds
        return "window" if t_ns < self._window.end_ns else "drain"


def _clock() -> dict[str, Any]:
    """Whose clock it is, and what it shows."""
    return {"host": socket.gethostname(), "now_utc_ns": time.time_ns()}


Keep = Callable[[Path, int, Any], str]  # writes a worker's rows into a folder; what went wrong, or nothing


class Wall:
    """Where the boards of one Point after another hang, each by its key; who reports to an earlier one is stopped.

    `keep` writes down what workers without the driver's disk send along.
    """

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep: Keep = keep or (lambda *_: "rows came, and nobody writes them down")
        self._key, self._board = "", Board(Load(), 0, 0.0, True)
        self._folder: Path | None = None
        self._trouble = ""

    def hang(self, key: str, load: Load, workers: int, ramp_s: float, counted: bool, folder: str | None = None) -> None:
        """Put up the board of a Point in the place of the one before; rows go to `folder`."""
        self._key, self._board = key, Board(load, workers, ramp_s, counted)
        self._folder, self._trouble = Path(folder) if folder else None, ""

    def beat(self, key: str, beat: dict[str, Any], rows: Any = None) -> dict[str, Any]:
        """A worker's report to the board of its Point, see Board.beat; `rows` is a rowstream.Parcel."""
        if key == self._key:
            if rows is not None and self._folder is not None:
                self._trouble = self._trouble or self._keep(self._folder, beat["worker"], rows)
            return {**self._board.beat(beat), "kept": not self._trouble}
        return {**_clock(), "go": False, "start_utc_ns": None, "window": None, "kept": False}

    def look(self, key: str) -> dict[str, Any]:
        """The picture of the Point, see Board.look."""
        assert key == self._key
        return {**self._board.look(), "storage": self._trouble}

    def stop(self, key: str, reason: str) -> None:
        """Stop the workers of the Point, see Board.stop."""
        assert key == self._key
        self._board.stop(reason)
