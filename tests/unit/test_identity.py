"""server.identity: the same server at the end of a Point as at its start."""

from typing import Any

import pytest

from server.identity import changed, replaced

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
