"""The whole program on one core, in the place where other tools were measured, and two workers beside one.

    python tests/accuracy/whole.py [RUNS]       three runs of each row unless told otherwise, some minutes

Rows "at once" start all 256 streams together, as the other tools do; "spread" ones spread them over a request's
duration. Each row is the median of the runs.
"""

import csv
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as parquet
from bench import CLIENT_CORE, TTFT_MS, build, missing, serving, wait_for_quiet

RUN_S_MAX = 300.0
STREAMS, REQUESTS, TOKENS = 256, 1024, 512
POLL_S = 0.1


@dataclass(frozen=True)
class Told:
    """What one run of the program reported, the truth beside it, and what its processes used."""

    tokens_per_s: float
    ttft_mean_ms: float
    true_ttft_ms: float
    gap_p99_ms: float
    worker_cpu_us: float  # a token, of all workers
    driver_share: float  # of a core, between the first request and the last


def program(core: str | None, folder: str, *overrides: str) -> subprocess.Popen[bytes]:
    """The program in `folder`, on one core where one is given."""
    pin = ["taskset", "-c", core] if core else []
    fixed = ("+variant=baseline", "engine=external", "output.quiet=true", "hydra.run.dir=result")
    command = [*pin, sys.executable, "-m", "loadgen", *fixed, *overrides]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(binary: Path, gap_ms: float, core: str | None, *overrides: str) -> Told:
    """One run against a fresh truthd on the other core."""
    wait_for_quiet()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "truth.csv"
        with serving(binary, gap_ms, log) as port:
            process = program(core, folder, f"engine.url=http://127.0.0.1:{port}", *overrides)
            driver: list[tuple[int, float]] = []
            watch = threading.Thread(target=_watch, args=(process.pid, driver))
            watch.start()
            code = process.wait(RUN_S_MAX)
            watch.join()
        assert code in (0, 6), f"the program ended with {code}"
        return _told(next(Path(folder, "result").glob("*/point.json")), log, driver)


def _watch(pid: int, seen: list[tuple[int, float]]) -> None:
    """Notes the driver's CPU seconds by time (ns, wall clock) until it ends."""
    try:
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            used = process.cpu_times()
            seen.append((time.time_ns(), used.user + used.system))
            time.sleep(POLL_S)
    except psutil.Error:
        return


def _told(point: Path, log: Path, driver: list[tuple[int, float]]) -> Told:
    numbers: dict[str, Any] = json.loads(point.read_text())["summary"]
    rows = parquet.read_table(point.with_name("requests.parquet"))
    health = parquet.read_table(point.with_name("health.parquet")).to_pydict()
    with log.open() as told:
        truth = [(int(one["t_first"]) - int(one["t_recv"])) / 1e6 for one in csv.DictReader(told)]
    begun_ns = int(rows["started_at"][0].as_py().timestamp() * 1e9)
    sent_ns, done_ns = rows["sent_ns"].to_numpy().min(), rows["done_ns"].to_numpy().max()
    inside = [one for one in driver if begun_ns + sent_ns <= one[0] <= begun_ns + done_ns]
    driver_s = (inside[-1][0] - inside[0][0]) / 1e9
    cpu_s = sum(share * ns / 1e9 for share, ns in zip(health["cpu_share"], health["duration_ns"], strict=True))
    tokens = sum(rows["output_tokens"].to_pylist())
    return Told(
        numbers["output_tokens_per_s"],
        numbers["ttft_ms"]["mean"],
        statistics.mean(truth),
        numbers["chunk_gap_ms"]["p99"],
        cpu_s / tokens * 1e6,
        (inside[-1][1] - inside[0][1]) / driver_s,
    )


def main() -> None:
    """Prints the table."""
    if why := missing():
        raise SystemExit(f"it cannot be measured here: {why}")
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    counted = (f"load.concurrency={STREAMS}", f"load.requests={REQUESTS}")
    # Spread over one request's duration: with a single level the program itself would allow for far longer ones.
    rows: list[tuple[str, float, str | None, tuple[str, ...]]] = [
        (f"{name}, gap {gap:g} ms", gap, CLIENT_CORE, (*counted, f"load.stagger_s={stagger_s}"))
        for gap in (5.0, 2.0)
        for name, stagger_s in (("at once", 0), ("spread", (TTFT_MS + TOKENS * gap) / 1000))
    ]
    rows += [
        (
            "1 worker, 128 streams, gap 5 ms",
            5.0,
            None,
            ("load.concurrency=128", "load.requests=1024", "load.stagger_s=2.6"),
        ),
        (
            "2 workers, 256 streams, gap 5 ms",
            5.0,
            None,
            ("load.concurrency=256", "load.requests=2048", "load.stagger_s=2.6", "cluster.workers=2"),
        ),
    ]
    print(f"{'row':34} {'tok/s':>8} {'TTFT':>7} {'true':>7} {'gap p99':>8} {'worker us/tok':>14} {'driver':>7}")
    with tempfile.TemporaryDirectory() as folder:
        binary = build(Path(folder))
        for name, gap_ms, core, overrides in rows:
            told = [run(binary, gap_ms, core, *overrides) for _ in range(runs)]
            middle = [
                statistics.median(column) for column in zip(*(tuple(vars(one).values()) for one in told), strict=True)
            ]
            tokens, ttft, true, gap, cpu, driver = middle
            print(f"{name:34} {tokens:8.0f} {ttft:7.1f} {true:7.1f} {gap:8.2f} {cpu:14.2f} {driver:7.1%}", flush=True)


if __name__ == "__main__":
    main()
