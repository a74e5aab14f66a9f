"""The end of a command: a comparison where there is one to make, else in one line why not; never another exit code."""

from pathlib import Path

import pytest
from test_config import made

from loadgen import ending, store

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
    ending.tell(configs, root, "python -m loadgen -m x", interrupted)  # type: ignore[arg-type]
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


def test_nothing_is_compared_without_a_pair_or_after_a_signal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One variant has nothing beside it; who interrupts is told how to compare later."""
    assert "compari" not in told(tmp_path / "one", capsys, BOTH[1:])
    root = tmp_path / "two"
    assert f"python -m loadgen.compare {root}\n" in told(root, capsys, interrupted=True)
