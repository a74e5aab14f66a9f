"""How exact a worker's stamps were, held against those of the null server that wrote the events.

Pure: both sides' stamps are of one host's monotonic clock, so an error is observed, not assumed, and never below 0.
Knows nothing of servers, workers or of how levels are chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.series import NS_PER_S, Columns
from loadgen.stats import quantile

NS_PER_MS = 1e6
BOUND_MS = 1.0  # of the p99 of stamp errors and of TTFT errors ...
FLOOR_TIMES = 2.0  # ... but on a machine where even a nearly idle worker errs by more, so many times of that
WORKER_CPU_MAX = 0.80  # of a core: what a Point's verdict allows too
WAITED_SHARE_MAX = 0.005  # of the time: more, and others on the worker's core are what a p99 shows
LATE_MS = 1.0  # the null server wrote this event so late that it came in a burst: its fault, not the client's ...
LATE_SHARE_MAX = 0.1  # ... and with more of them it did not send what was asked

HELD, MISSED, GAVE_UP, DISTURBED = "held", "missed", "server gave up", "disturbed"


@dataclass(frozen=True)
class Asked:
    """What one try asks of the null server: streams, tokens of each request, and its two times."""

    streams: int
    tokens: int
    first_ms: float
    gap_ms: float
    stagger_s: float

    @property
    def events_per_s(self) -> float:
        """Events a second while every stream is in the middle of an answer."""
        return self.streams / self.gap_ms * 1000


@dataclass(frozen=True)
class Try:
    """One try at a level. Errors in ms: client's stamp less server's, TTFT less the true one, gap less the true one."""

    events_per_s: float  # drawn by the worker while all streams were open
    stamp_p50_ms: float
    stamp_p99_ms: float
    stamp_max_ms: float
    ttft_p99_ms: float
    gap_p99_ms: float
    loop_lag_p99_ms: float
    worker_cpu: float  # of a core, median of its seconds
    waited_share: float  # of the time, in which others had the worker's core
    late_share: float  # of the events that the server wrote more than LATE_MS after they were due

    @property
    def error_ms(self) -> float:
        """The larger one of the two p99 that the bound is for."""
        return max(self.stamp_p99_ms, self.ttft_p99_ms)

    def outcome(self, bound_ms: float) -> str:
        """HELD within the bound, MISSED beyond it; or no fault of the worker's: DISTURBED by others, or GAVE_UP.

        GAVE_UP: the server was too late to send what was asked.
        """
        held = self.error_ms <= bound_ms and self.worker_cpu <= WORKER_CPU_MAX
        if not held and self.waited_share > WAITED_SHARE_MAX:
            return DISTURBED
        if self.late_share > LATE_SHARE_MAX:
            return GAVE_UP
        return HELD if held else MISSED


def bound_ms(idle: Sequence[Try]) -> float:
    """The bound on this machine, from tries in which the worker had little to do: what they err by is not its load.

    The best of them tells: others can only make a try worse.
    """
    floor = min(one.error_ms for one in idle)
    return BOUND_MS if floor <= BOUND_MS else FLOOR_TIMES * floor


def tried(cols: Columns, texts: Mapping[int, str], start_ns: int, asked: Asked, health: Sequence[Mapping]) -> Try:
    """What a try showed: `cols` of its rows in the order of seq, each one's answer, when the worker's clock began.

    Counted is the time between the last first request and the last request of all: every stream is open then.
    """
    begin = start_ns + asked.stagger_s * NS_PER_S
    end = start_ns + float(cols["sent_ns"].max())
    events = _events(cols, texts, start_ns, asked)
    inside = (events["written"] >= begin) & (events["written"] < end)
    late = events["late_ns"] > LATE_MS * NS_PER_MS
    error_ms = events["error_ns"][inside & ~late] / NS_PER_MS
    gaps_ms = events["gap_ns"][inside & ~late] / NS_PER_MS
    first = events["ttft_ns"][inside & ~late] / NS_PER_MS
    watched = [row for row in health if asked.stagger_s * NS_PER_S < row["t_ns"] <= end - start_ns] or health
    return Try(
        events_per_s=float(inside.sum() / ((end - begin) / NS_PER_S)),
        stamp_p50_ms=_quantile(error_ms, 0.5),
        stamp_p99_ms=_quantile(error_ms, 0.99),
        stamp_max_ms=_quantile(error_ms, 1),
        ttft_p99_ms=_quantile(first, 0.99),
        gap_p99_ms=_quantile(np.abs(gaps_ms), 0.99),
        loop_lag_p99_ms=_quantile(np.concatenate([row["loop_lag_ms"] for row in watched]), 0.99),
        worker_cpu=float(np.median([row["cpu_share"] for row in watched])),
        waited_share=float(np.mean([row.get("waited_share") or 0.0 for row in watched])),
        late_share=float(late[inside].mean()),
    )


def _quantile(values: np.ndarray, q: float) -> float:
    """A try of which nothing is known holds no bound."""
    known = quantile(values, q)
    return float("inf") if known is None else known


def _events(cols: Columns, texts: Mapping[int, str], start_ns: int, asked: Asked) -> dict[str, np.ndarray]:
    """Every event end to end; what only a request's first event has, or all but its first, is NaN in the others."""
    offsets = cols["chunk_ns_offsets"]
    parts: list[dict[str, np.ndarray]] = []
    for place, seq in enumerate(cols["seq"]):
        told = np.array(texts[int(seq)].split(), dtype=np.int64)
        received, written = told[0], told[1:]
        stamps = cols["chunk_ns"][offsets[place] : offsets[place + 1]] + start_ns
        error = (stamps - written).astype(np.float64)
        due = received + asked.first_ms * NS_PER_MS + np.arange(len(written)) * asked.gap_ms * NS_PER_MS
        ttft = np.full(len(written), np.nan)
        ttft[0] = (stamps[0] - cols["sent_ns"][place] - start_ns) - (written[0] - received)
        parts.append(
            {
                "written": written,
                "error_ns": error,
                "gap_ns": np.diff(error, prepend=np.nan),
                "ttft_ns": ttft,
                "late_ns": written - due,
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
