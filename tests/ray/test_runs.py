"""Whole runs on one shared Ray: several workers, texts on request, going on after an interruption, external servers."""

import contextlib
import json
import resource
import ssl
import threading
from pathlib import Path

import psutil
import pytest
import ray
import trustme
from fake_api import Api, serving
from running import faulty_python

from loadgen import cluster, trial
from loadgen.__main__ import main
from loadgen.dataset import point_files, read_dataset, read_json, read_ledger
from loadgen.footprint import titles
from loadgen.interrupt import signals
from loadgen.stack import hash_of
from server.tls import UNVERIFIED

pytestmark = pytest.mark.usefixtures("one_ray")

TINY = ["+variant=baseline", "engine=sim", "engine.sim_speed=8", "workload.max_tokens=48", "output.quiet=true"]
RUNS_MAX = 3


@pytest.fixture(scope="module")
def of_two_workers(one_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with 31 requests that two workers drove."""
    folder = tmp_path_factory.mktemp("two")
    asked = ["load.concurrency=5", "load.requests=31", "cluster.workers=2"]
    assert main([*TINY, *asked, f"hydra.run.dir={folder}/run"]) in (0, 6)
    return folder


def test_two_workers_share_a_point(of_two_workers: Path) -> None:
    """The streams of two workers add up to exactly the concurrency, and every request is there once."""
    rows = read_dataset(of_two_workers)
    assert rows["seq"].to_pylist() == list(range(31))
    assert set(rows["worker"].to_pylist()) == {0, 1}
    assert set(rows["output_tokens"].to_pylist()) == {48}
    assert len(set(rows["started_at"].to_pylist())) == 1
    kinds = rows["prompt_kind"].to_pylist()
    assert all(len(set(kinds[i : i + 8])) == 8 for i in range(0, 24, 8))


def test_ray_starts_only_what_a_run_uses() -> None:
    """Its web pages, its reader of logs and its autoscaler would run beside every measurement."""
    started = [title for _, title in titles()]
    assert any("/raylet" in title for title in started), started
    unused = ("dashboard/dashboard.py", "_private/log_monitor.py", "_private/monitor.py")
    assert [title for title in started if any(name in title for name in unused)] == []


def listening() -> set[tuple[str, str, int]]:
    """Who of us and our servers listens where: title, address, port."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            title = " ".join(process.cmdline())
            ours = psutil.Process() in (process, *process.parents())
            for one in process.net_connections("inet") if ours or "-m server.sim" in title else ():
                if one.status == psutil.CONN_LISTEN:
                    found.add((title[:200], one.laddr.ip.removeprefix("::ffff:"), one.laddr.port))
    return found


def complete(seen: set[tuple[str, str, int]]) -> bool:
    """Whether everything that a run starts is among them."""
    parts = ("gcs_server", "/raylet", "ray::loadgen:worker", "ray::ServerActor", "ray::Wall", "-m server.sim")
    return all(any(part in title for title, _, _ in seen) for part in parts)


def test_r18_all_that_we_start_listens_on_loopback(tmp_path: Path) -> None:
    """Ray's processes, workers, board and server, while a Point is measured; none of Ray's well-known ports."""
    seen: set[tuple[str, str, int]] = set()
    over = threading.Event()

    def look() -> None:
        while not (over.wait(0.5) or complete(seen)):
            seen.update(listening())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for number in range(RUNS_MAX):  # a look takes a while on a busy machine, and must meet each of them alive
            if not complete(seen):
                main([*TINY, "load.concurrency=2", "load.requests=50", f"hydra.run.dir={tmp_path}/run{number}"])
    finally:
        over.set()
        looking.join()
    assert complete(seen), seen
    assert {one for one in seen if one[1] not in ("127.0.0.1", "::1")} == set()
    assert {port for _, _, port in seen} & {8265, 10001} == set()


def test_what_the_server_tells_beside_its_answers(tmp_path: Path) -> None:
    """Requests and counters agree on the accept length, the log tells of the queue, launch and rows name one stack."""
    asked = ["+variant=eagle_topk1_v2", "engine.version=0.5.23", "load.concurrency=6", "load.requests=18"]
    main([*TINY[1:], *asked, "++variant.args.max_running_requests=3", f"hydra.run.dir={tmp_path}/run"])
    point, launch = read_json(tmp_path / "run/c6/point.json"), read_json(tmp_path / "run/launch.json")
    numbers = point["summary"]
    assert numbers["accept_source"] == "requests"
    assert numbers["accept_length"] == pytest.approx(numbers["accept_length_counters"], rel=1e-9)
    assert numbers["server_counters"]["point"]["generation_tokens"] == 18 * 48
    assert (numbers["server_log"]["running_max"], numbers["server_log"]["running_cap"]) == (3, 3)
    assert [text for text in point["caveats"] if "at most 3 of 6" in text]
    assert (numbers["gpu"], numbers["tokens_per_joule"]) == (None, None)
    assert set(read_dataset(tmp_path)["stack"].to_pylist()) == {launch["must_match"]["hash"]}
    of = {**launch["must_match"]["of"], "workload_hash": point["workload_hash"]}
    assert point["must_match"] == {"hash": hash_of(of), "of": of}
    assert launch["provenance"]["engine_packages"]["packages"]["numpy"]


def test_i06_more_than_the_cluster_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More workers than CPUs, more GPUs than any node has: refused at once with both numbers, not waited for."""
    cpus, gpus = int(ray.cluster_resources()["CPU"]), max(node.gpus for node in cluster.nodes())
    cases = {
        (*TINY, "cluster.workers=9000"): f"needs 9000 CPUs, the cluster has {cpus}",
        ("+variant=baseline", "engine=sglang", f"model.path={tmp_path}", f"model.tp={gpus + 8}"): (
            f"needs model.tp={gpus + 8} GPUs on one node, the best has {gpus}"
        ),
    }
    for asked, words in cases.items():
        assert main([*asked, f"hydra.run.dir={tmp_path}/run"]) == 2
        assert words in capsys.readouterr().err
    assert not list(tmp_path.glob("run/*"))


def test_r17_texts_are_kept_only_when_asked(of_two_workers: Path, tmp_path: Path) -> None:
    """output.text=true writes answers to a file of their own; otherwise there are only hashes."""
    counted = ["load.concurrency=2", "load.requests=4"]
    assert main([*TINY, *counted, "output.text=true", f"hydra.run.dir={tmp_path}/kept"]) in (0, 6)
    lines = [json.loads(line) for line in (tmp_path / "kept/c2/text.jsonl").read_text().splitlines()]
    assert sorted(line["seq"] for line in lines) == [0, 1, 2, 3]
    assert all(len(line["text"].split()) == 48 for line in lines)
    assert not list(of_two_workers.glob("**/text.jsonl"))
    kept, only = (read_dataset(folder)["answer_sha256"].to_pylist() for folder in (tmp_path, of_two_workers))
    assert kept == only[:4]


def test_one_try_of_the_calibration() -> None:
    """A worker, its board and its files against the null server: every event has both its stamps."""
    with signals() as stop, trial.null_server() as address:
        one = trial.attempt(address, 4000.0, stop)
    assert 3000 < one.events_per_s < 5000
    assert 0 <= one.stamp_p50_ms <= one.stamp_p99_ms <= one.stamp_max_ms
    assert one.ttft_p99_ms > 0
    assert 0 < one.worker_cpu < 1.5


def test_resume_measures_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command with resume=true goes on in the newest folder of the same question and keeps what is VALID."""
    monkeypatch.chdir(tmp_path)
    texts = tmp_path / "p.jsonl"
    texts.write_text('"one"\n"two"\n')
    own = ["workload.source=jsonl", "workload.path=p.jsonl"]
    asked = [*TINY, *own, "engine.sim_speed=20", "load.concurrency=[1,2]", "load.requests=8", "workload.max_tokens=256"]
    assert main(asked) in (0, 6)
    (ledger,) = tmp_path.glob("outputs/*/*/ledger.jsonl")
    lines = read_ledger(ledger)
    # As after an interruption: the first Point is VALID, the second is not.
    lines[0]["status"], lines[1]["status"] = "VALID", "INTERRUPTED"
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = point_files(tmp_path)
    capsys.readouterr()
    assert main([*asked, "resume=true"]) in (0, 6)
    assert [path.parent for path in tmp_path.glob("outputs/*/*/ledger.jsonl")] == [ledger.parent]
    new = set(point_files(tmp_path)) - set(before)
    assert [read_json(path)["load"]["concurrency"] for path in new] == [2]
    assert [line["concurrency"] for line in read_ledger(ledger)] == [1, 2, 2]
    shown = capsys.readouterr().out
    assert shown.count("VALID") >= 2
    assert main([*asked, "workload.seed=7", "resume=true"]) == 2
    assert "holds no run with this same configuration" in capsys.readouterr().err
    texts.write_text('"one"\n"three"\n')
    assert main([*asked, "resume=true"]) == 2
    assert "prompts and files" in capsys.readouterr().err


def broken_servers(folder: Path) -> list[list[str]]:
    """For each Point of a run, what the rule about the server found."""
    points = sorted(map(read_json, point_files(folder)), key=lambda point: point["load"]["concurrency"])
    reasons = [point["verdict"]["reasons"] for point in points]
    return [[one["measured"] for one in some if one["rule"] == "server"] for some in reasons]


def test_another_variant_than_asked_is_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that runs, and tells, other speculation than its flags say: flag, told and asked are in the verdict."""
    python = [f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS=other_variant"]
    asked = ["load.concurrency=2", "load.requests=4", "output.quiet=false"]
    assert main([*TINY, *python, *asked, f"hydra.run.dir={tmp_path}/run"]) == 6
    assert broken_servers(tmp_path) == [["speculative_algorithm = EAGLE3", "disable_overlap_schedule = True"]]
    told = capsys.readouterr()
    assert "the server tells speculative_algorithm = EAGLE3, asked was None: its Points will be INVALID" in told.err
    assert "speculative_algorithm = EAGLE3 (asked speculative_algorithm = None)" in told.out


@pytest.mark.slow
def test_a_cap_and_a_line_of_the_log(tmp_path: Path) -> None:
    """SGLang's silent cap makes the levels above it INVALID, and those only; a flag that the log silences makes all."""
    python = tmp_path / "talking_python"
    line = "[2026-02-20 10:00:00 TP0] PyMscclpp is disabled due to an unsupported world size: 4."
    python.write_text(f'#!/bin/sh\necho "{line}"\nexec {faulty_python(tmp_path)} "$@"\n')
    python.chmod(0o755)
    capped = ["+variant=eagle_topk1_v2", "++variant.args.max_running_requests=null", *TINY[1:]]
    asked = [*capped, "load.concurrency=[1,49]", "load.requests=[2,49]"]
    assert main([*asked, f"hydra.run.dir={tmp_path}/capped"]) == 6
    assert broken_servers(tmp_path / "capped") == [[], ["max_running_requests = 48"]]
    silenced = [
        f"engine.python={python}",
        "++variant.args.enable_mscclpp=true",
        "load.concurrency=2",
        "load.requests=4",
    ]
    assert main([*TINY, *silenced, f"hydra.run.dir={tmp_path}/silenced"]) == 6
    ((told,),) = broken_servers(tmp_path / "silenced")
    assert told.startswith('enable_mscclpp = "PyMscclpp is disabled')


CPU_SGLANG = ["+variant=baseline", "engine=sglang", "engine.version=0.5.23", "++variant.args.device=cpu"]


def test_what_is_missing_is_refused_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another engine version, no model, too few open files: exit 2, each named with what to do, and no server."""
    python = tmp_path / "python"
    told = json.dumps({"python": "3.11.7", "packages": {"sglang": "0.5.9"}})
    python.write_text(f"#!/bin/sh\necho 'packages={told}'\n")
    python.chmod(0o755)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    cases = [
        (
            [*CPU_SGLANG, f"engine.python={python}", f"model.path={tmp_path}/m"],
            ["has sglang 0.5.9", "correct model.path"],
        ),
        ([*TINY, "load=open", "load.rate=1", f"load.max_in_flight={min(files, 900_000)}"], ["open files: limit"]),
    ]
    for place, (asked, words) in enumerate(cases):
        run = tmp_path / f"run{place}"
        assert main([*asked, "output.quiet=false", f"hydra.run.dir={run}"]) == 2
        told = capsys.readouterr().err
        assert "before the start" in told
        assert all(word in told for word in words), told
        assert not [*run.glob("**/server.log"), *run.glob("**/launch.json")]


@pytest.mark.slow
def test_a_server_that_dies_soon_after_it_was_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the warm-up, in it or in the Point: exit 3, and what killed it is told, not what followed from that."""
    python = [f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS=die_after:1"]
    asked = ["load.concurrency=2", "load.requests=2000", f"hydra.run.dir={tmp_path}/run"]
    assert main([*TINY, *python, *asked]) == 3
    (line,) = read_ledger(tmp_path / "run/ledger.jsonl")
    assert (line["status"], line["exit_code"]) == ("FAILED", 3)
    assert "SIGKILL" in line["reason"], line
    assert "warm-up requests was answered" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_simulated_server_has_no_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """engine.profile=true: its load comes once more, unrecorded; that no trace came is said, and the Points stand."""
    asked = ["load.concurrency=[2,3]", "load.requests=[6,6]", "engine.profile=true", "engine.profile_steps=5"]
    assert main([*TINY, *asked, f"hydra.run.dir={tmp_path}/run"]) in (0, 6)
    told = capsys.readouterr()
    assert told.out.count("no trace came: the server answers, and writes nothing") == 2
    assert "engine.profile: no trace came at concurrency 2" in told.err
    assert len(read_dataset(tmp_path)) == 12
    first, second = (read_json(path) for path in sorted(point_files(tmp_path)))
    assert first["summary"]["profile"]["trace"] is None
    assert [text for text in second["caveats"] if "profiler has run" in text]
    assert not [text for text in first["caveats"] if "profiler has run" in text]
    assert len({first["launch_id"], second["launch_id"]}) == 1


@pytest.mark.slow
def test_a_server_that_dies_under_the_profiler_costs_no_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It dies at a request of the stretch: the Point stands, and the next level has a server of its own."""
    python = [f"engine.python={faulty_python(tmp_path)}", "variant.env.FAULTS=die_after:0:26"]
    asked = ["load.concurrency=[2,3]", "load.requests=[6,6]", "engine.profile=true", *python]
    assert main([*TINY, *asked, f"hydra.run.dir={tmp_path}/run"]) in (0, 6)
    told = capsys.readouterr()
    points = [read_json(path) for path in sorted(point_files(tmp_path))]
    assert [point["verdict"]["status"] in ("VALID", "INVALID") for point in points] == [True, True]
    assert ["SIGKILL" in point["summary"]["profile"]["why"] for point in points] == [True, True], told.out
    assert len({point["launch_id"] for point in points}) == 2
    assert len(read_dataset(tmp_path)) == 12
    assert "no trace came at concurrency 3" in told.err


def test_r12_workers_and_questions_prove_themselves_and_what_was_not_verified_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that wants our certificate answers both; what was not verified is told at once and in the Point."""
    authority, own = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(own)
    authority.configure_trust(own)
    own.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("client@here").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    ways = {f"engine.ca_file={tmp_path}/ca.pem": [], "engine.tls_verify=false": [UNVERIFIED]}
    with serving(Api("", "word"), own) as api:
        asked = ["+variant=baseline", "engine=external", f"engine.url={api.url}", "load.concurrency=2"]
        asked += ["load.requests=6", "workload.max_tokens=4", "load.failed_share_max=1"]
        for way, remarks in ways.items():
            folder = tmp_path / way.partition("=")[0]
            client = f"engine.client_cert_file={tmp_path}/client.pem"
            assert main([*asked, way, client, f"hydra.run.dir={folder}"]) in (0, 6)
            told, point = capsys.readouterr(), read_json(folder / "c2/point.json")
            assert "ok" in (outcomes := set(read_dataset(folder)["outcome"].to_pylist())) <= {"ok", "http_status"}, (
                outcomes
            )
            assert [text for text in point["caveats"] if "verif" in text] == remarks
            assert [UNVERIFIED] * told.err.count(f"warning: {UNVERIFIED}") == remarks
            assert ("not verified" in told.out) == bool(remarks)
    assert {one for seen in api.authorizations.values() for one in seen} == {None}
