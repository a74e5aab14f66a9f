"""Made-up closed loops with known answers: streams that ask again and again a server whose speed over time is chosen.

Every number is drawn from a seed; the window is the one that a real Point would have had.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from loadgen.config import Load
from loadgen.streams import spread
from loadgen.window import End, Window, find

S = 1_000_000_000
GRID_S = 0.02  # the server's speed is constant for so long
TOKENS_MIN = 4


@dataclass(frozen=True)
class Made:
    """How a loop is made. `speed` is the server's at a time (s), 1 as it should be; spreads are standard deviations."""

    streams: int = 16
    tokens: int = 64
    gap_s: float = 0.02
    ttft_s: float = 0.1
    stagger: float = 1.0  # request durations over which first requests are spread
    speed: Callable[[float], float] = lambda _: 1.0
    tokens_spread: float = 0.0  # of the lengths' logarithm
    request_spread: float = 0.0  # how much some requests are quicker than others
    ttft_spread: float = 0.0
    second_spread: float = 0.0  # of the server's speed from second to second ...
    kept: float = 0.7  # ... which keeps so much of it from one to the next
    per_event: int = 1  # tokens
    seed: int = 0

    @property
    def duration_s(self) -> float:
        """Of a request without noise."""
        return self.ttft_s + (self.tokens - self.per_event) * self.gap_s


class Progress:
    """How many seconds of work at full speed the server has done at a time, and when it has done so many."""

    def __init__(self, made: Made, rng: np.random.Generator, end_s: float) -> None:
        self.times = np.arange(0.0, end_s, GRID_S)
        noise, level = np.zeros(int(end_s) + 2), 0.0
        for second in range(len(noise)):
            level = made.kept * level + np.sqrt(1 - made.kept**2) * rng.normal(0, made.second_spread)
            noise[second] = level
        speeds = np.array([made.speed(t) for t in self.times]) * np.exp(noise[self.times.astype(int)])
        self.work = np.concatenate(([0.0], np.cumsum(speeds[:-1] * GRID_S)))

    def after(self, start_s: float, works: np.ndarray) -> np.ndarray:
        """When so much work is done that began at `start_s`."""
        return np.interp(np.interp(start_s, self.times, self.work) + works, self.work, self.times)


def loop(made: Made, load: Load | None = None) -> tuple[dict[str, np.ndarray], Window]:
    """The columns of a closed loop as facts_of takes them, and its window."""
    rng, end_s = np.random.default_rng(made.seed), (60 + made.stagger) * made.duration_s + 60
    progress = Progress(made, rng, end_s)
    free = [(made.stagger * made.duration_s * spread(number), number) for number in range(made.streams)]
    rows: list[tuple[float, np.ndarray]] = []
    ended: set[int] = set()
    ends: list[End] = []
    window, round_ns, stagger_ns = None, None, int(made.stagger * made.duration_s * S)
    while window is None or min(free)[0] * S < window.end_ns:
        sent_s, number = min(free)
        free.remove((sent_s, number))
        stamps = progress.after(sent_s, _works(made, rng))
        assert stamps[-1] < end_s - 1, "the loop was made too short"
        rows.append((sent_s, stamps))
        free.append((float(stamps[-1]) + 1e-4, number))
        ends.append(End(int(sent_s * S), int(stamps[-1] * S), True))
        ended.add(number)
        if len(ended) == made.streams and window is None:
            round_ns = round_ns or max(end.done_ns for end in ends[: made.streams])
            window = find(load or Load(), stagger_ns, round_ns, _by_now(ends, min(free)[0]))
    return _columns(made, rows, window), window


def _by_now(ends: list[End], now_s: float) -> list[End]:
    """Only what has ended by now is known."""
    return [end for end in ends if end.done_ns <= now_s * S]


def _works(made: Made, rng: np.random.Generator) -> np.ndarray:
    """Seconds of work until each event of one request."""
    tokens = made.tokens * np.exp(rng.normal(0, made.tokens_spread)) if made.tokens_spread else made.tokens
    events = max(TOKENS_MIN, round(tokens / made.per_event))
    slow = np.exp(rng.normal(0, made.request_spread))
    ttft = made.ttft_s * np.exp(rng.normal(0, made.ttft_spread))
    return ttft + np.arange(events) * made.gap_s * made.per_event * slow


def _columns(made: Made, rows: list[tuple[float, np.ndarray]], window: Window) -> dict[str, np.ndarray]:
    counts = np.array([len(stamps) for _, stamps in rows])
    sent = np.array([int(sent_s * S) for sent_s, _ in rows])
    done = np.array([int(stamps[-1] * S) for _, stamps in rows])
    first = np.array([int(stamps[0] * S) for _, stamps in rows])
    fill = dict.fromkeys(("worker", "refill_ns", "cached_tokens", "short"), np.zeros(len(rows)))
    return {
        **fill,
        "rate": np.full(len(rows), np.nan),
        "short": np.zeros(len(rows), bool),
        "outcome": np.full(len(rows), "ok", object),
        "error": np.full(len(rows), None, object),
        "token_source": np.full(len(rows), "usage", object),
        "sent_ns": sent,
        "planned_ns": sent,
        "done_ns": done,
        "first_token_ns": first,
        "last_token_ns": done,
        "in_window": (sent >= window.start_ns) & (sent < window.end_ns),
        "prompt_tokens": np.full(len(rows), 20.0),
        "output_tokens": counts * float(made.per_event),
        "reads": counts,
        "chunk_ns": np.concatenate([(stamps * S).astype(np.int64) for _, stamps in rows]),
        "chunk_ns_offsets": np.concatenate(([0], np.cumsum(counts))),
        "chunk_tokens": np.full(counts.sum(), float(made.per_event)),
        "chunk_tokens_offsets": np.concatenate(([0], np.cumsum(counts))),
    }
