"""Three hosts with a network, disks and clocks of their own: who does what, what travels, and what a loss leaves.

alpha is the head and the driver, beta serves, alpha and gamma drive; only alpha has our packages and the results' disk.
gamma's wall clock is three seconds ahead, and all monotonic clocks are hours apart.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import hosts
import psutil
import pyarrow.parquet as pq
import pytest
from hosts import PORT, ROOT, Host

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from running import RUN_S_MAX, Ended, Run, eventually

from server import apart

AHEAD_MS = 3000.0
GONE_S_MAX = 20.0  # from kill -9 of the driver to the end of its server on another host
RESULTS, ELSEWHERE = "/tmp/results", "/tmp/elsewhere"
ADDRESS = f"cluster.address={hosts.NETWORK}.1:{PORT}"
SMALL = ("+variant=baseline", "engine=sim", "workload.max_tokens=128")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing())),
]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """The hosts with Ray on them."""
    place = tmp_path_factory.mktemp("homes")
    library, source = place / "ahead.so", Path(__file__).with_name("ahead.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    with hosts.joined(["alpha", "beta", "gamma"], place, hidden=[ROOT / "loadgen", ROOT / "server"]) as made:
        shutil.copy(library, made[2].seen("/tmp/ahead.so"))
        ahead = {"LD_PRELOAD": "/tmp/ahead.so", "AHEAD_MS": f"{AHEAD_MS:.0f}"}
        hosts.cluster(made, server=made[1], env={"gamma": ahead})
        yield made


@pytest.fixture
def begin(three: list[Host], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start the command on alpha; its results are a folder of this test's on alpha's own disk."""
    runs: list[Run] = []

    def start(*words: str, **env: str) -> Run:
        program = tuple(three[0].words(sys.executable, "-m", "loadgen"))
        folder = f"hydra.run.dir={RESULTS}/{tmp_path.name}-{len(runs)}"
        environment = three[0].environment(PYTHONPATH=str(ROOT), **env)
        runs.append(Run((*words, folder), tmp_path / "work", environment, program))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()
    for host in three:
        if host.init.poll() is None:
            assert not list(host.seen("/tmp").glob(f"{apart.PREFIX}*"))


@pytest.fixture
def cli(begin: Callable[..., Run], three: list[Host], tmp_path: Path) -> Callable[..., Ended]:
    """Run the command on alpha to its end; `folder` is that of its results."""
    count = iter(range(100))

    def whole(*words: str, **env: str) -> Ended:
        ended = begin(*words, **env).end()
        return Ended(ended.code, ended.out, ended.err, three[0].seen(f"{RESULTS}/{tmp_path.name}-{next(count)}"))

    return whole


def point_of(folder: Path, level: int) -> dict[str, Any]:
    return json.loads((folder / f"c{level}" / "point.json").read_text())


def p50(folder: Path, level: int) -> float:
    return float(point_of(folder, level)["summary"]["ttft_ms"]["p50"])


def test_who_does_what_and_what_travels(cli: Callable[..., Ended], three: list[Host]) -> None:
    """The labelled host serves on its own address, the others drive; rows, texts and the log come to the driver's disk.

    Figures equal those of one host; the offset of a client's clock is found and changes no latency.
    """
    asked = (*SMALL, "engine.sim_speed=5", "load.concurrency=8", "load.window_s=8", "output.text=true")
    here = cli(*asked)
    ended = cli(*asked, "cluster=ray", ADDRESS, f"output.uri=file://{ELSEWHERE}")
    assert ended.code in (0, 6), ended.err
    assert "server on beta (10.77.0.2), load from alpha (10.77.0.1), gamma (10.77.0.3)" in ended.err
    point, launch = point_of(ended.folder, 8), json.loads((ended.folder / "launch.json").read_text())
    assert launch["url"].startswith(f"http://{hosts.NETWORK}.2:")
    assert launch["host"] == f"{hosts.NETWORK}.2"
    assert [node["name"] for node in launch["places"]["clients"]] == ["alpha", "gamma"]
    alpha, gamma = point["workers"]
    assert (alpha["host"], gamma["host"], alpha["clock_ahead_ms"]) == ("alpha", "gamma", 0.0)
    assert gamma["clock_ahead_ms"] == pytest.approx(-AHEAD_MS, abs=20)
    rows = pq.read_table(ended.folder / "c8" / "requests.parquet")
    by_host = set(zip(rows["worker"].to_pylist(), rows["host"].to_pylist(), strict=True))
    assert by_host == {(0, "alpha"), (1, "gamma")}
    assert len((ended.folder / "c8" / "text.jsonl").read_text().splitlines()) >= point["summary"]["requests"]
    assert "Decode batch" in (ended.folder / "server.log").read_text()
    one, several = point_of(here.folder, 8)["summary"], point["summary"]
    # Of windows of eight seconds at two times: a machine that stops for half a second takes 6 % of one.
    assert several["output_tokens_per_s"] == pytest.approx(one["output_tokens_per_s"], rel=0.1)
    assert several["tpot_ms"]["p50"] == pytest.approx(one["tpot_ms"]["p50"], rel=0.05)
    assert several["ttft_ms"]["p50"] == pytest.approx(one["ttft_ms"]["p50"], abs=5)
    assert not list(ended.folder.rglob(".mark-*"))
    assert "worker 1: written to file:///tmp/elsewhere from here" in ended.err
    check_parts(three, point["point_id"], len(rows))


def check_parts(three: list[Host], name: str, rows: int) -> None:
    """gamma has written its part, where alpha does not see it: so alpha has written that one too, and the mark."""
    assert not three[1].seen(ELSEWHERE).exists()
    ((alpha,), (gamma,)) = (list(three[place].seen(ELSEWHERE).glob(f"*/{name}")) for place in (0, 2))
    assert sorted(path.name for path in gamma.iterdir()) == ["requests-1.parquet", "text-1.jsonl"]
    parts = [alpha / f"requests-{worker}.parquet" for worker in range(2)]
    assert sum(pq.ParquetFile(part).metadata.num_rows for part in parts) == rows
    theirs, ours = (pq.ParquetFile(part).read() for part in (gamma / "requests-1.parquet", parts[1]))
    assert theirs.equals(ours)
    assert set(theirs["worker"].to_pylist()) == {1}
    assert (alpha / "point.json").is_file()


def test_every_request_of_250_streams_once(cli: Callable[..., Ended]) -> None:
    """Two client hosts, one plan: no number missing, none twice, both hosts had their half."""
    ended = cli(*SMALL, "output.quiet=true", "load.concurrency=250", "load.requests=1000", "cluster=ray", ADDRESS)
    assert ended.code in (0, 6), ended.err
    table = ended.folder / "c250" / "requests.parquet"
    ((seqs, by_host),) = duckdb.sql(
        f"select list(seq order by seq), histogram(host) from '{table}' where outcome = 'ok'"
    ).fetchall()
    assert seqs == list(range(1000))
    assert by_host == {"alpha": 500, "gamma": 500}


def test_latency_of_the_network_shows_where_it_belongs(cli: Callable[..., Ended], three: list[Host]) -> None:
    """20 ms to gamma and back: its TTFT rises by as much, alpha's and the time of a token do not."""
    asked = (*SMALL, "output.quiet=true", "load.concurrency=4", "load.requests=80", "cluster=ray", ADDRESS)
    before = cli(*asked)
    with hosts.slow_cable(three[2], 20):
        after = cli(*asked)

    def medians(folder: Path) -> dict[str, tuple[float, float]]:
        rows = duckdb.sql(
            "select host, median(first_token_ns - sent_ns) / 1e6, median((last_token_ns - first_token_ns) / 127) / 1e6 "
            f"from '{folder}/c4/requests.parquet' where outcome = 'ok' group by host"
        ).fetchall()
        return {host: (ttft, tpot) for host, ttft, tpot in rows}

    near, far = medians(before.folder), medians(after.folder)
    assert far["gamma"][0] - near["gamma"][0] == pytest.approx(20, abs=6)
    assert far["alpha"][0] - near["alpha"][0] == pytest.approx(0, abs=6)
    assert far["gamma"][1] == pytest.approx(near["gamma"][1], rel=0.1)
    assert point_of(after.folder, 4)["workers"][1]["clock_rtt_ms"] > 20
    assert "between hosts known to ± 1" in json.dumps(point_of(after.folder, 4)["verdict"], ensure_ascii=False)


@pytest.mark.parametrize(
    ("words", "env", "code", "told"),
    [
        ((ADDRESS,), {"RAY_AUTH_MODE": "disabled"}, 4, "wants its token, and RAY_AUTH_MODE=disabled sends none"),
        ((ADDRESS,), {"RAY_AUTH_TOKEN": "0" * 64}, 4, "wants its token, and the one given here is another"),
        ((ADDRESS,), {"RAY_AUTH_TOKEN": "", "RAY_AUTH_MODE": ""}, 4, "its head's ~/.ray/auth_token in the same place"),
        ((f"cluster.address={hosts.NETWORK}.2:{PORT}",), {}, 4, "nothing answers at"),
        ((ADDRESS, "cluster.server=delta"), {}, 2, "cluster.server=delta names no node; the cluster has alpha"),
        ((ADDRESS, "cluster.workers=3"), {}, 2, "cluster.workers=3 needs 3 CPUs, alpha (10.77.0.1), gamma (10.77.0.3)"),
        ((ADDRESS, "engine.api_key_env=HOME_KEY"), {"HOME_KEY": "x"}, 4, "HOME_KEY is not set on beta"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_sentence(
    cli: Callable[..., Ended], words: tuple[str, ...], env: dict[str, str], code: int, told: str
) -> None:
    """At once, with what to change; Ray's own half minute of retries is not waited for."""
    ended = cli(*SMALL, "output.quiet=true", "cluster=ray", *words, **env)
    assert (ended.code, len(ended.err.splitlines())) == (code, 1), ended.err
    assert told in ended.err


def test_r08_a_driver_that_is_killed(
    begin: Callable[..., Run], cli: Callable[..., Ended], three: list[Host], tmp_path: Path
) -> None:
    """Its server on beta ends; the log that beta kept for it stays for a day, then goes with the next server there."""
    run = begin(*SMALL, "load.concurrency=6", "load.window_s=600", "cluster=ray", ADDRESS)
    _await_rows(run, three[0].seen(f"{RESULTS}/{tmp_path.name}-0/c6"))
    (driver,) = psutil.Process(run.process.pid).children()  # nsenter has no other child
    driver.kill()
    eventually(lambda: not three[1].processes("sglang::"), GONE_S_MAX, "the server's end")
    (kept,) = three[1].seen("/tmp").glob(f"{apart.PREFIX}*")
    for path in (*kept.iterdir(), kept):
        os.utime(path, (time.time() - apart.KEPT_S - 60,) * 2)
    assert cli(*SMALL, "load.concurrency=2", "load.requests=4", "cluster=ray", ADDRESS).code in (0, 6)
    assert not list(three[1].seen("/tmp").glob(f"{apart.PREFIX}*"))


def test_r01_r02_a_lost_worker_and_a_lost_host(begin: Callable[..., Run], three: list[Host], tmp_path: Path) -> None:
    """Each ends its Point as FAILED worker_lost with the rows of the others kept, and the command goes on without.

    First gamma's worker is killed, then all of gamma; the third level is driven by alpha alone.
    """
    run = begin(
        *SMALL, "engine.sim_speed=20", "load.concurrency=[6,7,8]", "load.window_s=6", "cluster=ray", ADDRESS,
    )  # fmt: skip
    _await_rows(run, three[0].seen(f"{RESULTS}/{tmp_path.name}-0/c6"))
    (worker,) = three[2].processes("ray::loadgen:worker 1")
    os.kill(worker.pid, signal.SIGKILL)
    _await_rows(run, three[0].seen(f"{RESULTS}/{tmp_path.name}-0/c7"))
    three[2].end()
    ended, folder = run.end(), three[0].seen(f"{RESULTS}/{tmp_path.name}-0")
    killed, gone, after = (point_of(folder, level) for level in (6, 7, 8))
    for point in (killed, gone):
        assert point["verdict"]["status"] == "FAILED"
        assert point["verdict"]["reasons"][0]["rule"] == "worker_lost"
        assert point["summary"] is None
    for level in (6, 7):
        rows = pq.read_table(folder / f"c{level}" / "requests.parquet")
        assert {"alpha", "gamma"} == set(rows["host"].to_pylist())  # what had arrived before the loss is kept
        assert set(rows["verdict"].to_pylist()) == {"FAILED"}
    assert "gamma (10.77.0.3) answers no more: the next Points go on without" in ended.err
    assert after["verdict"]["status"] in ("VALID", "INVALID")
    assert [one["host"] for one in after["workers"]] == ["alpha"]
    assert ended.code == 4
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == 3
    eventually(lambda: not three[1].processes("sglang::"), 10, "the server's end")


def _await_rows(run: Run, folder: Path) -> None:
    """Until both workers' rows have come to the driver's disk."""
    streams = [folder / f"_requests_{worker}.arrows" for worker in (0, 1)]

    def come() -> bool:
        assert run.process.poll() is None, run.err
        return all(stream.exists() and stream.stat().st_size > 20_000 for stream in streams)

    eventually(come, RUN_S_MAX, "rows of both workers")
