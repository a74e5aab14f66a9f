"""The end of a command: a comparison where there is one to make, else in one line why not; never another exit code."""

import resource
from datetime import UTC, datetime
from pathlib import Path

import pytest
from points import point
from test_compare import write
from test_config import made

from loadgen import ending, store, verdict
from loadgen.asked import Run
from loadgen.config import Level
from loadgen.dataset import read_rows
from loadgen.errors import StorageError
from loadgen.ledger import Ledger
from loadgen.point import keep_what_is_left
from loadgen.rowstream import RowSender
from loadgen.watch import Watch

BOTH = [made("+variant=baseline", "load.concurrency=2"), made("+variant=eagle_topk1_v2", "load.concurrency=2")]


def line(variant: str, **more: object) -> dict[str, object]:
    return {
        "folder": "0",
        "variant": variant,
        "workload": "diverse",
        "block": 0,
        "concurrency": 2,
        "rate": None,
        "point_id": None,
        "status": "FAILED",
        "reason": "no",
        "exit_code": 3,
        **more,
    }


def told(root: Path, capsys: pytest.CaptureFixture[str], configs: object = BOTH, interrupted: bool = False) -> str:
    root.mkdir(exist_ok=True)
    for name in ("baseline", "eagle_topk1_v2"):
        store.append_line(root / store.LEDGER, line(name))
    ending.tell(configs, Ledger(root, set()), "python -m loadgen -m x", interrupted)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_without_a_valid_point_one_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All Points FAILED: the ledger, why nothing is compared, the command that measures them again."""
    lines = told(tmp_path / "r", capsys).splitlines()
    assert [text for text in lines if "comparison" in text] == ["no comparison: no Point is VALID"]
    assert lines[-1].endswith("python -m loadgen -m x resume=true")
    assert "2 of 2 Points not VALID" in lines[-1]


def test_a_refusal_is_one_line(tmp_path: Path) -> None:
    """Whatever speaks against a comparison stands in a single line."""
    text = ending.compared(tmp_path)
    assert text.startswith("no comparison: no point.json lies below")
    assert "\n" not in text


def test_points_that_are_not_alike_are_told_in_one_line(tmp_path: Path) -> None:
    """A grid over something that must match: what differs, and the name that allows it."""
    of = [{"engine.version": version} for version in ("0.5.9", "0.5.23")]
    pair = [point("baseline", 1, 90.0, of=of[0]), point("eagle_topk1_v2", 1, 99.0, of=of[1])]
    text = ending.compared(write(tmp_path, pair))
    assert text.startswith("no comparison: these results are not alike")
    assert 'engine.version: "0.5.9" in ' in text
    assert text.endswith("--allow engine.version")
    assert "\n" not in text


def test_the_end_lists_nothing_twice(tmp_path: Path) -> None:
    """What is not VALID stands in the tables above the comparison already."""
    bad = point("eagle_topk1_v2", 2, 99.0, status="INVALID")
    text = ending.compared(write(tmp_path, [point("baseline", 1, 90.0), point("eagle_topk1_v2", 1, 99.0), bad]))
    assert "for throughput: " in text
    assert "not VALID" not in text


def test_nothing_is_compared_without_a_pair_or_after_a_signal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One variant has nothing beside it; who interrupts is told how to compare later."""
    assert "compari" not in told(tmp_path / "one", capsys, BOTH[1:])
    root = tmp_path / "two"
    assert f"python -m loadgen.compare {root}\n" in told(root, capsys, interrupted=True)


def test_r05_what_the_disk_did_not_take_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Point whose files and line could not be written stands in the tables, and its code in the ledger's codes."""
    ledger, (run, level) = Ledger(tmp_path, set()), (Run(BOTH[0], tmp_path / "0"), Level(2, None))
    whole = {**point("baseline", 2, 1234.0, root=str(tmp_path)), "started_at": datetime.now(UTC)}
    whole["verdict"] = {"status": "FAILED", "reasons": [{"rule": "storage", "measured": "no room"}], "margins": []}
    (tmp_path / store.LEDGER).touch()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StorageError, match=r"ledger\.jsonl: File too large"):
            ledger.keep(run, level, whole, 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    ending.tell(BOTH[:1], ledger, "python -m loadgen x", False)
    out = capsys.readouterr().out
    assert "1 234" in out
    assert "no room" in out
    assert "1 of 1 Point not VALID" in out
    assert list(ledger.codes.values()) == [5]
    assert (tmp_path / store.LEDGER).read_bytes() == b""


def test_r05_the_last_rows_of_a_worker_elsewhere(tmp_path: Path) -> None:
    """Where the driver's disk does not take them the Point is FAILED by storage; a reason that was there stays."""
    for earlier in (None, verdict.interrupted(2)):
        watch = Watch({}, [], {0: {"worker": 0, "left": RowSender().parcel()}, 1: {"worker": 1}}, earlier)
        keep_what_is_left(watch, tmp_path / "gone")
        assert watch.failed
        assert (watch.failed.exit_code, watch.failed.reasons[0].rule) == (
            (130, "interrupted") if earlier else (5, "storage")
        )
    watch = Watch({}, [], {0: {"worker": 0, "left": RowSender().parcel()}})
    keep_what_is_left(watch, tmp_path)
    assert watch.failed is None
    assert len(read_rows(store.stream_path(tmp_path, 0))) == 0
