"""Gates: one inequality that a pipeline can hold."""

import pytest
from points import study
from test_comparison import contest

from loadgen import gate
from loadgen.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("eagle_topk1_v2 >= 0.98 * baseline at concurrency>=30", True),
        ("eagle_topk1_v2 >= 0.98 * baseline at concurrency >= 1", False),
        ("eagle_topk1_v2>1.05*baseline at concurrency=30", True),
        ("eagle_topk4_v1 < 0.5 * baseline at concurrency>1", True),
        ("eagle_topk4_v1 >= 0.5 * baseline at concurrency<=100", False),
    ],
)
def test_a_gate_holds_where_every_level_does(text: str, holds: bool) -> None:
    judged = gate.judge(gate.parse(text), [contest(study())], study())
    assert judged.holds == holds
    assert judged.lines
    assert any("fails" in line for line in judged.lines) == (not holds)


@pytest.mark.parametrize(
    "text",
    [
        "ngram >= 0.9 * baseline at concurrency>=1",
        "eagle_topk1_v2 >= 0.9 * baseline at concurrency>=1000",
        "eagle_topk1_v2 >= 0.9 * baseline at rate>=1",
    ],
)
def test_what_was_not_measured_does_not_hold(text: str) -> None:
    """A gate that nothing can be said of must not let anything pass."""
    judged = gate.judge(gate.parse(text), [contest(study())], study())
    assert not judged.holds
    assert "missing" in judged.lines[0] or "nothing was measured" in judged.lines[0]


def test_a_level_at_which_everything_failed_does_not_hold() -> None:
    """It is in no Contest, so the other levels must not speak for it; neither may another workload."""
    text = "eagle_topk1_v2 >= 0.98 * baseline at concurrency>=30"
    bad = {"verdict": {"status": "FAILED", "reasons": []}, "summary": None}
    points = [{**one, **bad} if one["load"]["concurrency"] == 100 else one for one in study()]
    judged = gate.judge(gate.parse(text), [contest(points)], points)
    assert not judged.holds
    assert judged.lines[-1] == "concurrency 100 of diverse: no Point is VALID"
    gone = [{**one, **bad, "workload": "fixed"} for one in study()]
    assert not gate.judge(gate.parse(text), [contest(study())], [*study(), *gone]).holds


def test_an_interval_that_holds_the_factor_is_not_proven() -> None:
    """The estimate decides; whether that is proven is said."""
    (line,) = gate.judge(
        gate.parse("eagle_topk1_v2 >= 1.0 * baseline at concurrency=100"), [contest(study())], study()
    ).lines
    assert "holds, not proven" in line


def test_one_start_proves_nothing() -> None:
    """Its interval speaks of that run only, however narrow it is; two starts are a guess."""
    asked = gate.parse("eagle_topk1_v2 >= 0.98 * baseline at concurrency=30")
    for blocks, proven in ((1, False), (2, False), (3, True)):
        points = study(blocks=blocks)
        (line,) = gate.judge(asked, [contest(points)], points).lines
        assert line.endswith("holds" if proven else "holds, not proven")
    assert "[1.087, 1.118]* x, 1 block" in gate.judge(asked, [contest(study(blocks=1))], []).lines[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eagle_topk1_v2 is better than baseline",
        "eagle_topk1_v2 >= baseline at concurrency>=30",
        "eagle_topk1_v2 >= 0.98 * baseline",
        "eagle_topk1_v2 >= 0 * baseline at concurrency>=30",
        "eagle_topk1_v2 >= -1 * baseline at concurrency>=30",
        "eagle_topk1_v2 >= nan * baseline at concurrency>=30",
        "a >= 1 * b at concurrency>=30; import os",
        "eagle_topk1_v2 => 0.98 * baseline at concurrency>=30",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Exit 2 with an example, before a file is read."""
    with pytest.raises(ConfigError, match="gate"):
        gate.parse(text)
