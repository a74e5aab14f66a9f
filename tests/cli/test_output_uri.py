"""output.uri by the command: a bucket that holds what the run's folder holds, and one that refuses it meanwhile."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import RUN_S_MAX, TINY, Ended, Run, eventually, lines_of
from test_signals import STOP_S_MAX, send

import loadgen
from loadgen.dataset import point_files, read_json

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))

from buckets import RIGHTS, Bucket, bucket

pytestmark = pytest.mark.slow

ASKED = ("+variant=baseline", *TINY, "load.concurrency=[2,3]", "load.requests=[8,9]", "cluster.workers=2")
BY_DRIVER = "from here; their node could not"


def there(one: Bucket, folder: Path) -> dict[str, Path]:
    """A copy of the bucket: the folder of each whole Point by its id."""
    one.download(str(folder))
    return {path.parent.name: path.parent for path in point_files(folder)}


def check_same(copied: dict[str, Path], results: Path) -> None:
    """Each Point of the run's folder, in a part a worker; the same rows, texts and verdicts."""
    points = {read_json(path)["point_id"]: path.parent for path in point_files(results)}
    assert points.keys() == copied.keys()
    assert len({path.parent for path in copied.values()}) == 1
    for name, ours in points.items():
        theirs = copied[name]
        assert [path.name for path in sorted(theirs.glob("requests*"))] == ["requests-0.parquet", "requests-1.parquet"]
        rows = [sorted(loadgen.read(at).to_pylist(), key=lambda row: row["seq"]) for at in (ours, theirs)]
        assert rows[0] == rows[1]
        assert {row["verdict"] for row in rows[1]} == {read_json(ours / "point.json")["verdict"]["status"]}
        texts = [sorted(b"".join(path.read_bytes() for path in at.glob("text*")).splitlines()) for at in (ours, theirs)]
        assert texts[0] == texts[1] != []
        left = {path.name for path in theirs.iterdir() if not path.name.startswith(("requests", "text"))}
        assert left == {"point.json", "health.parquet", "launch.json", "server_metrics.parquet"}
        assert not list(ours.glob("_*")), "streams go when they were read"


def test_r13_a_bucket_holds_what_the_folder_holds(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """Workers' own parts and a commit mark; the bucket's key stands nowhere."""
    with bucket() as one:
        ended = cli(*ASKED, f"output.uri='{one.uri}'", "output.text=true")
        assert ended.code in (0, 6), ended.err
        copied = there(one, tmp_path / "copy")
    assert BY_DRIVER not in ended.err
    check_same(copied, ended.results)
    files = [path for top in (ended.folder, tmp_path / "copy") for path in top.rglob("*") if path.is_file()]
    secret = RIGHTS["AWS_SECRET_ACCESS_KEY"]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert secret not in ended.err + ended.out


def test_a_bucket_that_refuses(start: Callable[..., Run], tmp_path: Path) -> None:
    """Exit 5 after the first Point, which stands; with resume=true it goes there as it is, and the second is measured.

    A bucket that refuses the first file starts nothing. A part that only its node may not write the driver writes.
    """
    results = tmp_path / "results"
    with bucket() as one:
        asked = (*ASKED, f"output.uri='{one.uri}'", "output.text=true", f"hydra.run.dir={results}")
        one.refused = lambda path: "_loadgen" not in path
        ended = start(*asked).end()
        assert ended.code == 5, ended.err
        assert f"the Point is in {results}/c2: resume=true catches up" in ended.err
        (first,) = [read_json(path) for path in point_files(results)]
        assert first["verdict"]["status"] in ("VALID", "INVALID")
        assert lines_of(results / "ledger.jsonl")[0]["exit_code"] == 5
        one.refused = lambda _: True
        without = start(*asked, "resume=true").end()
        assert (without.code, len(without.err.strip().splitlines())) == (5, 1), without.err
        assert without.err.startswith(f"loadgen: cannot write {one.uri}: ")
        seen: list[str] = []

        def first_time_of_a_part(path: str) -> bool:
            ours = path.endswith("-c3/requests-1.parquet")
            seen.append(path) if ours else None
            return ours and len(seen) == 1

        one.refused = first_time_of_a_part
        results = results.rename(tmp_path / "moved")
        again = start(*asked[:-1], f"hydra.run.dir={results}", "resume=true").end()
        assert again.code in (0, 6), again.err
        assert f"{results}/c2 is in {one.uri} now" in again.err
        copied = there(one, tmp_path / "copy")
    assert f"worker 1: written to {one.uri} from here" in again.err
    assert first["point_id"] in copied
    check_same(copied, results)


def test_r06_while_it_is_written_there(start: Callable[..., Run], tmp_path: Path) -> None:
    """Ctrl-C while the bucket does not answer: 130 soon, the Point stands with its verdict and is VALID or not."""
    with bucket() as one:
        asked = (f"output.uri='{one.uri}'", f"hydra.run.dir={tmp_path / 'results'}")
        run = start(*ASKED, *asked)
        one.holds = "requests-"
        eventually(lambda: one.held.is_set() or run.process.poll() is not None, RUN_S_MAX, "the first part")
        assert one.held.is_set(), run.err
        send(run, signal.SIGINT)
        ended = run.end(STOP_S_MAX)
        one.go_on.set()
        assert ended.code == 130, ended.err
        (point,) = [read_json(path) for path in point_files(tmp_path / "results")]
        assert point["verdict"]["status"] in ("VALID", "INVALID")
        assert not list((tmp_path / "results").rglob("_*"))
        assert start(*ASKED, *asked, "resume=true").end().code in (0, 6)
        assert point["point_id"] in there(one, tmp_path / "copy")
