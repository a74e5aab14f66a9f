"""What the end of a Point costs its driver, by tokens: `python tests/accuracy/driver.py [REQUESTS [TOKENS]]`.

One process makes up rows and writes them as two workers do; another one does with them what a driver does: a table,
columns, facts, verdict, numbers, Parquet. Prints by how much its memory rose, at most so far, and its CPU time: of
40,000 requests of 512 tokens unless told otherwise, which take half a gigabyte of disk.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from rows import health, row

from loadgen import store, verdict
from loadgen.columns import columns
from loadgen.config import Load
from loadgen.facts import gather
from loadgen.summary import summarize
from loadgen.window import Window

STREAMS, WORKERS, GAP_NS, NS = 256, 2, 20_000_000, 1_000_000_000
KINDS = ("code", "chat", "summary", "story")


def make(folder: Path, requests: int, tokens: int) -> None:
    """The rows of a closed loop as they end; a hundredth of them does not tell its chunk_tokens."""
    rng, lasts_ns = np.random.default_rng(0), tokens * GAP_NS
    writers = [store.RowWriter(store.stream_path(folder, number)) for number in range(WORKERS)]
    waiting: list[dict[str, Any]] = []
    for seq in range(requests):
        sent_ns = int((seq + rng.random()) / STREAMS * lasts_ns)
        stamps = (sent_ns + np.cumsum(rng.uniform(0.9, 1.1, tokens) * GAP_NS).astype(np.int64)).tolist()
        told = {"chunk_tokens": None} if seq % 100 == 7 else {}
        kind = {"prompt_kind": KINDS[seq % len(KINDS)], "worker": seq % WORKERS, "answer_sha256": f"{seq:064x}"}
        waiting.append(row(seq, sent_ns / 1e6, chunk_ns=stamps, **told, **kind))
        if seq % (STREAMS // 4) == 0 or seq == requests - 1:
            until_ns = sent_ns if seq < requests - 1 else np.inf
            ended = sorted((one for one in waiting if one["done_ns"] <= until_ns), key=lambda one: one["done_ns"])
            waiting = [one for one in waiting if one["done_ns"] > until_ns]
            for number, writer in enumerate(writers):
                writer.append([one for one in ended if one["worker"] == number])


def conclude(folder: Path, requests: int, tokens: int) -> None:
    """The driver's part: what it took so far after each step, and in all."""
    lasts_ns, events = tokens * GAP_NS, requests * tokens
    span = Window(lasts_ns, max(2, requests // STREAMS - 1) * lasts_ns, "made up")
    seconds = [health(1000 * second) for second in range(span.end_ns // NS)]
    before, begun_s = held("VmRSS"), time.process_time()

    def step(name: str) -> None:
        took_s, rose = time.process_time() - begun_s, held("VmHWM") - before
        print(f"{name:8} {took_s:5.1f} CPU-s, {rose / events:5.1f} bytes a token", flush=True)

    rows = store.requests_table(folder, (span.start_ns, span.end_ns))
    step("table")
    cols = columns(rows)
    step("columns")
    judged = verdict.judge(gather(cols, seconds, span, Load(), STREAMS))
    step("verdict")
    numbers = summarize(cols, span.start_ns, span.end_ns, concurrency=STREAMS, gpus=8, whole_run=False)
    step("numbers")
    store.commit_point(folder, rows, seconds, {"verdict": verdict.as_json(judged), "summary": numbers})
    step("Parquet")
    print(f"of {events / 1e6:.1f} million tokens, above {before / 2**20:.0f} MiB before the first")


def held(what: str) -> int:
    """Memory of this process that is resident now (VmRSS), or was at most (VmHWM), bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


if __name__ == "__main__":
    if sys.argv[1:2] in (["make"], ["conclude"]):
        {"make": make, "conclude": conclude}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        sys.exit()
    asked = [*sys.argv[1:], *("40000", "512")[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as place:
        for part in ("make", "conclude"):
            subprocess.run([sys.executable, __file__, part, place, *asked], check=True)
