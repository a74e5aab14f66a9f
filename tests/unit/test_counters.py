"""Rises of counters from samples a second apart: edges, resets, labels, samples that are missing."""

import json
from typing import Any

import pytest

from loadgen.counters import Counted, accept_length, by_series, counted, rise

S = 1_000_000_000
TOKENS, REQUESTS, STEPS = (
    f"sglang:{name}_total" for name in ("generation_tokens", "num_requests", "spec_verify_calls")
)


def row(t_s: float, name: str, value: float, **labels: str) -> dict[str, Any]:
    return {"t_mono_ns": round(t_s * S), "name": name, "labels": json.dumps(labels, sort_keys=True), "value": value}


def samples(name: str, values: dict[float, float], **labels: str) -> list[dict[str, Any]]:
    return [row(t_s, name, value, **labels) for t_s, value in values.items()]


def over(rows: list[dict[str, Any]], start_s: float, end_s: float, whole_run: bool = False) -> Counted:
    return counted(by_series(rows), (start_s * S, end_s * S), (start_s * S, end_s * S), whole_run)


def test_a_window_edge_lies_between_samples() -> None:
    """Between two samples a counter is taken to rise evenly; a whole run takes the samples around it as they are."""
    rows = samples(TOKENS, {0: 0, 1: 100, 2: 300, 3: 310})
    assert over(rows, 0.5, 1.75).span["generation_tokens"] == pytest.approx(50 + 150)
    assert over(rows, 0.5, 1.75).point["generation_tokens"] == 300
    whole = over(rows, 0.5, 1.75, whole_run=True)
    assert whole.span["generation_tokens"] == 300
    assert "sample before" in whole.how


def test_a_restart_counts_from_zero() -> None:
    """A fall is a new start: what was counted since then is added."""
    (one,) = by_series(samples(TOKENS, {0: 500, 1: 600, 2: 40, 3: 90}))
    assert rise(one, (0, 3 * S)) == 100 + 40 + 50


def test_labels_are_summed() -> None:
    """Later versions have a series for streams and one for the rest; each restarts and begins for itself."""
    rows = samples(TOKENS, {0: 5, 2: 25}, is_streaming="true") + samples(TOKENS, {0: 1, 2: 4}, is_streaming="false")
    assert over(rows, 0, 2).span["generation_tokens"] == 23


def test_a_counter_appears_with_its_first_event() -> None:
    """Where the server was read before and did not have it, it was zero; where it was never read before, unknown."""
    rows = samples("sglang:num_running_reqs", {0: 0, 1: 3, 2: 3}) + samples(TOKENS, {1: 70, 2: 90})
    assert over(rows, 0, 2).point["generation_tokens"] == 90
    assert over(samples(TOKENS, {1: 70, 2: 90}), 0, 2) == Counted()
    assert over(rows, 0, 9) == Counted(), "the end is missing"
    assert over([], 0, 2) == Counted()


def test_endpoints_are_read_at_their_own_times() -> None:
    """Each server of several is read by a thread of its own; a missing one makes the sum unknown."""
    first = samples(TOKENS, {0.1: 10, 1.1: 20}, endpoint="a")
    second = samples("sglang:num_running_reqs", {0.2: 0}, endpoint="b") + samples(TOKENS, {1.3: 7}, endpoint="b")
    assert over(first + second, 0.5, 1).point["generation_tokens"] == 10 + 7
    late = [one for one in second if one["t_mono_ns"] > S]
    assert over(first + late, 0.5, 1) == Counted()


def test_rows_of_devices_do_not_say_that_the_server_was_read() -> None:
    """The GPU is sampled also while /metrics does not answer."""
    rows = samples("gpu:power_mw", {0: 1, 1: 1, 2: 1}, gpu="0") + samples(TOKENS, {1: 70, 2: 90})
    assert over(rows, 0, 2) == Counted()


@pytest.mark.parametrize("value", [float("nan")])
def test_no_number_is_no_sample(value: float) -> None:
    """Prometheus pages may hold NaN."""
    assert over([*samples(TOKENS, {0: 1, 2: 3}), row(1, TOKENS, value)], 0, 2).span["generation_tokens"] == 2


def test_accept_length_of_sglang() -> None:
    """Tokens without each request's first one, over verify steps, of exactly the requests that ended."""
    rows = samples(TOKENS, {0: 100, 9: 1100}) + samples(REQUESTS, {0: 3, 9: 13}) + samples(STEPS, {0: 50, 9: 380})
    assert accept_length(over(rows, 1, 8, whole_run=True).span) == pytest.approx((1000 - 10) / 330)
    assert accept_length(over(rows, 1, 8).span) == pytest.approx((1000 - 10) / 330), "the edges cancel"
    assert accept_length({"generation_tokens": 9, "verify_steps": 3}) is None
    assert accept_length({"generation_tokens": 9, "requests": 1, "verify_steps": 0}) is None


def test_accept_length_of_vllm() -> None:
    """1 + accepted draft tokens a draft, which is vLLM's own definition."""
    drafts, accepted = (f"vllm:spec_decode_num_{name}_total" for name in ("drafts", "accepted_tokens"))
    rows = samples(drafts, {0: 0, 9: 40}, engine="0") + samples(accepted, {0: 0, 9: 50}, engine="0")
    assert accept_length(over(rows, 0, 9).span) == pytest.approx(2.25)


def test_gauges_of_the_span() -> None:
    """The server's own accept length weighs by steps; samples of idle seconds (0) do not count."""
    tokens = samples(TOKENS, {0: 0, 9: 1})
    gauges = samples("sglang:spec_accept_length", {1: 2.0, 2: 4.0, 3: 0.0})
    rows = tokens + gauges + samples("sglang:gen_throughput", {1: 100, 2: 100, 3: 50})
    assert over(rows, 0, 9).accept_gauge == pytest.approx(200 / (100 / 2 + 100 / 4))
    assert over(tokens + gauges, 0, 9).accept_gauge == pytest.approx(2 / (1 / 2 + 1 / 4))
    steps = over(tokens + samples("sglang:spec_num_steps", {1: 3, 2: 0, 3: 0, 4: 1}), 0, 9)
    assert (steps.draft_steps_max, steps.zero_steps_share) == (3, 0.5)
