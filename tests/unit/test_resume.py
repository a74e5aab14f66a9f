"""Going on: the same question is the same configuration and the same content of its files."""

from pathlib import Path

import pytest
from test_config import made

from loadgen import resume, store
from loadgen.errors import ConfigError


def test_a_file_of_another_content_is_another_question(tmp_path: Path) -> None:
    """A trace that was changed under its name must not let old Points stand for it."""
    trace, root = tmp_path / "t.jsonl", tmp_path / "day" / "time"
    trace.write_text("first")
    asked = [made("+variant=baseline", "load=open", f"load.trace={trace}")], [Path()], ["hash"]
    root.mkdir(parents=True)
    resume.remember(root, resume.question(*asked), "python -m loadgen")
    assert resume.find(root, True, resume.question(*asked)) == root
    trace.write_text("other")
    with pytest.raises(ConfigError, match="prompts and files; run it once without resume=true"):
        resume.find(root, True, resume.question(*asked))


def test_a_repetition_is_a_point_of_its_own(tmp_path: Path) -> None:
    """Also in a run that calls its folder as that of the repetition is called, and in ledgers older than these."""
    line = {"folder": "drift", "variant": "baseline", "block": 0, "concurrency": 1, "rate": None, "status": "VALID"}
    again = {**line, "repeat": True}
    assert resume.key_of(again) != resume.key_of(line) == resume.key_of({**line, "repeat": False})
    for told in (line, {**again, "status": "INTERRUPTED"}):
        store.append_line(tmp_path / store.LEDGER, told)
    assert resume.done(tmp_path) == {resume.key_of(line)}
    assert len(resume.newest(tmp_path)) == 2


def test_drift_is_part_of_the_question(tmp_path: Path) -> None:
    """A command that asks for another repetition is not gone on with."""
    asked = [
        resume.question([made("+variant=baseline", f"drift={levels}")], [Path()], ["hash"]) for levels in ("[]", "[1]")
    ]
    resume.remember(tmp_path, asked[0], "python -m loadgen")
    assert resume.find(tmp_path, True, asked[0]) == tmp_path
    with pytest.raises(ConfigError, match="same configuration"):
        resume.find(tmp_path, True, asked[1])
