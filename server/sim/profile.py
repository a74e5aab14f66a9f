"""Step time, acceptance and closed-form throughput of the simulated hardware, from a profile in YAML.

Pure arithmetic: it knows no process, socket, clock or flag.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import yaml

SHIPPED = Path(__file__).with_name("profile.yaml")
DRAW_STRATA = 32  # Draws come in shuffled rounds of this many, so that one answer does not stray from its kind's mean.
BISECTIONS = 60  # Halvings of [0, 1] when solving for an acceptance probability: beyond a double's precision.


class ProfileError(ValueError):
    """A profile that cannot be used; the message says what to change."""


@dataclass(frozen=True)
class Level:
    """Output tokens/s of the whole server with `batch` streams; `interpolated` if nobody measured it."""

    batch: int
    tokens_per_s: float
    interpolated: bool


@dataclass(frozen=True)
class Mode:
    """One curve: its levels by rising batch, and the table of accept lengths it uses (None: no speculation)."""

    name: str
    accept: str | None
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Profile:
    """Everything known about the simulated hardware. `tokens` and `prompt_tokens` are those of the measurement."""

    tokens: int
    prompt_tokens: int
    prefill_base_s: float
    prefill_per_token_s: float
    draft_steps: int
    idle_draft_factor: float
    rested_draft_factor: float
    diverse: tuple[str, ...]
    accept_length: Mapping[str, Mapping[str, float]]
    modes: Mapping[str, Mode]


def parse(text: str) -> Profile:
    """Read a profile from YAML text. Raises ProfileError naming what is missing or wrong."""
    try:
        raw = yaml.safe_load(text)
        modes = {name: _mode(name, body) for name, body in raw["modes"].items()}
        profile = Profile(
            tokens=int(raw["tokens"]),
            prompt_tokens=int(raw["prompt_tokens"]),
            prefill_base_s=float(raw["prefill_base_ms"]) / 1e3,
            prefill_per_token_s=float(raw["prefill_per_token_ms"]) / 1e3,
            draft_steps=int(raw["draft_steps"]),
            idle_draft_factor=float(raw["idle_draft_factor"]),
            rested_draft_factor=float(raw.get("rested_draft_factor", raw["idle_draft_factor"])),
            diverse=tuple(raw["diverse"]),
            accept_length={name: dict(table) for name, table in raw["accept_length"].items()},
            modes=modes,
        )
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ProfileError(
            f"The simulator's profile cannot be read: {error!r}. Compare it with profile.yaml."
        ) from error
    _check(profile)
    return profile


def _mode(name: str, body: Mapping[str, Any]) -> Mode:
    levels = [Level(int(x["batch"]), float(x["tokens_per_s"]), bool(x.get("interpolated"))) for x in body["levels"]]
    return Mode(name, body["accept"], tuple(sorted(levels, key=lambda level: level.batch)))


def _check(profile: Profile) -> None:
    for mode in profile.modes.values():
        if mode.accept is not None and mode.accept not in profile.accept_length:
            raise ProfileError(f"Mode {mode.name} names the accept table {mode.accept!r}, which the profile lacks.")
        for level in mode.levels:
            if level_step_s(profile, mode, level) <= 0:
                raise ProfileError(
                    f"Mode {mode.name} at batch {level.batch}: {level.tokens_per_s} tok/s leave no time for decoding "
                    "after the prefills. Lower tokens_per_s or prefill_base_ms."
                )


def prefill_s(profile: Profile, new_tokens: int) -> float:
    """Seconds the engine spends on one prompt with this many tokens outside the cache."""
    return profile.prefill_base_s + profile.prefill_per_token_s * new_tokens


def accept_mean(profile: Profile, table: str | None, kind: str) -> float:
    """Tokens a decode step yields on average for prompts of this kind; an unknown kind has the default's."""
    if table is None:
        return 1.0
    lengths = profile.accept_length[table]
    return lengths.get(kind, lengths["default"])


def steps_of_answer(profile: Profile, table: str | None, kinds: Sequence[str]) -> float:
    """Decode steps of one answer: the mean over these kinds in equal shares. The first token comes with the prefill."""
    per_token = [1.0 / accept_mean(profile, table, kind) for kind in kinds]
    return (profile.tokens - 1) * sum(per_token) / len(per_token)


def level_step_s(profile: Profile, mode: Mode, level: Level) -> float:
    """The decode step in seconds with which the closed form yields the level's tokens/s."""
    round_s = profile.tokens * level.batch / level.tokens_per_s
    prefills_s = level.batch * prefill_s(profile, profile.prompt_tokens)
    return (round_s - prefills_s) / steps_of_answer(profile, mode.accept, profile.diverse)


def step_s(profile: Profile, mode: str, batch: int) -> float:
    """Seconds of one decode step: log-log between levels, proportional to the batch beyond the last."""
    curve = profile.modes[mode]
    known = [(level.batch, level_step_s(profile, curve, level)) for level in curve.levels]
    if batch <= known[0][0]:
        return known[0][1]
    for (low, low_s), (high, high_s) in pairwise(known):
        if batch <= high:
            share = math.log(batch / low) / math.log(high / low)
            return math.exp(math.log(low_s) * (1 - share) + math.log(high_s) * share)
    return known[-1][1] * batch / known[-1][0]


def throughput(
    profile: Profile,
    mode: str,
    concurrency: int,
    kinds: Sequence[str] | None = None,
    max_running: int | None = None,
) -> float:
    """Output tokens/s in closed form: N c / (S step(c) + c prefill), with the batch held at `max_running`.

    `kinds` come in equal shares; None means the profile's diverse ones.
    """
    batch = min(concurrency, max_running) if max_running else concurrency
    steps = steps_of_answer(profile, profile.modes[mode].accept, kinds or profile.diverse)
    round_s = steps * step_s(profile, mode, batch) + batch * prefill_s(profile, profile.prompt_tokens)
    return profile.tokens * batch / round_s


def measured(profile: Profile, mode: str, batch: int) -> bool:
    """True where the profile holds a measured figure for exactly this mode and batch."""
    return any(level.batch == batch and not level.interpolated for level in profile.modes[mode].levels)


def acceptance_probability(mean: float, draft_steps: int) -> float:
    """The chance p that a draft token is accepted, where 1 + p + p^2 + ... + p^draft_steps = mean."""
    if not 1.0 <= mean <= draft_steps + 1:
        raise ProfileError(f"Accept length {mean} lies outside [1, {draft_steps + 1}]. Change it in accept_length.")
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if sum(middle**k for k in range(draft_steps + 1)) < mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def accepted_counts(probability: float, draft_steps: int, seed: int) -> Iterator[int]:
    """Endless draws of accepted drafts, one a verify step, from a chain cut at draft_steps. Same seed, same draws."""
    thresholds = [probability**k for k in range(1, draft_steps + 1)]
    random = Random(seed)
    while True:
        draws = [(stratum + random.random()) / DRAW_STRATA for stratum in range(DRAW_STRATA)]
        random.shuffle(draws)
        for draw in draws:
            yield sum(draw < threshold for threshold in thresholds)
