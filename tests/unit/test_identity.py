"""server.identity: what can be read of a server, and that it is the same at the end of a Point as at its start."""

from typing import Any

import pytest
from specs import TOPK4_V1

from server.claims import running_cap
from server.identity import changed, readable, replaced
from server.proof import contradictions

TOLD = {
    "random_seed": 7,
    "version": "0.5.9",
    "max_running_requests": 256,
    "disable_radix_cache": True,
    "status": "ready",
}


@pytest.mark.parametrize("change", [{}, {"status": "busy"}, {"internal_states": [1]}])
def test_a_server_that_went_on(change: dict[str, Any]) -> None:
    """What varies while a server runs is no other server."""
    assert replaced(TOLD, {**TOLD, **change}) is None
    assert changed(TOLD, {**TOLD, **change}) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"random_seed": 8}, "random_seed was 7, now 8"),
        ({"version": "0.5.23"}, "version was 0.5.9, now 0.5.23"),
    ],
)
def test_a_server_that_was_started_anew(change: dict[str, Any], words: str) -> None:
    """Another seed or version is another life, whoever started it."""
    assert words in (replaced(TOLD, {**TOLD, **change}) or "")


def test_a_server_that_was_reconfigured() -> None:
    """A flag that changed under way is named with both values and what to do."""
    (one,) = changed(TOLD, {**TOLD, "disable_radix_cache": False})
    assert (one.flag, one.asked, one.told) == ("disable_radix_cache", "True as at the start", False)
    assert "start it anew" in one.advice


@pytest.mark.parametrize(("before", "now"), [(None, TOLD), (TOLD, None), ({}, TOLD), (TOLD, {"status": "ready"})])
def test_what_is_not_told_twice_says_nothing(before: Any, now: Any) -> None:
    """A server that tells nothing is neither the same nor another one."""
    assert replaced(before, now) is None
    assert changed(before, now) == []


STRANGE: list[Any] = ["much", [3], {"a": 1}, float("nan"), float("inf"), True]


@pytest.mark.parametrize("value", STRANGE)
@pytest.mark.parametrize("name", ["max_running_requests", "speculative_num_steps", "tp_size", "cuda_graph_config"])
def test_values_of_another_form_are_as_good_as_not_told(name: str, value: Any) -> None:
    """Any program may answer at a named address: it is judged by what can be read, never a failure of ours."""
    states = [value, {name: value, "effective_max_running_requests_per_dp": value, "speculative_num_steps": 3}]
    for told in ({**TOLD, name: value}, {**TOLD, "internal_states": value}, {**TOLD, "internal_states": states}):
        contradictions(TOPK4_V1, readable(told), 8)
        assert (running_cap(readable(told)) or 0) <= 256
    assert readable(readable(told)) == readable(told)
    assert ("cuda_graph_config" in readable({"cuda_graph_config": {"decode": value}})) == isinstance(value, dict)


def test_a_server_as_it_should_be_is_read_whole() -> None:
    """Nothing is lost of what SGLang tells."""
    states = [{"speculative_num_steps": 3, "avg_spec_accept_length": 2.5, "effective_max_running_requests_per_dp": 48}]
    whole = {**TOLD, "tp_size": 8, "internal_states": states, "cuda_graph_config": {"decode": {"max_bs": 8}}}
    assert readable(whole) == whole
