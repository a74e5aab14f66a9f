"""A real SGLang profiled by the tool's own command: its trace comes, its shares add up, no row is of it."""

from pathlib import Path

import pytest
from engines import require_nothing_left, run, unprepared

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason := unprepared("sglang", "tiny")), reason=reason or "prepared"),
]

STEPS = 6


def test_a_profiled_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verify and draft forwards in the table, attention and matrix work in both, no row of the stretch."""
    chain = ("+variant=eagle1_chain", "engine=sglang_cpu", "model=tiny", "workload.max_tokens=32")
    asked = ("load.concurrency=2", "load.requests=4", "engine.profile=true", f"engine.profile_steps={STEPS}")
    study = run(tmp_path, *chain, *asked)
    with capsys.disabled():
        print(f"\nprofiled in {study.seconds:.0f} s, exit {study.code}\n{study.out}")
    assert study.code in (0, 6), study.err
    (point,) = study.points()
    profile = point["summary"]["profile"]
    assert profile["trace"] is not None, profile
    assert (study.folder / "c2" / profile["trace"]).resolve().is_file()
    assert (profile["device"], profile["traces"], profile["forward"]) == ("cpu", 1, "verify")
    assert 1 <= sum(profile["steps"].values()) <= STEPS + 1
    for table in (profile["phases"], profile["cycle"], profile["kinds"]):
        assert sum(table.values()) == pytest.approx(1)
    assert min(profile["cycle"]["verify"], profile["cycle"]["draft"]) > 0.1
    assert profile["cycle"].get("outside", 0) < 0.2
    assert min(profile["kinds"]["attention"], profile["kinds"]["matrix"]) > 0.02
    assert profile["busy_ms"] <= profile["span_ms"]
    assert "the verify forward is " in study.out
    assert len(study.rows()) == point["summary"]["requests"] == 4
    require_nothing_left()
