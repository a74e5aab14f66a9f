"""output.uri: a Point on another file system is whole or is none, whoever wrote its parts, and reads like one here."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from buckets import Bucket, bucket
from points import point
from rows import health, row

import loadgen
from loadgen import compare, duty, evidence, publish, remote, store
from loadgen.config import Config, Output
from loadgen.dataset import read_json
from loadgen.errors import StorageError
from loadgen.rowstream import RowSender
from server import apart

ROWS, WORKERS = 6, 3
WINDOW_NS = (0, 3_000_000_000)
NAME = "baseline-1-c2"
HOME = f"results-12345678/{NAME}"


@pytest.fixture(params=["file", "s3"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bucket]:
    """An empty folder on another file system."""
    if request.param == "file":
        (tmp_path / "elsewhere").mkdir()
        yield Bucket(f"file://{tmp_path}/elsewhere")
        return
    with bucket() as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Point that is whole on this disk, beside what its three workers have written; the last one had no request."""
    place = store.new_folder(tmp_path / "run", "c2")
    for worker in range(WORKERS):
        rows = store.RowWriter(store.stream_path(place, worker))
        for seq in range(worker, ROWS, 2) if worker < 2 else ():
            rows.append_with_texts([row(seq, 1000 * seq, worker=worker, point_id=NAME, text=f"answer {seq}")])
        rows.close()
    files = {"requests": "requests.parquet", "health": "health.parquet", "launch": "../launch.json"}
    made = {**point("baseline", 2, 100.0), "point_id": NAME}
    told = {name: value for name, value in made.items() if name not in ("root", "folder")}
    content = {**told, "files": {**files, "server_log": None, "server_metrics": "../server_metrics.parquet"}}
    store.write_json(place.parent / "launch.json", {"config": {}})
    table = store.requests_table(place, WINDOW_NS)
    store.commit_point(place, table, [health(0)], content, streams_needed=True)
    return place


def judged(elsewhere: Bucket, home: str = HOME) -> remote.Judged:
    return remote.Judged(elsewhere.uri, home, "VALID", WINDOW_NS)


def there(elsewhere: Bucket, tmp_path: Path) -> Path:
    """What is below the address, on this disk."""
    copy = tmp_path / f"copy-{len(list(tmp_path.glob('copy-*')))}"
    elsewhere.download(str(copy))
    return copy


def by_seq(folder: Path) -> list[dict[str, Any]]:
    return sorted(loadgen.read(folder).to_pylist(), key=lambda one: one["seq"])


def texts(folder: Path) -> list[bytes]:
    return sorted(b"".join(path.read_bytes() for path in folder.rglob("text*.jsonl")).splitlines())


def test_parts_by_workers_are_the_points_own_rows(elsewhere: Bucket, folder: Path, tmp_path: Path) -> None:
    """Each worker's rows with window and verdict as in the driver's table; nothing counts before the commit mark."""
    written = {worker: remote.part(judged(elsewhere), worker, folder) for worker in range(WORKERS)}
    assert written == {0: 3, 1: 3, 2: 0}
    before = there(elsewhere, tmp_path)
    assert sorted(path.name for path in (before / HOME).iterdir()) == [
        *(f"requests-{worker}.parquet" for worker in range(WORKERS)),
        *(f"text-{worker}.jsonl" for worker in range(2)),
    ]
    assert by_seq(before) == []
    assert remote.complete(judged(elsewhere), folder, written) == []
    after = there(elsewhere, tmp_path)
    assert by_seq(after) == by_seq(folder)
    assert {one["in_window"] for one in by_seq(after)} == {True, False}
    assert texts(after) == texts(folder) != []
    assert remote.complete(judged(elsewhere), folder, {}) is None, "it is whole, and not written again"


def test_parts_by_the_driver_are_the_same(elsewhere: Bucket, folder: Path, tmp_path: Path) -> None:
    """Out of the Point's table: for a worker that wrote nothing, fewer rows than it has, or where nobody sees it."""
    for worker in (0, 1):
        remote.part(judged(elsewhere), worker, folder)
    ours = there(elsewhere, tmp_path)
    assert remote.complete(judged(elsewhere), folder, {0: 2}) == [0, 1]
    theirs = there(elsewhere, tmp_path)
    for name in ("requests-0.parquet", "requests-1.parquet"):
        read = [pq.ParquetFile(copy / HOME / name).read() for copy in (ours, theirs)]
        assert read[0].equals(read[1])
        assert [field.metadata for field in read[0].schema] == [field.metadata for field in read[1].schema]
    assert by_seq(theirs) == by_seq(folder)
    assert texts(theirs) == texts(folder)
    assert remote.complete(judged(elsewhere, "other/unseen"), folder, {0: 3, 1: 3}) == [0, 1]


def test_a_stream_that_is_not_here_is_no_part(elsewhere: Bucket, folder: Path, tmp_path: Path) -> None:
    """What comes after the streams have gone must not write an empty part over a full one."""
    remote.part(judged(elsewhere), 0, folder)
    store.drop_streams(folder)
    with pytest.raises(StorageError, match="holds no rows of worker 0"):
        remote.part(judged(elsewhere), 0, folder)
    assert pq.ParquetFile(there(elsewhere, tmp_path) / HOME / "requests-0.parquet").metadata.num_rows == 3


def test_a_copy_is_read_by_our_own_tools(elsewhere: Bucket, folder: Path, tmp_path: Path) -> None:
    """compare and evidence take the parts for the Point that they are, and commands for what they were."""
    for command in ("one", "other"):
        store.write_json(folder / "point.json", {**read_json(folder / "point.json"), "point_id": command})
        remote.complete(judged(elsewhere, f"{command}/{NAME}"), folder, {})
    copy = there(elsewhere, tmp_path)
    (mine,), theirs = (evidence.read([at]).points for at in (folder.parent, copy))
    for one in theirs:
        found = {name: sorted(values) for name, values in evidence.times(one).items()}
        assert found == {name: sorted(values) for name, values in evidence.times(mine).items()}
    assert len({one["root"] for one in theirs}) == 2
    assert len(loadgen.read(copy, "health.parquet")) == 2
    assert read_json(copy / "one" / NAME / "point.json")["files"]["requests"] == "requests-[0-9]*.parquet"
    assert compare.main([str(copy)]) == 0


def test_duckdb_leaves_out_what_is_not_whole(elsewhere: Bucket, folder: Path, tmp_path: Path) -> None:
    """README's query."""
    remote.complete(judged(elsewhere), folder, {})
    other = store.RowWriter(store.stream_path(tmp_path / "other", 0))
    other.append([row(0, worker=0, point_id="unfinished")])
    other.close()
    remote.part(judged(elsewhere, "results-12345678/unfinished"), 0, tmp_path / "other")
    copy = there(elsewhere, tmp_path)
    query = (Path(__file__).parents[2] / "README.md").read_text().split("<!-- whole Points of a bucket -->")[1]
    query = query.split("```")[1].removeprefix("sql\n").replace("s3://bucket/loadgen", str(copy))
    assert duckdb.sql(query).fetchall() == [("baseline", 1, 3)]


def test_a_file_beside_the_table_is_not_read(folder: Path) -> None:
    """What a person leaves in a Point's folder is theirs, also where it is called much like a part."""
    before = by_seq(folder)
    pq.write_table(pq.ParquetFile(folder / "requests.parquet").read(), folder / "requests-filtered.parquet")
    assert by_seq(folder) == before


def test_rows_are_kept_apart_as_long_as_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes that travel; a disk that refuses them ends that, and nothing else."""
    monkeypatch.setattr(apart.tempfile, "tempdir", str(tmp_path))
    sender, kept = RowSender(), duty.Kept(1)
    for seq in range(3):
        sender.append_with_texts([row(seq, worker=1, text="word")])
        kept.add(parcel := sender.parcel())
        if seq != 1:  # one that did not arrive comes again
            sender.arrived(parcel)
    assert kept.folder
    assert len(store.requests_table(kept.folder, None, 1)) == 3
    assert len(list(remote.dataset.text_lines(kept.folder, 1))) == 3
    stream, where = store.stream_path(kept.folder, 1), kept.folder
    stream.unlink()
    stream.mkdir()
    kept.add(sender.parcel())
    assert (kept.folder, where.exists()) == (None, False)
    kept.add(sender.parcel())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda uri: uri.replace("s3://results", "s3://elsewhere"), "NO_SUCH_BUCKET"),
        (lambda uri: "file:///proc/nowhere/x", "No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(changed: Callable[[str], str], said: str) -> None:
    """The address, what the file system says, what to look at; exit 5."""
    with bucket() as one, pytest.raises(StorageError) as told:
        remote.require(changed(one.uri))
    assert said in str(told.value)
    assert str(told.value).startswith(f"cannot write {changed(one.uri)}: ")
    assert "\n" not in str(told.value)


def test_a_worker_of_which_the_point_has_nothing(elsewhere: Bucket, folder: Path, tmp_path: Path) -> None:
    """Its node has rows that never came to the driver: the Point is what the driver has, there too."""
    lost = store.RowWriter(store.stream_path(tmp_path / "lost", 2))
    lost.append_with_texts([row(9, worker=2, point_id=NAME, text="lost")])
    lost.close()
    written = {worker: remote.part(judged(elsewhere), worker, folder) for worker in (0, 1)}
    written[2] = remote.part(judged(elsewhere), 2, tmp_path / "lost")
    assert remote.complete(judged(elsewhere), folder, written) == [2]
    copy = there(elsewhere, tmp_path)
    assert by_seq(copy) == by_seq(folder)
    assert texts(copy) == texts(folder)


def test_parts_of_many_workers(tmp_path: Path) -> None:
    """Each has its own rows, in a row group that is no crumb."""
    folder, workers = store.new_folder(tmp_path / "run", "c2"), 19
    rows = store.RowWriter(store.stream_path(folder, 0))
    rows.append([row(seq, worker=seq % workers, point_id=NAME) for seq in range(100 * workers)])
    rows.close()
    told = {**point("baseline", 2, 100.0), "files": {"requests": "requests.parquet"}}
    store.commit_point(folder, store.requests_table(folder, None), [health(0)], told)
    one = Bucket(f"file://{tmp_path}/elsewhere")
    assert remote.complete(judged(one), folder, {}) == list(range(workers))
    assert by_seq(tmp_path / "elsewhere") == by_seq(folder)
    parts = [pq.ParquetFile(path).metadata for path in (tmp_path / "elsewhere" / HOME).glob("requests-*.parquet")]
    assert {(part.num_rows, part.num_row_groups) for part in parts} == {(100, 1)}


def test_a_table_that_is_broken_is_one_sentence(elsewhere: Bucket, folder: Path) -> None:
    """The Point is named, and has no commit mark there."""
    (folder / "requests.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(StorageError, match=f"cannot read {folder}"):
        remote.complete(judged(elsewhere), folder, {})


def test_a_bucket_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence after a bound of ours: a library's own may be a quarter of an hour."""
    monkeypatch.setattr(publish, "REQUIRE_S_MAX", 0.5)
    with bucket() as one:
        one.holds = "_loadgen"
        with pytest.raises(StorageError, match="no answer within"):
            publish.require([replace(Config(), output=Output(uri=one.uri))])
        assert one.held.is_set()
