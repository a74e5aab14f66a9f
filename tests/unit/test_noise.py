"""A/A: a variant that is the baseline by another name is known by how it is started, and its spread is told."""

import math

import pytest
from test_drift import contest, point

from loadgen import comparison, noise, tables


def aa(*ratios: float) -> comparison.Contest:
    """`baseline_again` beside the baseline, a block for each ratio."""
    points = [
        one
        for block, ratio in enumerate(ratios)
        for one in (
            point("baseline", block, 100.0, 2 * block),
            point("baseline_again", block, 100.0 * ratio, 2 * block + 1),
        )
    ]
    named = {one["point_id"]: one["variant"] for one in points}
    (found,) = comparison.contests(points, lambda _: {}, named, "baseline")
    return found


COMMANDS = {"baseline": "python -m x", "baseline_again": "python -m x", "chain": "python -m x --chain"}


def test_spread_of_pairs() -> None:
    """Differences of 1, 2 and 2 % are typically sqrt(3) % and at most 2 %, by hand."""
    (found,) = noise.of(aa(1.01, 0.98, 1.02), COMMANDS)
    assert (found.variant, found.pairs, found.level.concurrency) == ("baseline_again", 3, 4)
    assert found.typical == pytest.approx(math.sqrt((0.01**2 + 0.02**2 + 0.02**2) / 3))
    assert found.worst == pytest.approx(0.02)
    said = "A/A: baseline_again is the baseline by another name, and 1.7 % (root mean square of 3 pairs), at most 2 %"
    assert found.words.startswith(said)
    assert {row.output.word for row in aa(1.001, 0.999, 1.0005).of("baseline_again")} == {"same"}


def test_another_server_is_no_noise() -> None:
    """Other flags, a server whose command nobody knows, another stack."""
    assert noise.of(contest(), COMMANDS) == []
    assert noise.of(aa(1.0, 1.0, 1.0), {"baseline": "", "baseline_again": ""}) == []
    mixed = aa(1.0, 1.0, 1.0)
    for row in mixed.of("baseline_again"):
        for one in row.points:
            one["must_match"] = {"hash": "other"}  # type: ignore[index]
    assert noise.of(mixed, COMMANDS) == []


def test_accept_length_by_kind_is_told_and_its_stand_in_is_labelled() -> None:
    """Requests that tell their verify steps have an accept length; others only tokens an event."""
    for source, said in (("requests", "accept length by kind"), ("tokens_per_chunk", "tokens an event, in the place")):
        kinds = {"code": {"accept_length": 2.8, "accept_source": source}, "chat": {"accept_length": 1.9}}
        summary = {"output_tokens_per_s": 90.0, "requests": 9, "failed": 0, "by_kind": kinds}
        one = contest(point("eagle", 0, 90.0, 40, summary=summary))
        (line,) = tables.kinds(one)
        assert line.startswith(said)
        assert line.endswith("eagle at concurrency 4: chat 1.90, code 2.80")
