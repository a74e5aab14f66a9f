"""The batching engine on a step clock: queue, admission, prefill, decode. Times are absolute nanoseconds.

Pure: it never reads a clock. Whoever owns it calls `step` when the clock has passed `due_ns`; a virtual one: at once.
It must not know of HTTP, processes or text.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from server.sim.faults import seconds
from server.sim.profile import accept_mean, acceptance_probability, accepted_counts, prefill_s, step_s
from server.sim.settings import Settings, steps_at

CACHED_PAGES_MAX = 1_000_000  # Pages the prefix cache remembers: bounds memory, not behaviour.
PAGE_TOKENS = 64  # A prompt's beginning is found to so many tokens.


@dataclass(slots=True)
class Generation:
    """One request inside the engine. `key` stands for the prompt's text, `total` is how many tokens it will get.

    `pages` stand for the beginnings of prompt and answer, page by page.
    """

    id: int
    prompt_tokens: int
    total: int
    kind: str
    key: int
    arrived_ns: int
    pages: list[int] = field(default_factory=list)
    cached: int = 0
    done: int = 0
    verify_steps: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    draws: Iterator[int] | None = None


@dataclass(slots=True)
class Step:
    """What one unit of work yielded at `at_ns`: tokens by request, and the requests that are thereby finished."""

    prefill: bool
    at_ns: int
    ids: list[int]
    counts: list[int]
    batch: list[Generation]
    finished: list[Generation]


class Pace:
    """How long units take and what verify steps accept, for one launch's settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ns_per_s = 1e9 * settings.launch_factor / settings.speed
        self._decode_ns: dict[int, int] = {}
        self._probability: dict[str, float] = {}
        self._slower_per_s = seconds(settings.faults, "slow_down") or 0.0
        self._begun_ns: int | None = None  # of the first step

    def prefill_ns(self, new_tokens: int) -> int:
        """One prompt's share of a prefill."""
        return round(prefill_s(self._settings.profile, new_tokens) * self._ns_per_s)

    def decode_ns(self, batch: int, at_ns: int) -> int:
        """One decode step of this batch that begins at `at_ns`."""
        if batch not in self._decode_ns:
            self._decode_ns[batch] = max(1, round(self._step_s(batch) * self._ns_per_s))
        if not self._slower_per_s:
            return self._decode_ns[batch]
        self._begun_ns = at_ns if self._begun_ns is None else self._begun_ns
        return round(self._decode_ns[batch] * (1 + self._slower_per_s * (at_ns - self._begun_ns) / 1e9))

    def _step_s(self, batch: int) -> float:
        profile = self._settings.profile
        full = step_s(profile, self._settings.curve, batch)
        if not self._settings.adaptive:
            return full
        rests = self._settings.draft_rests
        idle = step_s(profile, "baseline", batch) * (
            profile.rested_draft_factor if rests else profile.idle_draft_factor
        )
        share = min(1.0, self.draft_steps(batch) / profile.draft_steps)
        return idle + (full - idle) * share

    def draft_steps(self, batch: int) -> int:
        """The most drafts a verify step of this batch can accept."""
        return steps_at(self._settings, batch)

    def draws(self, generation: Generation) -> Iterator[int] | None:
        """Accepted drafts of this request, step by step; None without speculation."""
        if not self._settings.speculates:
            return None
        if generation.kind not in self._probability:
            profile = self._settings.profile
            mean = accept_mean(profile, profile.modes[self._settings.curve].accept, generation.kind)
            self._probability[generation.kind] = acceptance_probability(mean, profile.draft_steps)
        return accepted_counts(self._probability[generation.kind], self._settings.draft_steps, generation.key)


class Engine:
    """Requests in, steps out. Prefills go before decoding, as in SGLang; a unit once begun runs to its end."""

    def __init__(self, pace: Pace, *, max_running: int, prefill_tokens_max: int, cache: bool, draft_steps: int) -> None:
        self.pace = pace
        self.max_running = max_running
        self.prefill_tokens_max = prefill_tokens_max
        self.draft_steps = draft_steps
        self.waiting: deque[Generation] = deque()
        self.running: dict[int, Generation] = {}
        self.prefilling: list[Generation] = []
        self.cache: dict[int, None] | None = {} if cache else None
        self.clock_ns = 0
        self.due_ns: int | None = None

    @property
    def busy(self) -> bool:
        """Whether any request is queued or in work."""
        return bool(self.waiting or self.running or self.prefilling)

    def used_tokens(self) -> int:
        """Tokens held in the KV cache by running requests."""
        return sum(g.prompt_tokens + g.done for g in self.running.values())

    def add(self, generation: Generation) -> None:
        """Queue a request; an idle engine begins at its arrival."""
        generation.draws = self.pace.draws(generation)
        if generation.draws is not None:
            generation.histogram = [0] * (self.draft_steps + 1)
        self.waiting.append(generation)
        if self.due_ns is None:
            self._begin()

    def abort(self, id: int) -> None:
        """Forget a request wherever it is; the unit in work keeps its length."""
        self.running.pop(id, None)
        self.waiting = deque(g for g in self.waiting if g.id != id)
        self.prefilling = [g for g in self.prefilling if g.id != id]

    def flush(self) -> bool:
        """Empty the prefix cache; refused (False) while requests are pending."""
        if self.busy:
            return False
        if self.cache is not None:
            self.cache.clear()
        return True

    def shift(self, by_ns: int) -> None:
        """Lose time: the unit in work and all after it come this much later."""
        self.clock_ns += by_ns
        if self.due_ns is not None:
            self.due_ns += by_ns

    def step(self) -> Step:
        """Finish the unit in work at `due_ns` and begin the next."""
        assert self.due_ns is not None, "an idle engine has no step"
        self.clock_ns = self.due_ns
        step = self._finish_prefill() if self.prefilling else self._finish_decode()
        for generation in step.finished:
            self.running.pop(generation.id, None)
            self._remember(generation.pages)
        self._begin()
        return step

    def _begin(self) -> None:
        self.due_ns = None
        if not self.running and self.waiting:
            self.clock_ns = max(self.clock_ns, self.waiting[0].arrived_ns)
        self.prefilling = self._admit()
        if self.prefilling:
            new_tokens = (g.prompt_tokens - g.cached for g in self.prefilling)
            self.due_ns = self.clock_ns + sum(map(self.pace.prefill_ns, new_tokens))
        elif self.running:
            self.due_ns = self.clock_ns + self.pace.decode_ns(len(self.running), self.clock_ns)

    def _admit(self) -> list[Generation]:
        admitted: list[Generation] = []
        tokens = 0
        while self.waiting and len(self.running) + len(admitted) < self.max_running:
            first = self.waiting[0]
            # Prompts that arrived while a late wake-up is being made up for must wait for the clock to reach them.
            if first.arrived_ns > self.clock_ns:
                break
            first.cached = self._known(first)
            tokens += first.prompt_tokens - first.cached
            if admitted and tokens > self.prefill_tokens_max:
                break
            admitted.append(self.waiting.popleft())
        return admitted

    def _finish_prefill(self) -> Step:
        batch, self.prefilling = self.prefilling, []
        for generation in batch:
            generation.done = 1
            self.running[generation.id] = generation
            self._remember([generation.key, *generation.pages[: generation.prompt_tokens // PAGE_TOKENS]])
        finished = [g for g in batch if g.total <= 1]
        return Step(True, self.clock_ns, [g.id for g in batch], [1] * len(batch), batch, finished)

    def _known(self, generation: Generation) -> int:
        """Tokens of its prompt that the cache holds; the last one is always worked out anew."""
        if self.cache is None:
            return 0
        if generation.key in self.cache:
            return generation.prompt_tokens - 1
        known = itertools.takewhile(
            self.cache.__contains__, generation.pages[: generation.prompt_tokens // PAGE_TOKENS]
        )
        return min(PAGE_TOKENS * sum(1 for _ in known), generation.prompt_tokens - 1)

    def _remember(self, pages: list[int]) -> None:
        if self.cache is None:
            return
        self.cache.update(dict.fromkeys(pages))
        while len(self.cache) > CACHED_PAGES_MAX:
            self.cache.pop(next(iter(self.cache)))

    def _finish_decode(self) -> Step:
        batch = list(self.running.values())
        limit = self.pace.draft_steps(len(batch)) if batch and batch[0].draws is not None else 0
        counts = [_advance(g, limit) for g in batch]
        finished = [g for g in batch if g.done >= g.total]
        return Step(False, self.clock_ns, [g.id for g in batch], counts, batch, finished)


def _advance(generation: Generation, limit: int) -> int:
    left = generation.total - generation.done
    if generation.draws is None:
        generation.done += 1
        return 1
    drafted = min(next(generation.draws), limit)
    gained = min(1 + drafted, left)
    generation.verify_steps += 1
    generation.accepted += gained - 1
    generation.histogram[gained - 1] += 1
    generation.done += gained
    return gained
