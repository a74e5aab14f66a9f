"""Every figure of a Point equals what a person would work out by hand from the rows."""

import json
from typing import Any

import numpy as np
import pytest
from rows import NS_PER_MS, failure, row

from loadgen.columns import columns, fitted, table
from loadgen.record import IDENTITY, REQUEST, REQUESTS
from loadgen.rowstream import to_json
from loadgen.series import chunk_tokens, in_flight_mean, in_window, series, tokens_between
from loadgen.summary import distribution, summarize

S = 1_000_000_000
ALL = (0, 3600 * S)


def arrays(rows: list[dict], window_ns: tuple[int, int] = ALL) -> dict[str, np.ndarray]:
    cols = columns(fitted(table(rows, IDENTITY + REQUEST), REQUESTS))
    cols["in_window"] = in_window(cols, *window_ns)
    return cols


def summary(rows: list[dict], window_ns: tuple[int, int] | None = ALL, **more: Any) -> dict[str, Any]:
    span = window_ns or (0, 0)
    options = {"concurrency": 1, "gpus": 8, "whole_run": window_ns is None, **more}
    return summarize(arrays(rows, span), *span, **options)


def chunks(sent_ms: float, gaps_ms: list[float]) -> list[int]:
    """Stamps of events: the first 100 ms after sent, the next ones after these gaps."""
    return [round((sent_ms + 100 + sum(gaps_ms[:i])) * NS_PER_MS) for i in range(len(gaps_ms) + 1)]


def test_tokens_of_the_window_only() -> None:
    """Tokens stamped in [start, end) count, those of requests that began before or were cut later too."""
    rows = [row(0, 0), row(1, 50), row(2, 100, outcome="cut")]  # events at 100-140, 150-190, 200-240 ms
    found = summary(rows, (120 * NS_PER_MS, 220 * NS_PER_MS))
    assert found["output_tokens_per_s"] == pytest.approx((3 + 5 + 2) / 0.1)
    assert found["requests_per_s"] == pytest.approx(2 / 0.1)
    assert found["total_tokens_per_s"] == pytest.approx((3 + 5 + 2 + 2 * 20) / 0.1)
    assert found["tokens_per_s_per_gpu"] == pytest.approx(found["output_tokens_per_s"] / 8)


def test_tokens_are_spread_over_events_where_the_server_does_not_tell() -> None:
    """Usage at the end only: the count divides evenly over the request's events."""
    cols = arrays([row(0, output_tokens=15, chunk_tokens=None)])
    assert chunk_tokens(cols).tolist() == [3.0] * 5
    assert tokens_between(cols, 0, 125 * NS_PER_MS) == pytest.approx(9)


def test_an_event_is_not_a_token_for_requests_whose_count_never_came() -> None:
    """A cut request's events weigh as much as those of requests with usage; alone, an event is one token."""
    cut = row(1, outcome="cut", output_tokens=5, chunk_tokens=None, token_source="events")
    cols = arrays([row(0, output_tokens=15, chunk_tokens=None), cut])
    assert chunk_tokens(cols).tolist() == [3.0] * 10
    assert chunk_tokens(arrays([cut])).tolist() == [1.0] * 5


def test_a_malformed_answers_usage_is_not_believed() -> None:
    """A server that claims a billion tokens does not lift the throughput."""
    rows = [row(0), row(1, outcome="malformed", output_tokens=2_000_000_000, chunk_tokens=[400_000_000] * 5)]
    assert chunk_tokens(arrays(rows)).sum() == pytest.approx(10)


def test_series_and_in_flight() -> None:
    """Tokens a bin, and the mean number of requests in flight."""
    cols = arrays([row(0, 0), row(1, 0)])
    assert series(cols, 90 * NS_PER_MS, 150 * NS_PER_MS, 0.02).tolist() == [2, 4, 4]
    assert series(cols, 0, 0, 0.02).tolist() == []
    assert in_flight_mean(cols, 0, 280 * NS_PER_MS) == pytest.approx(1.0)
    assert in_flight_mean(cols, 5, 5) is None


def test_latencies_by_hand() -> None:
    """TTFT from sent, time per token without the first event's tokens, end to end to the last output."""
    rows = [row(0, 10, chunk_ns=chunks(10, [20, 20]), chunk_tokens=[3, 2, 2], output_tokens=7)]
    found = summary(rows)
    assert found["ttft_ms"]["mean"] == pytest.approx(100)
    assert found["tpot_ms"]["mean"] == pytest.approx(40 / 4)
    assert found["tokens_per_s_per_stream"] == pytest.approx(100)
    assert found["e2e_ms"]["p50"] == pytest.approx(140)
    assert found["chunk_gap_ms"] == {"mean": 20.0, "p50": 20.0, "p90": 20.0, "p99": None, "n": 2}
    assert found["tokens_per_chunk"] == pytest.approx(7 / 3)


def test_tokens_an_event_do_not_change_the_time_a_token() -> None:
    """The same answer in events of four tokens has the same TPOT and four times the gaps."""
    single = row(0, chunk_ns=chunks(0, [10] * 16), chunk_tokens=[1] * 17)
    packed = row(0, chunk_ns=chunks(0, [40] * 4), chunk_tokens=[1, 4, 4, 4, 4], output_tokens=17)
    one, four = summary([single]), summary([packed])
    assert one["tpot_ms"]["p50"] == pytest.approx(four["tpot_ms"]["p50"]) == pytest.approx(10)
    assert four["chunk_gap_ms"]["p50"] == pytest.approx(4 * one["chunk_gap_ms"]["p50"])


@pytest.mark.parametrize("tokens", [None, [9]])
def test_b11_one_event_has_no_time_per_token(tokens: list[int] | None) -> None:
    """An answer in a single event has a TTFT and no TPOT, and divides nothing by zero."""
    found = summary([row(0, chunk_ns=chunks(0, []), chunk_tokens=tokens, output_tokens=9)])
    assert found["tpot_ms"] == {"mean": None, "p50": None, "p90": None, "p99": None, "n": 0}
    assert found["tokens_per_s_per_stream"] is None
    assert found["ttft_ms"]["n"] == 1


def test_c11_failed_requests_stay_out_of_latencies() -> None:
    """Latencies are of requests that ended well; failures are counted by kind, also when there are none."""
    rows = [row(seq, 10 * seq) for seq in range(8)]
    rows += [failure(8, 100, "http_status", http_status=500), failure(9, 100, "timeout_first_token")]
    found = summary(rows)
    assert found["ttft_ms"]["mean"] == pytest.approx(100)
    assert found["ttft_ms"]["n"] == 8
    assert (found["requests"], found["failed"]) == (10, 2)
    assert found["outcomes"] == {"http_status": 1, "ok": 8, "timeout_first_token": 1}
    assert summary(rows[:8])["failed"] == 0


def test_only_requests_sent_in_the_window_have_latencies() -> None:
    """Warm-up and refill after the window do not enter the distributions."""
    rows = [row(seq, 1000 * seq) for seq in range(10)]
    found = summary(rows, (3 * S, 7 * S))
    assert (found["requests"], found["ttft_ms"]["n"]) == (4, 4)


def test_c14_everything_fails() -> None:
    """Without one good request every figure is null and nothing raises."""
    found = summary([failure(seq, 10 * seq, "connect", sent_ns=None) for seq in range(5)], (0, S))
    assert (found["requests"], found["failed"], found["output_tokens_per_s"]) == (5, 5, 0.0)
    assert found["ttft_ms"]["p50"] is None
    assert found["tokens_per_chunk"] is None


@pytest.mark.parametrize("window_ns", [ALL, (0, 0), None])
def test_f05_no_rows(window_ns: tuple[int, int] | None) -> None:
    """A Point without a row has a summary that is strict JSON."""

    def refuse(text: str) -> None:
        raise AssertionError(text)

    found = json.loads(to_json(summary([], window_ns)), parse_constant=refuse)
    assert found["requests"] == 0
    assert found["ttft_ms"]["n"] == 0


def test_f01_no_percentile_is_above_the_maximum() -> None:
    """Quantiles come from raw values; of a single request all are equal."""
    values = np.array([596.0, *np.linspace(230, 340, 400)])
    found = distribution(values)
    assert found["p50"] <= found["p90"] <= found["p99"] <= 596
    alone = distribution(np.array([7.0]))
    assert alone["p50"] == alone["p90"] == alone["mean"] == 7.0


@pytest.mark.parametrize(("n", "shown"), [(367, False), (368, True)])
def test_p99_needs_enough_requests(n: int, shown: bool) -> None:
    """p99 is null below the number of requests an interval needs, and n is shown."""
    found = distribution(np.arange(float(n)))
    assert (found["p99"] is not None) is shown
    assert found["n"] == n


def test_f04_chunk_gaps_and_time_per_token_are_two_numbers() -> None:
    """Pooled gaps and the mean over requests differ; each keeps its own name."""
    rows = [
        row(0, chunk_ns=chunks(0, [1000]), chunk_tokens=[1, 1]),
        row(1, chunk_ns=chunks(0, [10] * 100), chunk_tokens=[1] * 101),
    ]
    found = summary(rows)
    assert found["chunk_gap_ms"]["mean"] == pytest.approx(19.8, abs=0.01)
    assert found["tpot_ms"]["mean"] == pytest.approx(505)


def test_a_whole_run() -> None:
    """All tokens over the time from the first request sent to the last output; every request counts; no interval."""
    rows = [row(seq, 1000 + 140 * seq) for seq in range(10)]
    found = summary(rows, None)
    assert found["whole_run"] is True
    assert found["measured_s"] == pytest.approx(1.4)
    assert found["output_tokens_per_s"] == pytest.approx(50 / 1.4)
    assert found["requests_per_s"] == pytest.approx(10 / 1.4)
    assert (found["requests"], found["ttft_ms"]["n"]) == (10, 10)
    assert found["intervals"]["output_tokens_per_s"] is None


def test_unsent_requests_are_no_requests() -> None:
    """What was planned and never sent is neither a request nor a failure, and is seen among the outcomes."""
    found = summary([row(0), failure(1, 0, "unsent", sent_ns=None, done_ns=None)], None)
    assert (found["requests"], found["failed"], found["outcomes"]["unsent"]) == (1, 0, 1)


def test_by_kind() -> None:
    """Each kind of prompt has its own tokens an event and latencies."""
    rows = [row(0), row(1, prompt_kind="chat", output_tokens=10, chunk_tokens=[2] * 5)]
    found = summary(rows)["by_kind"]
    assert {kind: one["tokens_per_chunk"] for kind, one in found.items()} == {"chat": 2.0, "code": 1.0}
    assert found["chat"]["tpot_ms"]["p50"] == pytest.approx(5)
    assert found["code"]["requests"] == 1


def test_cached_share() -> None:
    """Cached prompt tokens of all prompt tokens, of the requests that tell; null where none does."""
    assert summary([row(0, cached_tokens=5), row(1, cached_tokens=None)])["cached_share"] == pytest.approx(0.25)
    assert summary([row(0, cached_tokens=None)])["cached_share"] is None


def test_intervals_are_within_the_run() -> None:
    """Throughput by batch means, quantiles by order statistics; each null where the sample is too small."""
    rows = [row(seq, 140 * seq) for seq in range(100)]
    found = summary(rows, (2 * S, 12 * S))
    low, high = found["intervals"]["output_tokens_per_s"]
    assert low < found["output_tokens_per_s"] < high
    assert found["intervals"]["scope"] == "within run"
    assert found["intervals"]["ttft_ms"] == {"p50": [100.0, 100.0], "p90": [100.0, 100.0], "p99": None}
    assert summary(rows[:3])["intervals"]["ttft_ms"]["p50"] is None


def test_the_known_stream_of_a_ground_truth_server() -> None:
    """TTFT 200 ms, 20 ms a token, 128 tokens, 16 streams: medians exact, throughput within 0.5 % of arithmetic."""
    duration_ms = 200 + 127 * 20
    rows = [
        row(16 * turn + slot, sent, chunk_ns=[round((sent + 200 + 20 * i) * NS_PER_MS) for i in range(128)])
        for turn in range(6)
        for slot in range(16)
        for sent in [slot * duration_ms / 16 + turn * duration_ms]
    ]
    start = 2 * duration_ms * NS_PER_MS
    found = summary(rows, (start, start + 2 * duration_ms * NS_PER_MS), concurrency=16)
    assert found["ttft_ms"]["p50"] == pytest.approx(200)
    assert found["tpot_ms"]["p50"] == pytest.approx(20)
    assert found["output_tokens_per_s"] == pytest.approx(16 * 128 / (duration_ms / 1000), rel=0.005)
    assert found["concurrency_held"] == pytest.approx(1.0, abs=1e-6)
