"""R5: a kill -9 between any two steps of all that a command writes leaves for every reader the old or the new."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from failpoints import killed_at
from points import point
from rows import health, row

from loadgen import claimed, dataset, evidence, resume, store
from loadgen.record import SERVER_METRICS
from loadgen.rowstream import RowSender

ASKED = [{"folder": ".", "config": {"load": {"concurrency": 2}}}]
ROWS = 5
PLACES = 88  # where `story` can be killed


def made(root: Path, name: str, **more: Any) -> dict[str, Any]:
    """A Point of a command's own folder, as point.json has it."""
    whole = point("baseline", 2, 100.0, root=str(root))
    return {**{key: value for key, value in whole.items() if key not in ("root", "folder")}, "point_id": name, **more}


def line_of(content: dict[str, Any]) -> dict[str, Any]:
    """Its line in the ledger."""
    place = {"folder": ".", "variant": "baseline", "block": 0, "concurrency": 2, "rate": None, "repeat": False}
    return {**place, "point_id": content["point_id"], "status": "VALID"}


def measure(root: Path, name: str) -> None:
    """What a Point writes, from its folder to its line, and once more when a profile was taken."""
    folder, content = store.new_folder(root, "c2"), made(root, name)
    store.write_json(root / "launch.json", {"config": {}})
    with store.marked(folder):
        writer, sender = store.RowWriter(store.stream_path(folder, 0)), RowSender()
        writer.append([row(seq, point_id=name) for seq in range(ROWS - 2)])
        writer.append_with_texts([row(ROWS - 2, point_id=name, text="word")])
        writer.close()
        sender.append_with_texts([row(ROWS - 1, point_id=name, text="word")])
        store.keep(folder, 1, sender.parcel())
    store.write_parquet(root / "server_metrics.parquet", [], SERVER_METRICS)
    store.commit_point(folder, store.requests_table(folder, None), [health(0)], content)
    store.append_line(root / store.LEDGER, line_of(content))
    store.write_json(folder / store.POINT, {**content, "profiled": True})


@pytest.fixture(scope="module")
def earlier() -> Iterator[Path]:
    """A finished command, in memory where there is a place: what a kill leaves does not depend on the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield measured(Path(folder) / "old")


@pytest.fixture
def place_of_ours(earlier: Path) -> Iterator[Path]:
    """A folder of this test's own, with a copy of the earlier command."""
    with tempfile.TemporaryDirectory(dir=earlier.parent) as folder:
        shutil.copytree(earlier, Path(folder) / "old")
        yield Path(folder)


def measured(root: Path) -> Path:
    """All that a command of one Point writes; its folder."""
    claimed.claim(root, True)
    with claimed.held(root):
        resume.begin(root, ASKED, "python -m loadgen")
        measure(root, root.name)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """Every file below, by its path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def read(tmp_path: Path) -> set[str]:
    """The Points that readers see; they agree, and each is whole."""
    rows = dataset.read_dataset(tmp_path)["point_id"].to_pylist()
    seconds = dataset.read_dataset(tmp_path, dataset.HEALTH_FILE)
    texts = [path.parent / store.TEXTS for path in dataset.point_files(tmp_path)]
    seen = {point["point_id"] for point in evidence.read([tmp_path]).points}
    assert sorted(rows) == sorted(list(seen) * ROWS)
    assert len(seconds) == len(seen)
    assert [len(path.read_text().splitlines()) for path in texts] == [2] * len(seen)
    return seen


@pytest.mark.parametrize("place", range(PLACES + 1))
def test_r05_a_kill_between_any_two_steps_leaves_the_old_or_the_new(place_of_ours: Path, place: int) -> None:
    """Readers see a Point whole or not at all, an earlier one untouched; going on measures what is missing, once."""
    below, root = place_of_ours, place_of_ours / "new"
    before = contents(below / "old")
    lived = killed_at(place, lambda: measured(root))
    assert lived == (PLACES if place == PLACES else None)
    assert contents(below / "old") == before
    whole = (root / "c2" / store.POINT).exists()
    assert read(below) == {"old", "new"} if whole else {"old"}
    if not (root / store.LEDGER).exists():
        claimed.refuse_taken(root)  # nothing of it is in the way of a first run
        claimed.claim(root, True)
    assert resume.find(root, True, ASKED) == root
    with claimed.held(root):
        resume.begin(root, ASKED, "python -m loadgen")
        assert resume.done(root) == ({resume.key_of(line_of(made(root, "new")))} if whole else set())
        cut_off = store.requests_table(root / "c2", None) if (root / "c2").exists() and not whole else []
        if not whole:
            measure(root, "again")
    assert read(below) == {"old", "new" if whole else "again"}
    assert len(resume.newest(root)) == len(resume.done(root)) == 1
    assert {path.parent for path in root.rglob("*.parquet")} <= {path.parent for path in root.rglob(store.POINT)} | {
        root
    }
    assert not [path for path in contents(root) if Path(path).name.startswith(".")]
    assert len(cut_off) in (0, ROWS - 2, ROWS - 1, ROWS)
