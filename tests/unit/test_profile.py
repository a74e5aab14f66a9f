"""The shipped profile against the measured tables, and the engine in virtual time against the closed form."""

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import server.sim
from server.sim import flags, profile
from server.sim.answer import pages
from server.sim.engine import Engine, Generation, Pace
from server.sim.settings import Settings, resolve

SHIPPED = profile.parse((Path(server.sim.__file__).parent / "profile.yaml").read_text())
PROMPT_TOKENS = SHIPPED.prompt_tokens

# Output tok/s by concurrency: baseline and topk 4 (tree, no overlap), first session.
FIRST = {
    1: (92.6, 77.5),
    2: (159.7, 125.1),
    5: (292.5, 183.2),
    10: (457.2, 239.6),
    30: (711.0, 299.5),
    70: (784.2, 337.7),
    100: (761.6, 338.8),
    250: (772.1, 340.9),
}
# Baseline and topk 1 (chain, overlap), second session.
SECOND = {1: (92.7, 86.8), 30: (689.4, 759.3), 100: (773.1, 775.0), 250: (718.1, 754.4)}


@pytest.mark.parametrize("concurrency", FIRST)
def test_tree_over_baseline_is_the_first_table_s(concurrency: int) -> None:
    """Without a run, the profile's ratio of the tree over the baseline is the measured one within 0.005."""
    baseline, tree = FIRST[concurrency]
    told = profile.throughput(SHIPPED, "tree_sync", concurrency) / profile.throughput(SHIPPED, "baseline", concurrency)
    assert told == pytest.approx(tree / baseline, abs=0.005)
    assert profile.throughput(SHIPPED, "baseline", concurrency) == pytest.approx(baseline, rel=1e-6)
    assert profile.measured(SHIPPED, "tree_sync", concurrency)


@pytest.mark.parametrize("concurrency", SECOND)
def test_chain_over_baseline_is_the_second_table_s(concurrency: int) -> None:
    """Without a run, the profile's ratio of the chain over the baseline is the measured one within 0.005."""
    baseline, chain = SECOND[concurrency]
    told = profile.throughput(SHIPPED, "chain_overlap", concurrency) / profile.throughput(
        SHIPPED, "baseline", concurrency
    )
    assert told == pytest.approx(chain / baseline, abs=0.005)
    assert profile.measured(SHIPPED, "chain_overlap", concurrency)


def test_a_fixed_prompt_flatters_fusion() -> None:
    """One stream of one fixed prompt beats the baseline where diverse prompts lose: 96.1 against 92.6 tok/s."""
    baseline = profile.throughput(SHIPPED, "baseline", 1)
    fixed = profile.throughput(SHIPPED, "tree_sync_fusion", 1, kinds=["fixed"])
    assert fixed / baseline == pytest.approx(96.1 / 92.6, abs=0.005)
    assert profile.throughput(SHIPPED, "tree_sync_fusion", 1) / baseline == pytest.approx(0.86, abs=0.005)


@pytest.mark.parametrize("mode", sorted(SHIPPED.modes))
def test_levels_without_a_figure_are_marked(mode: str) -> None:
    """Every mode has a level at each measured concurrency, and only measured figures go unmarked."""
    measured = {"baseline": set(FIRST), "tree_sync": set(FIRST), "chain_overlap": set(SECOND)}.get(mode, set())
    levels = SHIPPED.modes[mode].levels
    assert [level.batch for level in levels] == sorted(FIRST)
    assert {level.batch for level in levels if not level.interpolated} == measured


@pytest.mark.parametrize("mode", sorted(SHIPPED.modes))
def test_step_time_between_and_beyond_levels(mode: str) -> None:
    """A step between two levels lies between theirs; beyond the last it grows with the batch."""
    for low, high in ((10, 30), (100, 250)):
        inside = profile.step_s(SHIPPED, mode, (low + high) // 2)
        ends = sorted((profile.step_s(SHIPPED, mode, low), profile.step_s(SHIPPED, mode, high)))
        assert ends[0] < inside < ends[1]
    assert profile.step_s(SHIPPED, mode, 500) == pytest.approx(2 * profile.step_s(SHIPPED, mode, 250))


@pytest.mark.parametrize("mean", [1.0, 1.95, 2.3, 2.8063, 4.0])
def test_draws_have_the_asked_mean(mean: float) -> None:
    """Accepted drafts average the accept length less one, never exceed the steps, and repeat with their seed."""
    probability = profile.acceptance_probability(mean, 3)

    def draw(seed: int) -> list[int]:
        draws = profile.accepted_counts(probability, 3, seed)
        return [next(draws) for _ in range(4000)]

    assert sum(draw(7)) / 4000 == pytest.approx(mean - 1, abs=0.02)
    assert set(draw(7)) <= {0, 1, 2, 3}
    assert draw(7) == draw(7)
    assert 1.0 < mean < 4.0 or draw(7) == draw(8)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tokens: 512", "KeyError"),
        ("[1, 2", "profile.yaml"),
        ((Path(server.sim.__file__).parent / "profile.yaml").read_text().replace("92.6}", "99999}"), "baseline"),
    ],
)
def test_bad_profile_is_refused(text: str, part: str) -> None:
    """A profile with something missing, no YAML, or impossible rates is refused with its place named."""
    with pytest.raises(profile.ProfileError, match=part):
        profile.parse(text)


def settings_for(mode: str, *more: str) -> Settings:
    """Settings whose curve is `mode`, in hardware time and without noise."""
    tree = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4"
    chain = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1"
    argv = {"baseline": "", "tree_sync": tree, "chain_overlap": chain}[mode].split()
    given: argparse.Namespace = flags.build_parser("0.5.9").parse_args(
        [*argv, "--sim-speed", "1", "--sim-noise", "0", *more]
    )
    environ = {"SGLANG_ENABLE_SPEC_V2": "1"} if mode == "chain_overlap" else {}
    settings = resolve(given, environ, SHIPPED, {})
    assert settings.curve == mode
    return settings


def engine_for(mode: str, max_running: int = 256, cache: bool = False) -> Engine:
    settings = settings_for(mode)
    return Engine(
        Pace(settings), max_running=max_running, prefill_tokens_max=8192, cache=cache, draft_steps=settings.draft_steps
    )


def requests() -> Iterator[Generation]:
    """Requests of the measurement: 512 tokens each, the eight kinds in turn."""
    for id in count():
        kind = SHIPPED.diverse[id % len(SHIPPED.diverse)]
        yield Generation(id, PROMPT_TOKENS, SHIPPED.tokens, kind, key=random.Random(id).randrange(2**40), arrived_ns=0)


def closed_loop_tokens_per_s(engine: Engine, concurrency: int, duration_s: float) -> float:
    """Tokens a second over three request durations, after one and a half of warm-up with staggered starts."""
    more = requests()
    for place in range(concurrency):
        first = next(more)
        first.arrived_ns = round(place / concurrency * duration_s * 1e9)
        engine.add(first)
    start_ns, end_ns, tokens = round(1.5 * duration_s * 1e9), round(4.5 * duration_s * 1e9), 0
    while engine.clock_ns < end_ns:
        step = engine.step()
        if start_ns <= step.at_ns < end_ns:
            tokens += sum(step.counts)
        for _ in step.finished:
            again = next(more)
            again.arrived_ns = step.at_ns
            engine.add(again)
    return tokens / ((end_ns - start_ns) / 1e9)


@pytest.mark.parametrize("mode", ["baseline", "tree_sync", "chain_overlap"])
@pytest.mark.parametrize("concurrency", [1, 8, 30, 100])
def test_engine_in_closed_loop_yields_the_closed_form(mode: str, concurrency: int) -> None:
    """The engine's throughput over several request durations is the closed form's within 2 %."""
    told = profile.throughput(SHIPPED, mode, concurrency)
    # One stream serves one kind at a time, so it must run through whole rounds of the eight.
    rounds = 16 if concurrency == 1 else 1
    duration_s = rounds * SHIPPED.tokens * concurrency / told
    assert closed_loop_tokens_per_s(engine_for(mode), concurrency, duration_s) == pytest.approx(told, rel=0.02)


def test_running_cap_queues_the_rest() -> None:
    """Beyond the cap requests wait: the throughput is the capped batch's, whatever the concurrency."""
    told = profile.throughput(SHIPPED, "tree_sync", 100, max_running=48)
    measured = closed_loop_tokens_per_s(engine_for("tree_sync", max_running=48), 100, SHIPPED.tokens * 100 / told)
    assert measured == pytest.approx(told, rel=0.02)
    assert told < profile.throughput(SHIPPED, "tree_sync", 100)


def run_out(engine: Engine) -> dict[int, int]:
    """Step until idle; tokens by request."""
    tokens: dict[int, int] = {}
    while engine.due_ns is not None:
        step = engine.step()
        for id, gained in zip(step.ids, step.counts, strict=True):
            tokens[id] = tokens.get(id, 0) + gained
    return tokens


def generation(id: int, total: int = 10, key: int = 1, arrived_ns: int = 0) -> Generation:
    return Generation(id, 100, total, "code", key, arrived_ns)


@pytest.mark.parametrize("mode", ["baseline", "tree_sync", "chain_overlap"])
def test_every_request_gets_exactly_its_tokens(mode: str) -> None:
    """No verify step hands out more than is left, and counts of steps and tokens agree."""
    engine = engine_for(mode)
    made = [generation(id, total=1 + id * 7, key=id) for id in range(20)]
    for one in made:
        engine.add(one)
    assert run_out(engine) == {id: 1 + id * 7 for id in range(20)}
    if mode != "baseline":
        assert all(g.total - 1 == g.verify_steps + g.accepted == sum(g.histogram) + g.accepted for g in made)


def test_same_prompt_same_steps() -> None:
    """The same prompt takes the same verify steps again, in another batch too."""
    engine = engine_for("tree_sync")
    first, other, again = generation(1, 300, key=5), generation(2, 300, key=6), generation(3, 300, key=5)
    for one in (first, other, again):
        engine.add(one)
    run_out(engine)
    assert first.verify_steps == again.verify_steps
    assert first.histogram == again.histogram != other.histogram


def test_a_late_owner_gets_the_same_times() -> None:
    """Steps lie on absolute times: a request that arrives later joins then, however late the steps are taken."""
    engine = engine_for("baseline")
    engine.add(generation(1, total=50, arrived_ns=1_000))
    engine.add(generation(2, total=50, key=2, arrived_ns=200_000_000))
    steps = []
    while engine.due_ns is not None:
        steps.append(engine.step())
    firsts = {id: next(s.at_ns for s in steps if id in s.ids) for id in (1, 2)}
    assert firsts[1] == 1_000 + 50_000_000
    assert firsts[2] > 250_000_000
    assert [s.at_ns for s in steps] == sorted({s.at_ns for s in steps})


def test_prefix_cache_and_flush() -> None:
    """A repeated prompt hits all but one token until the cache is flushed, which a pending request forbids."""
    engine = engine_for("baseline", cache=True)
    cached = []
    for id in range(2):
        one = generation(id)
        engine.add(one)
        assert not engine.flush()
        run_out(engine)
        cached.append(one.cached)
    assert engine.flush()
    third = generation(3)
    engine.add(third)
    run_out(engine)
    assert [*cached, third.cached] == [0, 99, 0]


def test_a_prompt_that_begins_as_another_ended_is_known_so_far() -> None:
    """Whole pages of prompt and answer are found again; what differs from there on is not."""
    engine = engine_for("baseline", cache=True)
    turns = ["q" * 600, "q" * 600 + "a" * 400 + "q" * 600, "p" + "q" * 600]
    known = []
    for id, (prompt, answer) in enumerate(zip(turns, ["a" * 400, "", ""], strict=True)):
        one = replace(generation(id), prompt_tokens=len(prompt) // 4, key=id, pages=pages(prompt + answer))
        engine.add(one)
        run_out(engine)
        known.append(one.cached)
    assert known == [0, 192, 0]  # of 250 tokens that were said before, the whole pages


def test_aborted_requests_get_nothing_more() -> None:
    """An abort takes a request out of the queue, the prefill in work or the batch."""
    engine = engine_for("baseline", max_running=2)
    for id in range(4):
        engine.add(generation(id, total=30, key=id))
    engine.abort(0)
    engine.step()
    engine.step()
    engine.abort(1)
    engine.abort(2)
    assert set(run_out(engine)) == {3}
    assert not engine.busy
