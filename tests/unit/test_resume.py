"""Going on: the same question is the same configuration and the same content of its files."""

from pathlib import Path

import pytest
from test_config import made

from loadgen import resume
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
