"""R5: a disk that is too small or becomes full, the driver's and a worker's: exit 5, the reason, all that is known."""

import contextlib
import re
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from running import Ended, eventually

from loadgen.crew import WORKER_TITLE
from loadgen.dataset import point_files, read_dataset, read_json, read_ledger, read_rows
from loadgen.footprint import titled
from loadgen.store import LEDGER, RESERVE

pytestmark = pytest.mark.usefixtures("one_ray")

ASKED = ("+variant=baseline", "engine=sim", "engine.sim_speed=8", "workload.max_tokens=48", "output.quiet=true")
FIRST, SECOND = 6, 80
TWO = (
    *ASKED,
    "load.concurrency=[1,2]",
    f"load.requests=[{FIRST},{SECOND}]",
)  # a moment, then some three seconds: rows are written once a second
DISK = "96m"
BLOCK = 4096  # bytes
EVENT_S_MAX = 60.0
KEPT = pytest.param(True, id="with room kept")
NOTHING_LEFT = pytest.param(False, id="with nothing left", marks=pytest.mark.slow)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, large enough for the look before the start."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system wants root's right to mount: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Take all of it, to the last block."""
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)


@contextlib.contextmanager
def once_rows_are_there(folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Beside the block: when a request of the Point in `folder` is on the disk, `act`."""

    def rows() -> bool:
        return any(len(read_rows(path)) for path in folder.glob("_*.arrows"))

    def beside() -> None:
        eventually(rows, EVENT_S_MAX, "a row")
        act()

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def level_rows(out: str) -> dict[int, str]:
    """The lines of the levels' table by concurrency."""
    lines = [line for line in out.splitlines() if re.match(r"\s+\d+ ", line)]
    return {int(line.split()[0]): line for line in lines}


def test_r05_too_small_a_disk_is_refused_before_the_start(small_disk: Path, cli: Callable[..., Ended]) -> None:
    """Twice the estimate is not free: exit 5, one sentence with both and what to change, and no server."""
    ended = cli(*ASKED, "load.concurrency=4", "load.requests=20000", f"hydra.run.dir={small_disk}/run")
    assert ended.code == 5
    (told,) = (line for line in ended.err.splitlines() if line.startswith("loadgen: "))
    assert re.search(r"disk for results: 9\d MiB free, needed: \d+ MiB \(2 times an estimate of 20000 requests", told)
    assert "make room, choose another folder with hydra.run.dir=" in told
    assert {path.name for path in (small_disk / "run").iterdir()} == {"ledger.jsonl", "runs.json"}


@pytest.mark.parametrize(
    "kept",
    [pytest.param(True, id="with room kept"), pytest.param(False, id="with nothing left", marks=pytest.mark.slow)],
)
def test_r05_a_disk_that_becomes_full(small_disk: Path, cli: Callable[..., Ended], kept: bool) -> None:
    """All tables are printed, exit 5; what was whole stays, and goes on when there is room.

    The room that was kept takes the reason: where that is taken too, it is printed.
    """
    run = small_disk / "run"

    def full() -> None:
        if not kept:
            (run / RESERVE).unlink()
            with (run / LEDGER).open("ab") as ledger:  # to the end of its last block, which is its own already
                ledger.write(b"\n" * (BLOCK - ledger.tell() % BLOCK))
        fill(small_disk)

    with once_rows_are_there(run / "c2", full):
        ended = cli(*TWO, f"hydra.run.dir={run}")
    assert ended.code == 5, ended.err
    assert set(level_rows(ended.out)) == {1, 2}
    assert "FAILED" in level_rows(ended.out)[2]
    assert "storage: worker 0: cannot write" in ended.out
    assert "No space left on device" in ended.out
    assert f"on {socket.gethostname()}" in ended.out
    lines = read_ledger(run / LEDGER)
    first = (run / "c1/point.json").read_bytes()
    assert read_dataset(run)["concurrency"].to_pylist().count(1) == FIRST
    if kept:
        assert [line["exit_code"] for line in lines][1:] == [5]
        assert [reason["rule"] for reason in read_json(run / "c2/point.json")["verdict"]["reasons"]] == ["storage"]
    else:
        assert len(lines) == 1
        return
    (small_disk / "filler").unlink()
    again = cli(*TWO, f"hydra.run.dir={run}", "resume=true")
    assert again.code in (0, 6), again.err
    assert lines[0]["status"] != "VALID" or (run / "c1/point.json").read_bytes() == first
    assert not list(run.rglob(RESERVE))
    assert read_ledger(run / LEDGER)[-1]["status"] in ("VALID", "INVALID")


@pytest.mark.slow  # of the same shape as a disk that becomes full, where no disk can be mounted
def test_r05_a_worker_that_may_not_write_more(tmp_path: Path, cli: Callable[..., Ended]) -> None:
    """Told as storage with file and host; the rows until then are in the Point, and no other one is begun."""
    run = tmp_path / "run"
    soft: list[tuple[psutil.Process, tuple[int, int]]] = []

    def limit() -> None:
        for child in titled(WORKER_TITLE):
            soft.append((child, child.rlimit(psutil.RLIMIT_FSIZE)))
            child.rlimit(psutil.RLIMIT_FSIZE, (1, soft[-1][1][1]))

    with once_rows_are_there(run / "c1", limit):
        ended = cli(*ASKED, "load.concurrency=[1,2]", f"load.requests=[{SECOND},{FIRST}]", f"hydra.run.dir={run}")
    for child, before in soft:  # it serves the next test
        with contextlib.suppress(psutil.NoSuchProcess):
            child.rlimit(psutil.RLIMIT_FSIZE, before)
    assert soft
    assert ended.code == 5, ended.err
    (line,) = read_ledger(run / LEDGER)
    words = f"worker 0: cannot write {run}/c1/_requests_0.arrows on {socket.gethostname()}: File too large"
    assert words in line["reason"]
    assert line["exit_code"] == 5
    (point,) = map(read_json, point_files(run))
    assert (point["verdict"]["status"], point["summary"]) == ("FAILED", None)
    assert "ok" in read_dataset(run)["outcome"].to_pylist()


def test_r05_a_point_that_cannot_be_kept_is_printed(tmp_path: Path, cli: Callable[..., Ended]) -> None:
    """The disk takes small files and not the rows: the numbers stand on stdout and in point.json, marked FAILED."""
    run, (soft, hard) = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        ended = cli(*ASKED, "load.concurrency=[1,2]", f"load.requests={FIRST}", f"hydra.run.dir={run}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ended.code == 5, ended.err
    point = read_json(run / "c1/point.json")
    assert point["verdict"]["status"] == "FAILED"
    assert point["summary"]["output_tokens_per_s"] > 0
    assert point["files"]["requests"] is None
    assert "FAILED" in level_rows(ended.out)[1]
    assert re.search(r"requests.parquet: File too large; make room", ended.out)
    assert {path.name for path in (run / "c1").iterdir()} == {"point.json", "_requests_0.arrows"}
    assert len(read_rows(run / "c1/_requests_0.arrows")) == FIRST
    assert [line["exit_code"] for line in read_ledger(run / LEDGER)] == [5]
