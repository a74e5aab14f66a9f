"""The rules of open loop: was the load sent as planned, and did the server keep up with it."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from rows import NS_PER_MS, row
from test_verdict import GOOD, arrays

from loadgen import verdict
from loadgen.arrivals import Process
from loadgen.facts import facts_of, health_columns
from loadgen.openloop import OpenFacts, burst, open_facts, rate_per_s
from loadgen.summary import caveats, summarize

S = 1_000_000_000
CAME = {"rate": 6.0, "concurrency": None, "refill_ns": None}


def asked(seq: int, at_s: float, waits_s: float = 0.1, lasts_s: float = 1.0, **changes: Any) -> dict[str, Any]:
    """A request that came at `at_s` and whose first token took `waits_s`."""
    first, last = (round((at_s + after) * 1000) * NS_PER_MS for after in (waits_s, waits_s + lasts_s))
    return row(seq, at_s * 1000, chunk_ns=[first, last], output_tokens=2, **{**CAME, **changes})


def of(rows: list[dict[str, Any]], window_s: tuple[float, float] = (2, 32)) -> OpenFacts:
    start, end = (second * S for second in window_s)
    return open_facts(arrays(rows, (start, end)), start, end, False)


def times_s(rate: float, until_s: float, seed: int) -> list[float]:
    came = islice(Process(rate, "poisson", None, seed).times_ns(), int(2 * rate * until_s))
    return [at / S for at in came if at < until_s * S]


def queued(rate: float, serves_per_s: float, seed: int = 1) -> list[dict[str, Any]]:
    """Poisson arrivals at a server that lets one request in every 1 / `serves_per_s` seconds."""
    rows, free_s = [], 0.0
    for seq, at_s in enumerate(times_s(rate, 33, seed)):
        free_s = max(free_s, at_s) + 1 / serves_per_s
        rows.append(asked(seq, at_s, waits_s=free_s - at_s))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_a_server_that_keeps_up_is_never_told_overloaded(seed: int) -> None:
    """Six a second at a server of fifteen: no seed of chance looks like overload."""
    found = of(queued(6, 15, seed))
    assert not found.growing
    assert found.offered_per_s == found.achieved_per_s == pytest.approx(6, rel=0.4)
    assert found.lateness_p99_ms == 0


@pytest.mark.parametrize("seed", range(5))
def test_overload_is_told_as_such(seed: int) -> None:
    """Twenty a second at a server of fifteen: a quarter piles up; the verdict says so, and nothing else."""
    cols = arrays(queued(20, 15, seed), (2 * S, 32 * S))
    facts = facts_of(
        cols, health_columns([]), (2 * S, 32 * S), concurrency=None, failed_share_max=0.01, short_share_max=0.01
    )
    assert facts.open is not None
    assert facts.open.piled_up == pytest.approx(0.25, abs=0.1)
    reasons = [reason for reason in verdict.judge(facts).reasons if reason.advice.find("health") < 0]
    assert [reason.rule for reason in reasons] == ["overload"]
    assert "lower load.rate (its tokens were those of 1" in reasons[0].advice
    numbers = summarize(cols, 2 * S, 32 * S, concurrency=None, gpus=None, whole_run=False, overloaded=True)
    for name in ("ttft_ms", "ttft_planned_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms", "e2e_planned_ms", "lateness_ms"):
        assert (numbers[name]["p50"], numbers[name]["mean"], numbers[name]["n"]) == (None, None, 0)
    assert numbers["by_kind"]["code"]["ttft_ms"]["p50"] is None
    assert numbers["output_tokens_per_s"] > 0


def test_stalls_are_no_overload() -> None:
    """Two seconds in every twenty: in-flight rises and falls again; who comes meanwhile waits, and that is shown."""
    rows = [asked(seq, at, 0.1 + (2 - at % 20 if at % 20 < 2 else 0)) for seq, at in enumerate(times_s(6, 82, 3))]
    assert not of(rows, (2, 82)).growing


def test_who_waited_for_a_place_is_no_delay_of_the_client() -> None:
    """Lateness is of the others; how many waited is told beside the rate that came."""
    rows = [asked(i, 2 + i / 10) for i in range(200)]
    waited = [asked(200 + i, 22 + i / 10, planned_ns=round((22 + i / 20) * S), refill_ns=100) for i in range(80)]
    found = of([*rows, *waited])
    assert (found.waited, found.lateness_p99_ms) == (80, 0)
    assert found.achieved_per_s == found.offered_per_s == pytest.approx(280 / 30)


def test_overload_of_the_places_is_told_as_such() -> None:
    """What piles up before load.max_in_flight may be the bound's doing, not the server's."""
    rows = [{**one, "refill_ns": 100} for one in queued(20, 15, 1)]
    (told,) = [one for one in verdict.judge(replace(GOOD, open=of(rows))).reasons if one.rule == "overload"]
    assert "can serve with load.max_in_flight requests at once" in told.advice
    assert "raise load.max_in_flight or lower load.rate (its tokens were" in told.advice


def test_a_slow_client_is_not_the_servers_overload() -> None:
    """A thousand sent of three thousand a second, each answered in 3 ms: late, and no more than that."""
    rows = [asked(i, i / 1000, 0.003, 0.001, planned_ns=i * S // 3000) for i in range(6000)]
    never = {"sent_ns": None, "outcome": "unsent", "chunk_ns": [], "done_ns": None, "output_tokens": None}
    left = [row(6000 + i, planned_ns=2 * S + i * S // 3000, **{**CAME, **never}) for i in range(12_000)]
    found = of([*rows, *left], (1, 6))
    assert not found.growing
    told = {one.rule: one.advice for one in verdict.judge(replace(GOOD, open=found)).reasons}
    assert set(told) == {"rate_held", "lateness_p99"}
    assert "max_in_flight" not in told["rate_held"]


@pytest.mark.parametrize(("unsent", "ok"), [(0, True), (1, True), (2, True), (4, False)])
def test_the_rate_is_held_or_not(unsent: int, ok: bool) -> None:
    """More than one in a hundred not sent is another rate than was asked for; one may fall over the edge."""
    rows = [asked(i, 2 + i / 10) for i in range(280)]
    never = {"sent_ns": None, "outcome": "unsent", "chunk_ns": [], "done_ns": None, "output_tokens": None}
    left = [row(300 + i, planned_ns=31 * S, **{**CAME, **never}) for i in range(unsent)]
    facts = replace(GOOD, open=of([*rows, *left]))
    assert ("rate_held" not in {reason.rule for reason in verdict.judge(facts).reasons}) is ok


@pytest.mark.parametrize("whole_run", [False, True])
def test_a_refused_connection_is_no_rate_that_was_not_held(whole_run: bool) -> None:
    """The client tried in time; that the server took none of a tenth of them is the failed share's to tell."""
    rows = [asked(i, 2 + i / 10) for i in range(300)]
    refused = {"sent_ns": None, "outcome": "connect", "chunk_ns": [], "done_ns": 3 * S, "output_tokens": None}
    rows[::10] = [row(i, planned_ns=round((2 + i / 10) * S), **{**CAME, **refused}) for i in range(0, 300, 10)]
    found = open_facts(arrays(rows, (2 * S, 32 * S)), 2 * S, 32 * S, whole_run)
    assert found.achieved_per_s == pytest.approx(10, rel=0.01)
    assert not verdict.judge(replace(GOOD, open=found, whole_run=whole_run)).reasons


def test_a_whole_run_is_judged_by_its_spans() -> None:
    """Sent over twice the time that was planned: half the rate."""
    rows = [asked(i, i / 5, planned_ns=i * S // 10) for i in range(50)]
    found = open_facts(arrays(rows, (0, 0)), 0, 20 * S, True)
    assert (found.offered_per_s, found.achieved_per_s) == (pytest.approx(10), pytest.approx(5))
    facts = replace(GOOD, open=found, whole_run=True, steady=None)
    assert "rate_held" in {reason.rule for reason in verdict.judge(facts).reasons}


def test_what_piled_up_in_a_whole_run_is_told_and_not_judged() -> None:
    """A fixed count of twenty a second at a server of fifteen ends, and so does its backlog; the margin shows it."""
    found = open_facts(arrays(queued(20, 15), (0, 0)), 0, 45 * S, True)
    judged = verdict.judge(replace(GOOD, open=found, whole_run=True))
    assert not judged.reasons
    (told,) = [one for one in judged.margins if one.rule == "overload"]
    assert told.ok is None
    assert told.measured == pytest.approx(0.25, abs=0.1)
    numbers = summarize(arrays(queued(20, 15), (0, 0)), 0, 0, concurrency=None, gpus=None, whole_run=True)
    (said,) = caveats(numbers)
    assert said.startswith("requests piled up while they came (2")


def test_small_things() -> None:
    """The most in any tenth of a second; a rate needs two requests or a window."""
    assert burst(np.array([0, 0.05, 0.09, 0.1, 0.3]) * S) == 3
    assert burst(np.zeros(0)) == 0
    assert rate_per_s(np.array([0.0]), None) is None
    assert rate_per_s(np.zeros(0), 10.0) == 0


def test_nobody_asking_is_no_silence() -> None:
    """At one request in ten seconds nothing is heard for nine of them; a stall in mid-answer is heard."""
    quiet = [asked(i, 10 * i, lasts_s=0.5) for i in range(4)]
    stalled = [asked(0, 0, lasts_s=7), *quiet[1:]]
    for rows, silence_s in ((quiet, 0.5), (stalled, 7)):
        cols = arrays(rows, (0, 32 * S))
        shares = {"failed_share_max": 0.01, "short_share_max": 0.01}
        facts = facts_of(cols, health_columns([]), (0, 32 * S), concurrency=None, **shares)
        assert facts.silence_s == pytest.approx(silence_s)
