"""A Point is VALID only when no rule is broken, and every broken one says what was measured, allowed and to be done."""

import dataclasses
import signal
from typing import Any

import numpy as np
import pytest
from rows import NS_PER_MS, failure, health, row

from loadgen import verdict
from loadgen.columns import columns, fitted, table
from loadgen.config import Load
from loadgen.errors import StorageError
from loadgen.facts import facts_of, gather, health_columns
from loadgen.openloop import OpenFacts
from loadgen.record import HEALTH, IDENTITY, REQUEST, REQUESTS
from loadgen.series import in_window
from loadgen.verdict import Facts
from loadgen.window import Window
from server.proof import Contradiction

S = 1_000_000_000
GOOD = Facts(
    requests=1000,
    failed=0,
    short=0,
    failed_share_max=0.01,
    short_share_max=0.01,
    steady=True,
    halves_difference=0.01,
    halves_standard_errors=1.0,
    slope_per_min=0.001,
    slope_half_width=0.004,
    mser_s=0.0,
    concurrency_held=0.999,
    refill_ms=0.9,
    loop_lag_p99_ms=0.4,
    loop_lag_max_ms=3.0,
    worker_cpu_p95=0.34,
    capacity_share=0.31,
    gc_pause_max_ms=0.0,
    descriptors_share=0.02,
)


def test_a_clean_point_is_valid_and_prints_its_margins() -> None:
    """Nothing speaks against it, and the reader sees how clean it is."""
    judged = verdict.judge(GOOD)
    assert (judged.status, judged.reasons, judged.exit_code) == ("VALID", (), 0)
    line = " · ".join(verdict.margin(finding) for finding in verdict.as_json(judged)["margins"])
    assert "loop lag p99 0.4 ms (limit 5 ms)" in line
    assert "concurrency held 99.9 % (at least 98 %)" in line
    assert "slope 0.1 %/min" in line


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"requests": 0}, "requests"),
        ({"failed": 11}, "failed_share"),
        ({"short": 11}, "short_share"),
        ({"steady": False, "halves_difference": -0.2}, "steady"),
        ({"concurrency_held": 0.979}, "concurrency_held"),
        ({"refill_ms": 10.1}, "refill_p99"),
        ({"open": OpenFacts(lateness_p99_ms=10.1)}, "lateness_p99"),
        ({"open": OpenFacts(offered_per_s=6.0, achieved_per_s=5.9, missing=2)}, "rate_held"),
        ({"open": OpenFacts(cut=1)}, "overload"),
        ({"loop_lag_p99_ms": 5.1}, "loop_lag_p99"),
        ({"loop_lag_max_ms": 101.0}, "loop_lag_max"),
        ({"loop_lag_p99_ms": None}, "loop_lag_p99"),
        ({"worker_cpu_p95": 0.81}, "worker_cpu_p95"),
        ({"worker_cpu_p95": None}, "worker_cpu_p95"),
        ({"capacity_share": 0.71}, "capacity_share"),
        ({"in_step": 0.51}, "in_step"),
        ({"gc_pause_max_ms": 21.0}, "gc_pause_max"),
        ({"descriptors_share": 0.81}, "descriptors"),
        ({"contradictions": (Contradiction("speculative_eagle_topk", 1, 4),)}, "server"),
    ],
)
def test_each_rule_can_break(change: dict[str, Any], rule: str) -> None:
    """Every rule alone makes the Point INVALID, for the reason that carries its name, with a limit and advice."""
    judged = verdict.judge(dataclasses.replace(GOOD, **change))
    assert (judged.status, judged.exit_code) == ("INVALID", 6)
    assert [reason.rule for reason in judged.reasons] == [rule]
    assert judged.reasons[0].advice
    assert judged.reasons[0].limit is not None


@pytest.mark.parametrize(
    "change",
    [
        {"failed": 10},
        {"refill_ms": 10.0},
        {"loop_lag_p99_ms": 5.0},
        {"concurrency_held": 0.98},
        {"capacity_share": None},
        {"steady": None, "whole_run": True},
        {"not_proven": ("attention_backend",), "proof_needed": False},
        {"whole_run": True, "steady": False, "concurrency_held": 0.5},
    ],
)
def test_what_is_at_the_limit_or_only_shown_does_not_judge(change: dict[str, Any]) -> None:
    """A limit itself is allowed; what is not known, not proven or not judged is shown beside a VALID verdict."""
    assert verdict.judge(dataclasses.replace(GOOD, **change)).status == "VALID"


def test_a_contradiction_names_flag_asked_and_told() -> None:
    """Each contradiction is a reason of its own."""
    wrong = (Contradiction("topk", 1, 4), Contradiction("max_running_requests", 64, 48, "raise it"))
    reasons = verdict.judge(dataclasses.replace(GOOD, contradictions=wrong)).reasons
    assert reasons[1].advice == "raise it"
    assert [(reason.measured, reason.limit) for reason in reasons] == [
        ("topk = 4", "topk = 1"),
        ("max_running_requests = 48", "max_running_requests = 64"),
    ]


def test_what_is_not_proven_is_shown() -> None:
    """What a server that is not ours does not tell is named and does not count; one of ours has to prove it."""
    judged = verdict.judge(dataclasses.replace(GOOD, not_proven=("fusion",), proof_needed=False))
    assert [m.measured for m in judged.margins if m.rule == "not_proven"] == ["fusion"]
    assert verdict.judge(dataclasses.replace(GOOD, not_proven=("attention_backend",))).status == "INVALID"
    assert verdict.judge(dataclasses.replace(GOOD, not_proven=("page_size",))).status == "VALID"


def test_ends_from_outside() -> None:
    """A dead server, a full disk and a signal have their status, exit code and advice."""
    died = verdict.judge(dataclasses.replace(GOOD, died="exit code 1"))
    assert (died.status, died.exit_code, died.reasons[0].measured) == ("FAILED", 3, "exit code 1")
    full = verdict.failed("storage", "disk full", None, "make room", StorageError.exit_code)
    assert (full.status, full.exit_code) == ("FAILED", 5)
    assert verdict.interrupted(signal.SIGINT).exit_code == 130
    assert verdict.interrupted(signal.SIGTERM).exit_code == 143


def test_json_form_names_all_a_reader_needs() -> None:
    """point.json holds rule, measured, limit and advice of every reason, and the margins."""
    told = verdict.as_json(verdict.judge(dataclasses.replace(GOOD, loop_lag_p99_ms=7.0)))
    assert told["status"] == "INVALID"
    reason = told["reasons"][0]
    assert (reason["rule"], reason["measured"], reason["limit"], reason["unit"]) == ("loop_lag_p99", 7.0, 5.0, "ms")
    assert "cluster.workers" in reason["advice"]
    assert {"rule", "measured", "limit", "ok"} <= told["margins"][0].keys()


def arrays(rows: list[dict], window_ns: tuple[int, int] | None) -> dict[str, np.ndarray]:
    cols = columns(fitted(table(rows, IDENTITY + REQUEST), REQUESTS))
    cols["in_window"] = in_window(cols, *window_ns) if window_ns else np.full(len(rows), True)
    return cols


def facts(rows: list[dict], beats: list[dict], window_ns: tuple[int, int] | None, concurrency: int = 1) -> Facts:
    span = Window(*window_ns, "") if window_ns else None
    return gather(arrays(rows, window_ns), beats, span, Load(), concurrency)


def test_facts_of_a_steady_stream() -> None:
    """One stream that is always busy: held 100 %, steady, refill as recorded."""
    found = facts([row(i, 140 * i) for i in range(100)], [health(1000 * i) for i in range(1, 15)], (2 * S, 12 * S))
    assert found.requests == 71
    assert found.concurrency_held == pytest.approx(1.0)
    assert found.refill_ms == pytest.approx(1.0)
    assert found.loop_lag_p99_ms == pytest.approx(0.1)
    assert found.worker_cpu_p95 == pytest.approx(0.2)
    assert found.steady is True
    assert verdict.judge(found).status == "VALID"


def test_facts_see_only_the_window() -> None:
    """Failures, lag and empty streams outside the window do not count; inside they do."""
    rows = [row(i, 140 * i) for i in range(100)] + [failure(100 + i, 100, "connect", sent_ns=None) for i in range(50)]
    beats = [health(1000 * i, loop_lag_ms=[200.0] if i == 1 else [0.1]) for i in range(1, 15)]
    assert verdict.judge(facts(rows, beats, (2 * S, 12 * S))).status == "VALID"
    broken = {reason.rule for reason in verdict.judge(facts(rows, beats, (0, 12 * S))).reasons}
    assert {"failed_share", "loop_lag_max"} <= broken


def test_a_refused_connection_counts_as_failed() -> None:
    """A request that could not even be sent is a failure of the window in which it was due."""
    found = facts([failure(i, 2000 + i, "connect", sent_ns=None) for i in range(5)], [health(3000)], (2 * S, 12 * S))
    assert (found.requests, found.failed) == (5, 5)


def test_concurrency_not_held() -> None:
    """A stream that stands empty half of the time holds half of the target."""
    rows = [row(i, 280 * i) for i in range(50)]
    found = facts(rows, [health(1000 * i) for i in range(1, 15)], (2_800 * NS_PER_MS, 11_200 * NS_PER_MS))
    assert found.concurrency_held == pytest.approx(0.5)


def test_a_slowing_server_is_not_steady() -> None:
    """Twice as long gaps in the second half are seen."""
    rows = [row(i, 140 * i if i < 50 else 7000 + 280 * (i - 50)) for i in range(100)]
    assert facts(rows, [health(5000)], (0, 14 * S)).steady is False


def test_a_whole_run_needs_no_window() -> None:
    """Every request counts, and the client is watched from the first request to the last output."""
    found = facts([row(i, 140 * i) for i in range(10)], [health(1000), health(2000)], None)
    assert (found.whole_run, found.requests) == (True, 10)
    assert verdict.judge(found).status == "VALID"


def test_no_rows_at_all() -> None:
    """An empty Point is INVALID for want of requests and of a watched client, never an exception."""
    broken = {reason.rule for reason in verdict.judge(facts([], [], (0, S))).reasons}
    assert broken == {
        "requests",
        "steady",
        "silence",
        "concurrency_held",
        "loop_lag_p99",
        "loop_lag_max",
        "worker_cpu_p95",
    }
    assert verdict.judge(facts([], [], None)).status == "INVALID"


def test_what_the_server_told_reaches_the_facts() -> None:
    """Contradictions keep flag, asked and told; descriptors are a share of the limit."""
    told = [Contradiction("topk", 1, 4)]
    found = gather(arrays([row(0)], None), [health(1000)], None, Load(), 1, told, ["fusion"])
    assert found.contradictions == tuple(told)
    assert found.not_proven == ("fusion",)
    assert found.descriptors_share == pytest.approx(0.5)


def test_open_loop_is_judged_by_lateness() -> None:
    """Without a target concurrency the time between planned and sent counts, less that for opening a connection."""
    came = {"rate": 100.0, "concurrency": None, "refill_ns": None}
    late = [row(i, 10 * i, planned_ns=(10 * i - 20) * NS_PER_MS, **came) for i in range(1, 99)]
    opening = row(99, 990, planned_ns=900 * NS_PER_MS, connect_ns=85 * NS_PER_MS, **came)
    cols = arrays([*late, opening], (0, S))
    found = gather(cols, [health(1000)], Window(0, S, ""), Load(), None)
    assert found.concurrency_held is None
    assert found.open is not None
    assert found.open.lateness_p99_ms == pytest.approx(20.0)
    assert {reason.rule for reason in verdict.judge(found).reasons} == {"lateness_p99"}


def test_health_rows_and_health_columns_tell_the_same() -> None:
    """Facts from the driver's rows are those from health.parquet."""
    beats = [health(1000 * i, loop_lag_ms=[0.5 * i] * 10) for i in range(1, 15)]
    cols = arrays([row(i, 140 * i) for i in range(100)], (2 * S, 12 * S))
    limits = {"concurrency": 1, "failed_share_max": 0.01, "short_share_max": 0.01}
    from_file = facts_of(cols, columns(table(beats, HEALTH)), (2 * S, 12 * S), **limits)
    assert from_file == facts_of(cols, health_columns(beats), (2 * S, 12 * S), **limits)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"refill_ms": 50.0, "request_ms": 16_000.0}, "VALID"),
        ({"refill_ms": 50.0, "request_ms": 500.0}, "INVALID"),
        ({"loop_lag_p99_ms": 6.5, "chunk_gap_ms": 70.0}, "VALID"),
        ({"loop_lag_p99_ms": 6.5, "chunk_gap_ms": 20.0}, "INVALID"),
    ],
)
def test_client_delays_are_held_against_what_they_bend(fields: dict[str, Any], status: str) -> None:
    """A delay of the client counts by its size, or, where requests and gaps are long, by its share of them."""
    assert verdict.judge(dataclasses.replace(GOOD, **fields)).status == status


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"silence_s": 1.5, "window_s": 6.0}, "INVALID"),  # stands still for a quarter of the window
        ({"silence_s": 0.8, "window_s": 6.0}, "VALID"),
        ({"silence_s": 3.0, "window_s": 12.0, "ttft_ms": 2900.0}, "VALID"),  # one stream that begins slowly
        ({"silence_s": 1.5, "window_s": 6.0, "whole_run": True}, "VALID"),
    ],
)
def test_a_server_that_stood_still_is_not_valid(fields: dict[str, Any], status: str) -> None:
    """A stall spreads the halves so far that they look alike; the silence gives it away."""
    assert verdict.judge(dataclasses.replace(GOOD, **fields)).status == status


def test_silence_is_the_longest_time_without_an_event_of_any_stream() -> None:
    """Two streams: only what is silent in both counts, and the window's ends count too."""
    rows = [row(0, chunk_ns=[1 * S, 2 * S, 6 * S]), row(1, chunk_ns=[3 * S, 8 * S])]
    assert facts(rows, [health(5000)], (0, 10 * S)).silence_s == pytest.approx(3.0)


def test_silence_of_users_who_think_is_nobodys() -> None:
    """While nothing is in flight nothing can come, at the window's ends too; a server that stands still is seen."""
    first = row(0, sent_ms=1000, done_ns=2 * S, chunk_ns=[2 * S])
    rows = [first, row(1, sent_ms=6000, done_ns=8 * S, chunk_ns=[8 * S])]
    more = row(2, sent_ms=7000, done_ns=11 * S, chunk_ns=[11 * S])
    for asked, longest_s in [(rows, 2.0), ([*rows, more], 3.0)]:
        found = gather(arrays(asked, (0, 12 * S)), [health(5000)], Window(0, 12 * S, ""), Load(), 1, think_s=4.0)
        assert found.silence_s == pytest.approx(longest_s)


def test_few_refills_are_judged_by_their_p90() -> None:
    """Of 24 refills p99 is the longest: one pause of the machine would decide; of many it stands."""
    rows = [row(i, 1000 * i, refill_ns=(50 if i == 7 else 1) * NS_PER_MS) for i in range(24)]
    few = facts(rows, [health(5000)], (0, 24 * S))
    assert few.refill_few
    assert few.refill_ms == pytest.approx(1.0)
    many = [row(i, 100 * i, refill_ns=(50 if i % 50 == 7 else 1) * NS_PER_MS) for i in range(240)]
    assert facts(many, [health(5000)], (0, 24 * S)).refill_ms == pytest.approx(50.0)


@pytest.mark.parametrize(("pauses", "status"), [(0, "VALID"), (1, "VALID"), (10, "INVALID")])
def test_a_long_pause_counts_for_all_the_probes_that_it_swallowed(pauses: int, status: str) -> None:
    """50 ms a second are one probe of 190, and yet one moment of twenty; once in the window they are no habit."""
    beats = [health(1000 * i, loop_lag_ms=[0.1] * 190 + [50.0] * (2 < i <= 2 + pauses)) for i in range(1, 15)]
    found = facts([row(i, 140 * i) for i in range(100)], beats, (2 * S, 12 * S))
    assert found.loop_lag_max_ms == (50.0 if pauses else 0.1)
    assert verdict.judge(found).status == status


def test_the_share_of_the_capacity_is_the_busiest_workers() -> None:
    """Events a second of the worker with most, by p95 of its seconds, of what calibration found for one."""
    rows = [
        row(i, 100 * i, worker=i % 2, chunk_ns=[i * S // 10 + k for k in range(8 if i % 2 else 2)]) for i in range(100)
    ]
    cols, limits = arrays(rows, (0, 10 * S)), {"failed_share_max": 0.01, "short_share_max": 0.01}
    found = facts_of(cols, health_columns([health(5000)]), (0, 10 * S), concurrency=2, **limits)
    assert found.capacity_share is None
    known = {"capacity_events_per_s": 100.0, "capacity_note": "of 100 events/s"}
    found = facts_of(cols, health_columns([health(5000)]), (0, 10 * S), concurrency=2, **limits, **known)
    assert found.capacity_share == pytest.approx(0.4)
    (finding,) = [one for one in verdict.judge(found).margins if one.rule == "capacity_share"]
    assert verdict.margin(dataclasses.asdict(finding)) == "capacity 40 % (limit 70 % of 100 events/s)"


def test_a_capacity_that_is_a_lower_bound_condemns_nothing() -> None:
    """More than 70 % of "at least" so much may be little of what it is."""
    facts = dataclasses.replace(GOOD, capacity_share=0.9, capacity_at_least=True)
    assert verdict.judge(facts).status == "VALID"
    assert verdict.judge(dataclasses.replace(facts, capacity_at_least=False)).status == "INVALID"
