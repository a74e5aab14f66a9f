"""From columns to verdict on made-up loops with known answers: what is not steady is refused, and why."""

import dataclasses

import numpy as np
import pytest
from made_up import Made, S, loop
from rows import health

from loadgen import verdict
from loadgen.facts import facts_of, health_columns
from loadgen.verdict import Facts, Verdict

STREAMS = (1, 2, 8, 16, 64)
NOISE = {"request_spread": 0.05, "ttft_spread": 0.3, "second_spread": 0.005}


def judged(made: Made) -> tuple[Verdict, Facts]:
    """The verdict on a loop that a perfect client drove."""
    cols, window = loop(made)
    beats = health_columns([health(1000 * second) for second in range(1, window.end_ns // S + 2)])
    limits = {"failed_share_max": 0.01, "short_share_max": 0.01}
    facts = facts_of(cols, beats, (window.start_ns, window.end_ns), concurrency=made.streams, **limits)
    return verdict.judge(facts), facts


def broken(made: Made) -> set[str]:
    return {reason.rule for reason in judged(made)[0].reasons}


def drawn(seed: int) -> Made:
    """A steady, staggered loop of whatever kind: alone or crowded, short or long, all alike or not, quick or slow."""
    rng = np.random.default_rng(1000 + seed)
    return Made(
        streams=int(rng.choice([1, 2, 4, 8, 16, 32, 64])),
        tokens=int(rng.choice([32, 64, 128])),
        gap_s=float(rng.choice([0.01, 0.02, 0.05])),
        ttft_s=float(rng.choice([0.05, 0.1, 0.4])),
        tokens_spread=float(rng.choice([0, 0.3, 0.6])),
        request_spread=float(rng.choice([0, 0.02, 0.05, 0.1])),
        ttft_spread=0.3,
        second_spread=float(rng.choice([0, 0.005, 0.01])),
        per_event=int(rng.choice([1, 3])),
        seed=seed,
    )


def test_of_200_steady_loops_at_most_two_are_refused() -> None:
    """Lengths, pauses for prefill and a server that is quicker in one second than in the next are no drift."""
    refused = {seed: rules for seed in range(200) if (rules := broken(drawn(seed)))}
    assert len(refused) <= 2, refused


@pytest.mark.parametrize("noise", [{}, {"request_spread": 0.01, "ttft_spread": 0.1}])
@pytest.mark.parametrize("streams", [8, 16, 64])
def test_a_lockstep_start_is_refused(streams: int, noise: dict[str, float]) -> None:
    """All streams at once, answers of one length: they prefill together for ever, and no warm-up removes it."""
    assert broken(Made(streams=streams, stagger=0.0, **noise)) == {"in_step"}
    assert broken(Made(streams=streams, **noise)) == set()


@pytest.mark.parametrize("durations", [0.5, 1, 2, 5, 16, 64])
@pytest.mark.parametrize("streams", [8, 16, 64])
def test_a_stagger_of_whole_durations_puts_no_streams_in_step(streams: int, durations: float) -> None:
    """It is only as long as it was thought that a request takes; equal steps of one duration were one step."""
    assert broken(Made(streams=streams, stagger=durations)) == set()


@pytest.mark.parametrize("streams", STREAMS)
def test_a_slow_warm_up_is_refused(streams: int) -> None:
    """From a fifth of the full speed, four requests long: every stream has finished one request before it is over."""
    made = Made(streams=streams)

    def speed(t: float) -> float:
        return 1 - 0.8 * np.exp(-t / (4 * made.duration_s))

    assert "steady" in broken(dataclasses.replace(made, speed=speed))
    assert "steady" in broken(dataclasses.replace(made, speed=speed, **NOISE))


@pytest.mark.parametrize("last", [0.75, 1.3])
@pytest.mark.parametrize("streams", STREAMS)
def test_a_drift_is_refused(streams: int, last: float) -> None:
    """A server whose speed changes by a quarter over the window; the spread inside the halves does not excuse it."""
    _, window = loop(Made(streams=streams))

    def speed(t: float) -> float:
        done = (t * S - window.start_ns) / (window.end_ns - window.start_ns)
        return 1 + (last - 1) * min(1.0, max(0.0, done))

    for noise in ({}, NOISE):
        assert broken(Made(streams=streams, speed=speed, **noise)) == {"steady"}


@pytest.mark.parametrize("later", [0.8, 1.25])
@pytest.mark.parametrize("streams", STREAMS)
def test_a_step_in_the_middle_is_refused(streams: int, later: float) -> None:
    """A server that becomes a fifth slower, or quicker, at once."""
    _, window = loop(Made(streams=streams))
    middle_s = (window.start_ns + window.end_ns) / 2 / S

    def speed(t: float) -> float:
        return 1.0 if t < middle_s else later

    for noise in ({}, NOISE):
        assert broken(Made(streams=streams, speed=speed, **noise)) == {"steady"}
