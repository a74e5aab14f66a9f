"""R8: the log of a server on a node that has not the driver's disk, whose owner was killed with its driver."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fakes import age

from server import apart
from server.stop import leftovers

ROOT = Path(__file__).parent.parent.parent
OWNER = "import time; from server import apart; print(apart.new(), flush=True); time.sleep(600)"


def test_r08_folders_without_an_owner_go_with_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day old: that of somebody who lives stays, and what is called nearly so; whose number is another's goes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "text": True}
    owners = [subprocess.Popen([sys.executable, "-c", OWNER], env=environment, **pipes) for _ in range(2)]
    try:
        folders = [Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout]
        for folder in folders:
            (folder / "server.log").write_text("its last words")
        folders.append(tmp_path / f"{apart.PREFIX}{owners[1].pid}-1-another")
        folders.append(tmp_path / f"{apart.PREFIX}notes")
        for folder in folders[2:]:
            folder.mkdir()
        age(*folders[1:], folders[1] / "server.log")
        assert leftovers() == []
        assert [folder.exists() for folder in folders] == [True, True, False, True]
        owners[0].kill()
        owners[0].wait()
        assert leftovers() == []
        assert folders[0].exists(), "its last words are not a day old"
        age(folders[0], folders[0] / "server.log")
        assert leftovers() == []
        assert [folder.exists() for folder in folders] == [False, True, False, True]
    finally:
        for owner in owners:
            owner.kill()
            owner.wait()
