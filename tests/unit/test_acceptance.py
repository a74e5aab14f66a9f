"""Accept length and verify cycle: which source wins, what cannot be, and when two sources disagree."""

from typing import Any

import pytest
from rows import row
from test_summary import summary

from loadgen.acceptance import Speculation, length_max
from loadgen.counters import Counted
from loadgen.summary import caveats

RISES = {"generation_tokens": 10.0, "requests": 2.0, "verify_steps": 5.0}


def told(rises: dict[str, float] | None = None, average: float | None = None, **more: Any) -> Speculation:
    most = more.pop("length_max", None)
    return Speculation(Counted(span=rises or {}, point=rises or {}, **more), average, most)


def test_the_order_of_sources() -> None:
    """The requests' own steps, then the counters, then the server's average since the flush, then its gauge."""
    own = [row(0, spec_verify_steps=2), row(1, spec_verify_steps=3)]
    found = summary(own, told=told(RISES, 9.9))
    assert (found["accept_length"], found["accept_source"]) == (pytest.approx((10 - 2) / 5), "requests")
    assert found["verify_cycle_ms"] == pytest.approx(80 / 5)
    assert found["accept_length_counters"] == pytest.approx(8 / 5)
    silent = [row(0), row(1)]
    for what, length, source in (
        (told({**RISES, "verify_steps": 4.0}, 9.9), 2.0, "counters"),
        (told(None, 3.1, accept_gauge=2.9), 3.1, "server_average"),
        (told(accept_gauge=2.9), 2.9, "gauge"),
        (None, None, None),
    ):
        found = summary(silent, told=what)
        assert (found["accept_length"], found["accept_source"]) == (length, source)


def test_the_verify_cycle_by_counters() -> None:
    """Where requests do not tell, decode time of those that ended is held against the counter's steps."""
    found = summary([row(0), row(1), row(2, outcome="cut")], told=told(RISES))
    assert found["verify_cycle_ms"] == pytest.approx(2 * 40 / 5)
    assert found["verify_cycle_source"] == "counters"
    whole = summary([row(0, done_ns=10**15), row(1)], None, told=told(RISES))
    assert whole["verify_cycle_ms"] == pytest.approx(2 * 40 / 5)
    average = summary([row(0), row(1)], told=told(average=2.0))
    assert (average["verify_cycle_ms"], average["verify_cycle_source"]) == (
        pytest.approx(2 * 40 / (8 / 2)),
        "accept_length",
    )
    assert summary([row(0)])["verify_cycle_source"] is None


def test_by_kind_is_labelled() -> None:
    """Each kind by its requests; where they do not tell, tokens per chunk, but only under speculation."""
    rows = [row(0, spec_verify_steps=2), row(1, prompt_kind="chat", output_tokens=10, chunk_tokens=[2] * 5)]
    kinds = summary(rows)["by_kind"]
    assert (kinds["code"]["accept_length"], kinds["code"]["accept_source"]) == (2.0, "requests")
    assert kinds["code"]["verify_cycle_ms"] == pytest.approx(20)
    assert (kinds["chat"]["accept_length"], kinds["chat"]["accept_source"]) == (2.0, "tokens_per_chunk")
    assert summary([row(0)])["by_kind"]["code"]["accept_source"] is None


def test_requests_and_counters_that_disagree_are_told() -> None:
    """More than 1 % apart over the same requests is a caveat; requests that only one of them counted excuse as much."""
    rows = [row(0, spec_verify_steps=2), row(1, spec_verify_steps=3)]
    assert caveats(summary(rows, told=told({**RISES, "verify_steps": 5.04}))) == []
    (odd,) = caveats(summary(rows, told=told({**RISES, "verify_steps": 5.1})))
    assert "1.600" in odd
    assert "1.569" in odd
    cut = {"generation_tokens": 14.0, "requests": 3.0, "verify_steps": 7.0}
    assert caveats(summary(rows, told=told(cut))) == []


@pytest.mark.parametrize(
    ("steps", "most", "wrong"), [(4, 4.0, False), (4, None, False), (1, 4.0, False), (1, 3.0, True), (9, None, True)]
)
def test_a_length_that_cannot_be_is_told(steps: int, most: float | None, wrong: bool) -> None:
    """A verify step gives at least one token and at most draft steps + 1; the number stays visible."""
    found = summary([row(0, spec_verify_steps=steps)], told=told(length_max=most))
    assert found["accept_length"] == pytest.approx(4 / steps)
    assert [("cannot be" in text) for text in caveats(found)] == [True] * wrong


def test_zero_steps_are_no_quality_of_the_draft() -> None:
    """Adaptive speculation that drafts nothing has no accept length; now and then is a caveat."""
    rows = [row(0, spec_verify_steps=4)]
    none = summary(rows, told=told(zero_steps_share=1.0))
    assert (none["accept_length"], none["accept_source"]) == (None, None)
    assert "throughout" in caveats(none)[0]
    some = summary(rows, told=told(zero_steps_share=0.25))
    assert some["accept_length"] == 1.0
    assert "25 %" in caveats(some)[0]
    assert caveats(summary(rows, told=told(zero_steps_share=0.0))) == []


def test_length_max() -> None:
    """By the draft's steps (adaptive: the most it took), NGRAM's draft tokens, or vLLM's own setting."""
    nothing = Counted()
    assert length_max({"speculative_num_steps": 3, "speculative_num_draft_tokens": 16}, {}, nothing) == 4
    assert length_max({"speculative_num_steps": 3}, {}, Counted(draft_steps_max=7)) == 8
    assert length_max({"speculative_num_steps": None, "speculative_num_draft_tokens": 12}, {}, nothing) == 12
    for given in ('{"num_speculative_tokens": 3}', {"num_speculative_tokens": 3}):
        assert length_max({}, {"speculative_config": given}, nothing) == 4
    assert length_max({}, {"speculative_config": "x"}, nothing) is None
    assert length_max({}, {}, nothing) is None


def test_cached_tokens_of_a_point() -> None:
    """The requests' sum, and the counter's rise beside it; unknown is none."""
    found = summary([row(0, cached_tokens=7), row(1, cached_tokens=8)], told=told({"cached_tokens": 16.0}))
    assert (found["cached_tokens"], found["cached_tokens_counters"]) == (15, 16)
    assert summary([row(0, cached_tokens=None)])["cached_tokens"] is None
