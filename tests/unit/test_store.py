"""What is on disk is whole, of one schema and readable by everybody's tools, whatever happened while it was written."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from rows import IDENTITY, failure, health, row

from loadgen import claimed, dataset, store
from loadgen.columns import columns, fitted, schema, table
from loadgen.errors import ConfigError, StorageError
from loadgen.record import HEALTH, REQUEST, REQUESTS, SCHEMA_VERSION, Column
from loadgen.rowstream import RowSender

ROWS = store.IDENTITY + REQUEST
CHILD_S_MAX = 60


def point_of(status: str = "VALID") -> dict:
    return {"schema_version": SCHEMA_VERSION, "verdict": {"status": status, "reasons": []}}


def commit(folder: Path, rows: list[dict], window_ns: tuple[int, int] | None = None, status: str = "VALID") -> None:
    writer = store.RowWriter(store.stream_path(folder, 0))
    writer.append(rows)
    writer.close()
    store.commit_point(folder, store.requests_table(folder, window_ns), [health(1000)], point_of(status))


def child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python that can import what this test can."""
    paths = os.pathsep.join([str(Path(store.__file__).parents[1]), str(Path(__file__).parent)])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths},
        timeout=CHILD_S_MAX,
        capture_output=True,
        text=True,
        check=False,
    )


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_k01_a_column_that_is_all_null_keeps_its_type(tmp_path: Path) -> None:
    """A Point without failures and one with a failure are read together, in either order."""
    for first, second in (("a", "b"), ("d", "c")):
        commit(tmp_path / first, [row(seq) for seq in range(10)])
        commit(tmp_path / second, [failure(0, 0, "http_status", error="429 slow down")])
    paths = [tmp_path / name / "requests.parquet" for name in "abcd"]
    for order in (paths, paths[::-1]):
        read = pa.dataset.dataset([str(path) for path in order]).to_table()
        assert read.schema.field("error").type == pa.string()
        assert read["error"].to_pylist().count("429 slow down") == 2


def test_k02_a_key_that_first_appears_later_is_kept() -> None:
    """Columns come from the schema, not from the first row."""
    read = table([{"seq": 0}, {"seq": 1, "http_status": 429}], ROWS)
    assert read["http_status"].to_pylist() == [None, 429]


def test_k02_a_key_without_a_column_is_refused() -> None:
    """A value that Arrow would drop without a word is an error that names it."""
    with pytest.raises(ValueError, match="queue_time"):
        table([{"seq": 0}, {"seq": 1, "queue_time": 3}], ROWS)


@pytest.mark.parametrize("old_first", [True, False])
def test_k03_old_and_new_runs_are_read_together(tmp_path: Path, old_first: bool) -> None:
    """A column that an older version did not have is null in its rows; none is dropped, in either order."""
    old, new = (tmp_path / name for name in (("a", "b") if old_first else ("b", "a")))
    commit(old, [row(0)])
    commit(new, [row(1)])
    shrunk = pq.read_table(old / "requests.parquet").drop_columns(["refill_ns"])
    pq.write_table(shrunk, old / "requests.parquet")
    read = dataset.read_dataset(tmp_path)
    assert dict(zip(read["seq"].to_pylist(), read["refill_ns"].to_pylist(), strict=True)) == {0: None, 1: 1_000_000}


def test_k03_the_schema_version_is_in_the_file(tmp_path: Path) -> None:
    """Readers of the future can tell what they read; units and meanings stand at the columns."""
    commit(tmp_path / "a", [row(0)])
    read = pq.read_schema(tmp_path / "a" / "requests.parquet")
    assert read.metadata[b"schema_version"] == str(SCHEMA_VERSION).encode()
    assert read.field("sent_ns").metadata[b"unit"] == b"nanoseconds"
    assert b"first byte" in read.field("sent_ns").metadata[b"doc"]


def test_k04_a_killed_writer_loses_at_most_one_batch_and_poisons_nothing(tmp_path: Path) -> None:
    """After kill -9 at half of 1000 requests the rows are readable, and so is the folder, also for the next run."""
    commit(tmp_path / "before", [row(0)])
    code = """
        import os, signal, sys
        from pathlib import Path
        from loadgen import store
        from rows import row
        writer = store.RowWriter(store.stream_path(Path(sys.argv[1]), 0))
        for seq in range(1000):
            writer.append([row(seq)])
            if seq == 499:
                os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = tmp_path / "killed"
    assert child(code, killed).returncode == -signal.SIGKILL
    assert len(store.requests_table(killed, None)) == 500
    assert len(dataset.read_dataset(tmp_path)) == 1
    assert not list(tmp_path.rglob("*.parquet.tmp"))
    commit(tmp_path / "after", [row(0)])
    assert len(dataset.read_dataset(tmp_path)) == 2
    assert pa.dataset.dataset(str(killed), format="parquet").files == []


def test_k04_a_stream_cut_anywhere_gives_its_whole_batches(tmp_path: Path) -> None:
    """A cut inside a batch, inside the head, or before the first byte is no error."""
    path = tmp_path / "_requests_0.arrows"
    writer = store.RowWriter(path)
    sizes = [path.stat().st_size]
    for seq in range(3):
        writer.append([row(seq)])
        sizes.append(path.stat().st_size)
    writer.close()
    whole = path.read_bytes()
    for cut in [0, 1, 100, *sizes, *(size + 1 for size in sizes), *(size - 1 for size in sizes), len(whole)]:
        path.write_bytes(whole[:cut])
        expected = max(0, sum(cut >= size for size in sizes) - 1)
        assert dataset.read_rows(path)["seq"].to_pylist() == list(range(expected)), cut


def test_k06_odd_characters_stay_in_columns_and_out_of_paths(tmp_path: Path) -> None:
    """A name with slashes becomes one folder level; its value is exact for every reader."""
    model = "Qwen/Qwen3-0.6B a b=c%"
    folder = store.new_folder(tmp_path, model)
    assert folder.parent == tmp_path
    commit(folder, [row(0, model=model)])
    file = str(folder / "requests.parquet")
    assert pq.read_table(file)["model"].to_pylist() == [model]
    assert duckdb.sql(f"select model from '{file}'").fetchall() == [(model,)]


@pytest.mark.parametrize("text", ["../../x", ".hidden", "_hidden", "", "a/b", "é" * 300, "a\nb", "variant=1"])
def test_k06_every_text_gives_one_plain_folder_name(text: str) -> None:
    """No name leads out of the folder or hides from readers."""
    name = store.folder_name(text)
    assert name
    assert len(name) <= store.FOLDER_NAME_CHARS_MAX
    assert name[0] not in "._"
    assert not set(name) & set("/\\=\n")


def test_k07_a_column_is_no_part_of_the_path(tmp_path: Path) -> None:
    """A folder named after a variant does not clash with the column of that name."""
    commit(store.new_folder(tmp_path, "variant=1"), [row(0, variant="1")])
    for path in tmp_path.rglob("health.parquet"):
        path.unlink()
    for path in tmp_path.rglob("point.json"):
        path.unlink()
    assert pq.read_table(tmp_path)["variant"].to_pylist() == ["1"]


def test_k08_a_rate_is_float_in_every_file(tmp_path: Path) -> None:
    """Whole, broken, infinite and absent rates are read together."""
    rates = [8, 0.5, float("inf"), None]
    for number, rate in enumerate(rates):
        commit(tmp_path / str(number), [row(0, rate=rate)])
    read = pa.dataset.dataset(sorted(map(str, tmp_path.rglob("requests.parquet")))).to_table()
    assert read["rate"].to_pylist() == [8.0, 0.5, float("inf"), None]
    assert read.schema.field("concurrency").type == pa.int32()


def test_k09_times_are_utc_whatever_the_zone_and_also_when_there_are_none(tmp_path: Path) -> None:
    """Runs of two zones and an empty run have one schema and the right instants."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    india = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    commit(tmp_path / "1", [row(0, started_at=india)])
    commit(tmp_path / "2", [row(0, started_at=moment.isoformat())])
    commit(tmp_path / "3", [])
    tables = [pq.read_table(tmp_path / name / "requests.parquet") for name in "123"]
    assert all(read.schema.equals(tables[0].schema) for read in tables)
    assert [read["started_at"].to_pylist() for read in tables] == [[moment], [moment], []]
    assert tables[0].schema.field("started_at").type == pa.timestamp("us", tz="UTC")


def test_k09_a_time_without_a_zone_is_refused() -> None:
    """A naive time would be taken for UTC without a word."""
    with pytest.raises(ValueError, match="started_at"):
        table([row(0, started_at=datetime(2026, 1, 2))], ROWS)


def test_one_glob_reads_the_tree_in_duckdb(tmp_path: Path) -> None:
    """DuckDB reads every finished Point of a tree, and nothing of an unfinished one."""
    commit(tmp_path / "2026-01-01" / "1" / "c1", [row(seq) for seq in range(5)])
    commit(tmp_path / "2026-01-01" / "1" / "c16", [row(seq, variant="eagle") for seq in range(7)])
    store.RowWriter(store.stream_path(tmp_path / "2026-01-01" / "1" / "c64", 0)).append([row(0)])
    query = f"select variant, count(*), max(len(chunk_ns)) from '{tmp_path}/**/requests.parquet' group by 1 order by 1"
    assert duckdb.sql(query).fetchall() == [("baseline", 5, 5), ("eagle", 7, 5)]


def test_pandas_reads_a_tree(tmp_path: Path) -> None:
    """pandas reads what DuckDB reads."""
    pandas = pytest.importorskip("pandas")
    commit(tmp_path / "a", [row(seq) for seq in range(5)])
    commit(tmp_path / "b", [failure(0, 0, "connect", error="refused")])
    read = pandas.concat(pandas.read_parquet(path) for path in sorted(tmp_path.rglob("requests.parquet")))
    assert len(read) == 6
    assert read["error"].tolist()[-1] == "refused"


def test_requests_are_sorted_over_workers_and_marked(tmp_path: Path) -> None:
    """Workers are merged by seq; in_window follows the time sent, for a refused connection the time planned."""
    for worker, seqs in enumerate(([0, 2, 4], [3, 1])):
        writer = store.RowWriter(store.stream_path(tmp_path, worker))
        writer.append([row(seq, 10 * seq) for seq in seqs])
        if worker:
            writer.append([failure(5, 30, "connect", sent_ns=None), failure(6, 30, "cut", sent_ns=None)])
        writer.close()
    read = store.requests_table(tmp_path, (10_000_000, 40_000_000))
    assert read["seq"].to_pylist() == list(range(7))
    assert read["in_window"].to_pylist() == [False, True, True, True, False, True, False]
    store.commit_point(tmp_path, read, [health(1000)], point_of("INVALID"))
    written = pq.read_table(tmp_path / "requests.parquet")
    assert written.schema.names == [column.name for column in REQUESTS]
    assert set(written["verdict"].to_pylist()) == {"INVALID"}
    assert files(tmp_path) == {"requests.parquet", "health.parquet", "point.json"}


def test_r01_a_parcel_that_comes_again_is_kept_once(tmp_path: Path) -> None:
    """A board that wrote and whose answer was lost, or whose disk took a part: the same bytes come again, with more.

    The texts of all workers become one file, less a line that a kill cut off; their streams go.
    """
    sender, whole = RowSender(), store.RowWriter(store.stream_path(tmp_path, 0))
    whole.append_with_texts([row(0, text="zero")])
    store.append_bytes(whole.path.with_suffix(".jsonl"), b'{"seq": 9, "te')
    sender.append_with_texts([row(1, text="one"), row(2, text="")])
    first = sender.parcel()
    store.keep(tmp_path, 1, replace(first, rows=first.rows[:-9], texts=first.texts[:-9]))
    sender.append_with_texts([row(3, text="three")])
    for _ in range(2):
        store.keep(tmp_path, 1, sender.parcel())
    sender.arrived(first)
    sender.append_with_texts([row(4, text="four")])
    for _ in range(2):
        store.keep(tmp_path, 1, sender.parcel())
    store.commit_point(tmp_path, store.requests_table(tmp_path, None), [health(0)], point_of())
    assert dataset.read_dataset(tmp_path)["seq"].to_pylist() == [0, 1, 2, 3, 4]
    lines = [json.loads(line) for line in (tmp_path / "text.jsonl").read_text().splitlines()]
    assert [(line["seq"], line["text"]) for line in lines] == [(0, "zero"), (1, "one"), (3, "three"), (4, "four")]
    assert files(tmp_path) == {"requests.parquet", "health.parquet", "text.jsonl", "point.json"}


def test_r05_texts_of_a_point_that_is_not_whole_stay_in_their_streams(tmp_path: Path) -> None:
    """As its rows do; what was gathered of them already goes when the folder is gone on with."""
    claimed.claim(tmp_path / "run")
    writer = store.RowWriter(store.stream_path(tmp_path / "run/c1", 0))
    writer.append_with_texts([row(0, text="zero")])
    (tmp_path / "run/c1/text.jsonl").write_text("x")
    (tmp_path / "run/c1/.text.jsonl.tmp").write_text("x")
    claimed.sweep(tmp_path / "run")
    assert files(tmp_path / "run/c1") == {"_requests_0.arrows", "_requests_0.jsonl"}
    store.commit_point(tmp_path / "run/c1", store.requests_table(tmp_path / "run/c1", None), [health(0)], point_of())
    (tmp_path / "run/c1/_requests_0.jsonl").touch()  # a kill came before it went
    claimed.sweep(tmp_path / "run")
    assert files(tmp_path / "run/c1") == {"requests.parquet", "health.parquet", "text.jsonl", "point.json"}


def test_a_whole_run_has_every_request_in_its_window(tmp_path: Path) -> None:
    """Without a window every row is in it; with an empty one none is."""
    store.RowWriter(store.stream_path(tmp_path, 0)).append([row(0), row(1, 10_000)])
    assert store.requests_table(tmp_path, None)["in_window"].to_pylist() == [True, True]
    assert store.requests_table(tmp_path, (0, 0))["in_window"].to_pylist() == [False, False]


def test_a_request_recorded_twice_is_our_bug(tmp_path: Path) -> None:
    """Two rows with one sequence number never become a Point."""
    for worker in range(2):
        store.RowWriter(store.stream_path(tmp_path, worker)).append([row(0)])
    with pytest.raises(AssertionError, match="twice"):
        store.requests_table(tmp_path, None)


def test_requests_that_the_servers_death_ended_are_marked() -> None:
    """Those broken off about when it died are server_gone; earlier, refused and good ones keep their outcome."""
    second = 1_000_000_000
    rows = [
        row(0),
        row(1, outcome="connection_lost", done_ns=2 * second),
        row(2, outcome="connection_lost", done_ns=9 * second),
        row(3, outcome="cut", done_ns=11 * second),
        row(4, outcome="cut", done_ns=None),
        failure(5, 10_000, "connect"),
    ]
    marked = dataset.mark_server_gone(fitted(table(rows, ROWS), REQUESTS), 10 * second)
    expected = ["ok", "connection_lost", "server_gone", "server_gone", "server_gone", "connect"]
    assert marked["outcome"].to_pylist() == expected


def test_r05_a_full_disk_is_a_storage_error_and_earlier_points_stay(tmp_path: Path) -> None:
    """The error names file and reason; no half file and no temporary file stays behind."""
    commit(tmp_path / "before", [row(0)])
    code = """
        import resource, sys
        from pathlib import Path
        from loadgen import store
        from loadgen.errors import StorageError
        from loadgen.record import REQUESTS
        from rows import row
        import random
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        folder = Path(sys.argv[1])
        big = [row(seq, chunk_ns=[random.getrandbits(60) for _ in range(100)]) for seq in range(300)]
        for write in (
            lambda: store.RowWriter(store.stream_path(folder, 0)).append(big),
            lambda: store.write_parquet(folder / "requests.parquet", big, REQUESTS),
            lambda: store.write_json(folder / "point.json", "x" * 100_000),
        ):
            try:
                write()
            except StorageError as error:
                print(error.exit_code, error)
    """
    ended = child(code, tmp_path / "full")
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["5", "5", "5"], ended.stderr
    assert "requests.parquet: File too large" in ended.stdout
    assert files(tmp_path / "full") == {"_requests_0.arrows"}
    assert len(dataset.read_rows(store.stream_path(tmp_path / "full", 0))) == 0
    assert len(dataset.read_dataset(tmp_path)) == 1


def test_an_unwritable_place_is_a_storage_error(tmp_path: Path) -> None:
    """A file where a folder should be is told with the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        store.write_json(tmp_path / "file" / "point.json", {})
    with pytest.raises(StorageError, match="file"):
        claimed.claim(tmp_path / "file")


def test_f05_json_is_strict_and_parquet_holds_null_for_no_value(tmp_path: Path) -> None:
    """NaN and infinities are null in JSON, NaN is null in Parquet; numpy's numbers and paths are plain."""
    value = {"a": float("nan"), "b": [float("inf"), np.float64(1.5)], "c": np.arange(2), "d": Path("x")}
    store.write_json(tmp_path / "x.json", value)

    def refuse(text: str) -> None:
        raise AssertionError(text)

    read = json.loads((tmp_path / "x.json").read_text(), parse_constant=refuse)
    assert read == {"a": None, "b": [None, 1.5], "c": [0, 1], "d": "x"}
    assert table([{"rate": float("nan")}], ROWS)["rate"].to_pylist() == [None]


def test_the_ledger_survives_a_cut_line(tmp_path: Path) -> None:
    """A line cut by a kill is passed over and does not swallow the next one."""
    path = tmp_path / "ledger.jsonl"
    store.append_line(path, {"point_id": "a"})
    with path.open("ab") as file:
        file.write(b'{"point_id": "b", "sta')
    assert dataset.read_ledger(path) == [{"point_id": "a"}]
    store.append_line(path, {"point_id": "c"})
    assert dataset.read_ledger(path) == [{"point_id": "a"}, {"point_id": "c"}]


def test_r05_a_whole_line_that_lacks_something_is_named(tmp_path: Path) -> None:
    """Unlike one that was cut it was written by somebody else: file, number and keys are told, exit 5."""
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"block": 0, "variant": "a"}\n{"block": 0, "va\n{"block": 0}\n12\n')
    with pytest.raises(StorageError, match=r"ledger.jsonl line 3 .* it has no variant; restore the line, or take it"):
        dataset.read_ledger(path, ("block", "variant"))
    path.write_bytes(b'{"block": 0, "variant": "a"}\n{"block": 0, "va')
    assert dataset.read_ledger(path, ("block", "variant")) == [{"block": 0, "variant": "a"}]


def test_r05_a_failed_commit_leaves_the_rows_and_the_reason(tmp_path: Path) -> None:
    """No table says of its rows what is no longer true; the streams stay, also when the folder is gone on with."""
    claimed.claim(tmp_path / "run")
    writer = store.RowWriter(store.stream_path(tmp_path / "run/c1", 0))
    writer.append([row(0)])
    with claimed.held(tmp_path / "run"):
        assert (tmp_path / "run" / store.RESERVE).stat().st_size == claimed.RESERVE_BYTES
        store.write_parquet(tmp_path / "run/c1/requests.parquet", [row(0)], REQUESTS)
        store.commit_failed(tmp_path / "run/c1", point_of("FAILED"))
        assert files(tmp_path / "run") == {"c1", "ledger.jsonl"}
    claimed.sweep(tmp_path / "run")
    assert files(tmp_path / "run/c1") == {"_requests_0.arrows", "point.json"}
    assert len(store.requests_table(tmp_path / "run/c1", None)) == 1
    assert files(tmp_path / "run") == {"c1", "ledger.jsonl"}


def test_r05_texts_that_lie_nowhere_else_stay(tmp_path: Path) -> None:
    """Of a Point that was cut off text.jsonl goes where it will be made again, and stays where it is all there is."""
    claimed.claim(tmp_path / "run")
    for level in ("c1", "c2"):
        store.RowWriter(store.stream_path(tmp_path / "run" / level, 0)).append([row(0)])
        store.append_bytes(tmp_path / "run" / level / store.TEXTS, b"{}\n")
    store.append_bytes(tmp_path / "run/c1/_requests_0.jsonl", b"{}\n")
    claimed.sweep(tmp_path / "run")
    assert files(tmp_path / "run/c1") == {"_requests_0.arrows", "_requests_0.jsonl"}
    assert files(tmp_path / "run/c2") == {"_requests_0.arrows", store.TEXTS}


def test_r05_what_cannot_be_cleared_makes_no_point_less_whole(tmp_path: Path) -> None:
    """point.json is written: a stream that stays beside it is no reason to call the Point FAILED."""
    rows = fitted(table([row(0)], ROWS), REQUESTS)
    (tmp_path / "_requests_9.arrows").mkdir()
    store.commit_point(tmp_path, rows, [health(0)], point_of())
    assert len(dataset.read_dataset(tmp_path)) == 1


def test_r05_two_commands_never_measure_into_one_folder(tmp_path: Path) -> None:
    """Who goes on in a folder that is measured into is refused; what a kill -9 ends holds nothing."""
    root = claimed.claim(tmp_path / "run")
    with claimed.held(root), pytest.raises(ConfigError, match="another command is measuring into"):
        with claimed.held(root):
            pass
    code = f"""
        import os, signal
        from loadgen import claimed
        with claimed.held(claimed.Path({str(root)!r})):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert child(code).returncode == -signal.SIGKILL
    with claimed.held(root):
        pass
    assert files(root) == {"ledger.jsonl"}


def test_two_runs_never_claim_one_folder(tmp_path: Path) -> None:
    """A taken folder of our own choosing gets a number; one chosen by the user is refused with what to change."""
    assert claimed.claim(tmp_path / "run") == tmp_path / "run"
    assert claimed.claim(tmp_path / "run") == tmp_path / "run-2"
    assert claimed.claim(tmp_path / "run") == tmp_path / "run-3"
    with pytest.raises(ConfigError, match="resume=true"):
        claimed.claim(tmp_path / "run", chosen_by_user=True)
    (tmp_path / "mine").mkdir()
    assert claimed.claim(tmp_path / "mine", chosen_by_user=True) == tmp_path / "mine"


def test_a_point_folder_is_always_new(tmp_path: Path) -> None:
    """What an unfinished Point left is not mixed with the next one's rows."""
    names = [store.new_folder(tmp_path, "c16").name for _ in range(3)]
    assert names == ["c16", "c16-2", "c16-3"]


def test_only_empty_folders_are_taken_away(tmp_path: Path) -> None:
    """Folders of runs that never began go, with their day; anything that holds a file stays."""
    runs = [tmp_path / "2026-01-02" / "10-00-00" / name for name in ("0", "1")]
    for run in runs:
        run.mkdir(parents=True)
    (runs[1] / "kept").write_text("")
    claimed.remove_empty(runs[0].parent, runs)
    assert not runs[0].exists()
    assert (runs[1] / "kept").exists()
    (runs[1] / "kept").unlink()
    claimed.remove_empty(runs[0].parent, runs)
    assert not (tmp_path / "2026-01-02").exists()
    assert tmp_path.exists()


def test_columns_as_arrays() -> None:
    """Nullable numbers are NaN, lists lie flat with offsets, chunk_tokens keep the places of chunk_ns."""
    rows = [row(0), failure(1, 10, "connect", sent_ns=None), row(2, chunk_tokens=None)]
    arrays = columns(table(rows, ROWS))
    assert arrays["seq"].dtype == np.int64
    assert np.isnan(arrays["sent_ns"][1])
    assert arrays["chunk_ns_offsets"].tolist() == [0, 5, 5, 10]
    assert arrays["chunk_ns"].dtype == np.int64
    assert arrays["chunk_tokens"][:5].tolist() == [1.0] * 5
    assert np.isnan(arrays["chunk_tokens"][5:]).all()
    assert arrays["outcome"].tolist() == ["ok", "connect", "ok"]
    assert arrays["variant"].tolist() == [IDENTITY["variant"]] * 3


def test_columns_of_no_rows() -> None:
    """An empty table has every array, all of length 0, offsets of length 1."""
    arrays = columns(table([], HEALTH))
    assert arrays["t_ns"].shape == (0,)
    assert arrays["loop_lag_ms_offsets"].tolist() == [0]


def test_every_declared_type_has_an_arrow_type() -> None:
    """A column of any declared type can be written."""
    types = {"string", "bool", "int32", "int64", "float64", "timestamp", "list<int32>", "list<int64>", "list<float32>"}
    assert len(schema([Column(kind, kind, "") for kind in types])) == len(types)


def test_the_first_row_imports_nothing(tmp_path: Path) -> None:
    """Arrow looks for pandas when it makes its first table; in a worker that would stop all streams."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from rows import row
from loadgen import store
writer = store.RowWriter(store.Path({str(tmp_path / "a.arrows")!r}))
before = set(sys.modules)
writer.append([row(0)])
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
