"""A real SGLang that is killed, stopped, or finds its port taken: each ends as a simulated one, and leaves nothing."""

import http.server
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from engines import GONE_S_MAX, begin, end, eventually, of_engine, require_nothing_left, unprepared

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason := unprepared("sglang", "tiny")), reason=reason or "prepared"),
]

START_S_MAX = 900.0  # half a minute on idle cores, minutes on busy ones
CHAIN = ("+variant=eagle1_chain", "engine=sglang_cpu", "model=tiny", "engine.cores=[0]", "workload.max_tokens=64")
SILENCE_S = 30  # engine.hang_s_max; a first generation on a busy machine takes some seconds
DEATH_S_MAX = 10.0  # two seconds on idle cores
HANG_S_MAX = SILENCE_S + 40.0


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test did, no engine outlives it."""
    yield
    for process in of_engine():
        process.kill()


def level_running(folder: Path, number: int) -> None:
    """Wait until requests of this level have ended: its server generates."""
    text = f"level {number} of 2"

    def answered() -> bool:
        lines = [line for line in (folder / "err").read_text(errors="replace").splitlines() if text in line]
        return any("whole run" in line and " 0 done" not in line for line in lines)

    eventually(answered, START_S_MAX, text)


def ledger(results: Path) -> list[dict[str, object]]:
    path = results / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def strike(results: Path, number: int, limit_s: float) -> float:
    """Send a signal to the scheduler, the process that computes; seconds until the Point is in the ledger."""
    known = len(ledger(results))
    (scheduler,) = of_engine("sglang::scheduler")
    began_s = time.monotonic()
    scheduler.send_signal(number)
    eventually(lambda: len(ledger(results)) > known, limit_s, f"a ledger line after signal {number}")
    return time.monotonic() - began_s


def test_a_killed_and_a_stopped_scheduler_fail_their_points_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kill -9 in one level, SIGSTOP in the next, which got a fresh server: each FAILED by its own rule."""
    results, began_s = tmp_path / "results", time.monotonic()
    levels = ("load.concurrency=[2,3]", "load.requests=[2000,2000]")
    process = begin(tmp_path, *CHAIN, *levels, f"engine.hang_s_max={SILENCE_S}", f"hydra.run.dir={results}")
    try:
        level_running(tmp_path, 1)
        killed_s = strike(results, signal.SIGKILL, DEATH_S_MAX)
        level_running(tmp_path, 2)
        stopped_s = strike(results, signal.SIGSTOP, HANG_S_MAX)
    except BaseException:
        process.terminate()
        raise
    study = end(process, tmp_path, results, began_s)
    first, second = study.ledger()
    with capsys.disabled():
        print(f"\nkilled: told after {killed_s:.1f} s: {first['reason']}")
        print(f"stopped: told after {stopped_s:.1f} s: {second['reason']}\n{study.out}")
    assert (first["status"], first["exit_code"]) == ("FAILED", 3)
    assert (second["status"], second["exit_code"]) == ("FAILED", 3)
    rules = {point["load"]["concurrency"]: point["verdict"]["reasons"][:1] for point in study.points()}
    assert (rules[2][0]["rule"], rules[3][0]["rule"]) == ("server_died", "server_hung")
    assert study.code == 3
    assert len(study.launches()) == 2
    require_nothing_left()


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers 200 to everything, as another server would."""

    def do_GET(self) -> None:
        body = b'{"random_seed": 1, "data": [{"id": "tiny"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the standard library's name

    def log_message(self, *_: object) -> None:
        pass


def port_of_launch() -> int:
    """The port in the command line of the server that is starting; 0 before."""
    for process in of_engine("--port"):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "--port" in words:
            return int(words[words.index("--port") + 1])
    return 0


def test_a_taken_port_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    """Somebody else takes the port while SGLang loads, and answers 200: no Point, exit 3, his name."""
    results, began_s = tmp_path / "results", time.monotonic()
    process = begin(tmp_path, *CHAIN, "load.concurrency=2", "load.requests=4", f"hydra.run.dir={results}")
    number = eventually(port_of_launch, START_S_MAX, "a server's command line")
    with http.server.ThreadingHTTPServer(("127.0.0.1", number), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        study = end(process, tmp_path, results, began_s)
        stranger.shutdown()
    assert study.code == 3, study.err
    assert f"port {number} is answered by" in study.err
    assert study.points() == []
    eventually(lambda: not of_engine(), GONE_S_MAX, "gone")
