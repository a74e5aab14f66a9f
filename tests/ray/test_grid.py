"""A grid from end to end: servers reused, order, ledger, one row a request, and the server's own count of tokens."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.dataset
import pyarrow.parquet
import pytest
from running import TINY, Ended, faulty_python

from loadgen.__main__ import compose
from loadgen.arrange import order
from loadgen.overrides import prepare
from loadgen.plan import WARM_UP_REQUESTS
from server.ready import PROBE_TOKENS

VARIANTS = ["baseline", "eagle_topk4_v1", "eagle_topk1_v2"]
LEVELS = [1, 2, 3]
REQUESTS, TOKENS = 6, 32


@pytest.mark.slow
def test_nine_points_from_three_starts(cli: Callable[..., Ended]) -> None:
    """Three variants at three levels: three Launches, nine Points, nine ledger lines, every request and token there."""
    load = ("load.concurrency=1,2,3", f"load.requests={REQUESTS}", f"workload.max_tokens={TOKENS}")
    ended = cli("-m", f"+variant={','.join(VARIANTS)}", *load, "engine=sim", "engine.sim_speed=20")
    lines = ended.ledger()
    assert ended.code == max(line["exit_code"] for line in lines), ended.err
    assert ended.code in (0, 6), ended.err
    in_order = list(VARIANTS)
    random.Random(0).shuffle(in_order)
    assert [(line["variant"], line["concurrency"]) for line in lines] == [(v, c) for v in in_order for c in LEVELS]
    points = ended.points()
    assert sorted(point["point_id"] for point in points) == sorted(line["point_id"] for line in lines)
    assert {line["folder"] for line in lines} == {str(number) for number in range(9)}
    check_launches(ended)
    check_rows(ended)
    check_server_count(ended)
    assert "SIMULATED x20" in ended.out
    assert f"results: {ended.results}" in ended.out
    assert "Traceback" not in ended.err


def check_launches(ended: Ended) -> None:
    """One Launch a variant, whose files lie in the folder of its first Point's run."""
    launches = [json.loads(path.read_text()) for path in ended.results.rglob("launch.json")]
    assert sorted(launch["variant"] for launch in launches) == sorted(VARIANTS)
    assert len(list(ended.results.rglob("server.log"))) == len(VARIANTS)
    ids = {launch["launch_id"]: launch["variant"] for launch in launches}
    for point in ended.points():
        assert ids[point["launch_id"]] == point["variant"]
        assert point["simulated"] is True


def check_rows(ended: Ended) -> None:
    """One row a request by DuckDB and by pyarrow; every sequence number once; every outcome told."""
    glob = f"{ended.folder}/outputs/**/requests.parquet"
    counts = duckdb.sql(
        f"select variant, concurrency, count(*), count(distinct seq), min(seq), max(seq), "
        f"count(*) filter (outcome = 'ok'), sum(output_tokens), bool_and(in_window) "
        f"from '{glob}' group by point_id, variant, concurrency order by all"
    ).fetchall()
    whole = (REQUESTS, REQUESTS, 0, REQUESTS - 1, REQUESTS, REQUESTS * TOKENS, True)
    assert counts == [(variant, level, *whole) for variant in sorted(VARIANTS) for level in LEVELS]
    files = [str(path) for path in ended.results.rglob("requests.parquet")]
    table = pyarrow.dataset.dataset(files).to_table()
    assert len(table) == 9 * REQUESTS
    assert {str(pyarrow.parquet.read_schema(file)) for file in files} == {str(pyarrow.parquet.read_schema(files[0]))}


def check_server_count(ended: Ended) -> None:
    """What the server says it generated is what the rows hold, the readiness probe and the warm-up apart."""
    counters = duckdb.sql(
        f"select variant, max(value) from '{ended.folder}/outputs/**/server_metrics.parquet' "
        "where name = 'sglang:generation_tokens_total' group by variant order by variant"
    ).fetchall()
    before = PROBE_TOKENS + WARM_UP_REQUESTS * TOKENS
    assert counters == [(variant, before + len(LEVELS) * REQUESTS * TOKENS) for variant in sorted(VARIANTS)]


def test_blocks_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two variants run A B, then B A; each with all its levels; block by block whatever was typed first."""
    monkeypatch.chdir(tmp_path)
    typed = ["-m", "block=2,0,1", "+variant=baseline,eagle_topk1_v2", "load.concurrency=1,2"]
    ran = [(run.config.block, run.config.variant.name) for run in order(compose(prepare(typed)).runs)]
    a, b = "baseline", "eagle_topk1_v2"
    blocks = {0: (a, a, b, b), 1: (b, b, a, a), 2: (a, a, b, b)}
    assert ran == [(block, name) for block, names in blocks.items() for name in names]


@pytest.mark.slow
def test_j03_failing_runs_in_a_sweep(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """A server that dies at its start, one that is well, one that dies in its Point: each told, the good one whole."""
    # Probe and warm-up are 17 requests; two answers are under way a tenth of a second after the thirtieth.
    faults = "variant.env.FAULTS=die_at_start:7,none,die_after:0.1:30"
    load = (*TINY[:2], "load.concurrency=2", "load.requests=30", "workload.max_tokens=256")
    ended = cli("-m", "+variant=baseline", f"engine.python={faulty_python(tmp_path)}", faults, *load)
    assert ended.code == 3, ended.err
    assert "loadgen/__main__.py" not in ended.err, "a traceback of ours; the server's own stands in the tail of its log"
    first, second, third = ended.ledger()
    assert (first["status"], first["exit_code"], first["folder"]) == ("FAILED", 3, "0")
    assert "exit status 7" in first["reason"]
    assert second["status"] in ("VALID", "INVALID")
    assert (third["status"], third["exit_code"]) == ("FAILED", 3)
    assert "SIGKILL" in third["reason"]
    # The reason and the end of the log are told when it happens, and stand on disk.
    assert "exit status 7" in ended.err
    assert "FAILED" in ended.out
    assert (ended.results / "0" / "server.log").read_text().strip().splitlines()[-1] in ended.err
    (good,), (died,) = [
        [json.loads(path.read_text()) for path in (ended.results / run).rglob("point.json")] for run in ("1", "2")
    ]
    assert good["summary"]["requests"] == 30
    assert (died["verdict"]["status"], died["summary"]) == ("FAILED", None)
    outcomes = duckdb.sql(f"select distinct outcome from '{ended.results}/2/**/requests.parquet'").fetchall()
    assert {("ok",), ("server_gone",)} <= set(outcomes)
