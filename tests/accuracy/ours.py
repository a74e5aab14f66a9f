"""What our own worker can do, in the words of limit.py: a closed loop against truthd, by drive() as a Point runs it.

truthd --port 18000 --ttft-ms 50 --itl-ms 5 --stamp &
python tests/accuracy/ours.py --c 256 --n 1024 --stagger 2
"""

import argparse
import re
import resource
import sys
import time

import numpy as np
import uvloop

import loadgen.worker as worker
from loadgen.plan import Plan, Prompt

STAMP = re.compile(rb'"system_fingerprint":"(\d+)"')


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--c", type=int, default=64)
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--port", type=int, default=18000)
    parser.add_argument("--stagger", type=float, default=0.0)
    return parser.parse_args()


def shard_of(asked: argparse.Namespace) -> worker.Shard:
    """One worker that holds every stream."""
    prompt = Prompt("truth", "text", ({"role": "user", "content": "hello " * 64},))
    plan = Plan((prompt,), asked.tokens, True, 0.0, 0, requests=asked.n)
    url = f"http://127.0.0.1:{asked.port}"
    return worker.Shard(0, 1, asked.c, plan, "ours", (url,), "chat", "truth", asked.stagger, worker.Limits(), {})


async def measure(asked: argparse.Namespace) -> tuple[list[dict], list[dict], list]:
    """Rows, health rows and traces of one run."""
    rows: list[dict] = []
    health: list[dict] = []
    traces: list = []
    plain = worker.exchange

    async def keeping(*given: object) -> object:
        trace = await plain(*given)  # type: ignore[arg-type]
        traces.append(trace)
        return trace

    worker.exchange = keeping

    async def tell(beat: dict) -> dict:
        health.extend(beat.get("health", []))
        return {"go": not beat.get("exhausted"), "start_utc_ns": time.time_ns() + 10_000_000, "window": None}

    try:
        await worker.drive(shard_of(asked), tell, rows.extend)
    finally:
        worker.exchange = plain
    return rows, health, traces


def stamp_errors_ms(traces: list) -> np.ndarray:
    """Each read's stamp less the server's own stamp of the last event in it."""
    reads = ((stamp, data) for trace in traces for stamp, data in zip(trace.stamps, trace.parts, strict=True))
    pairs = ((stamp, STAMP.findall(data)) for stamp, data in reads)
    return np.array([(stamp - int(found[-1])) / 1e6 for stamp, found in pairs if found] or [np.nan])


def true_gap_p99_ms(traces: list) -> float:
    """Of the server's own stamps: what a perfect client would have seen."""
    stamps = [np.array(STAMP.findall(b"".join(trace.parts)), dtype=np.int64) for trace in traces]
    return float(np.percentile(np.concatenate([np.diff(one) for one in stamps] or [np.zeros(1)]), 99)) / 1e6


def recorded_bytes(rows: list[dict], traces: list) -> int:
    """What the run keeps on purpose: reads and stamps (the benchmark's), and rows."""
    kept = sum(sys.getsizeof(part) + 8 for trace in traces for part in trace.parts)
    stamps = sum(40 * (len(trace.stamps)) for trace in traces) + sum(40 * len(row["chunk_ns"]) for row in rows)
    return kept + stamps


def main() -> None:
    """Prints one line, as limit.py does."""
    asked = options()
    rss_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows, health, traces = uvloop.run(measure(asked))
    used = resource.getrusage(resource.RUSAGE_SELF)
    a_stream_kib = (used.ru_maxrss - rss_kib - recorded_bytes(rows, traces) / 1024) / asked.c
    ok = [row for row in rows if row["outcome"] == "ok"]
    wall_s = (max(row["done_ns"] for row in ok) - min(row["sent_ns"] for row in ok)) / 1e9
    tokens = sum(row["output_tokens"] for row in ok)
    ttft = np.array([row["first_token_ns"] - row["sent_ns"] for row in ok]) / 1e6
    gaps = np.concatenate([np.diff(row["chunk_ns"]) for row in ok]) / 1e6
    refill = np.array([row["refill_ns"] for row in ok if row["refill_ns"] is not None] or [0]) / 1e6
    lag = np.concatenate([row["loop_lag_ms"] for row in health])
    errors = stamp_errors_ms(traces)
    print(
        f"ours          uvloop  c={asked.c:<5} tok/s={tokens / wall_s:8.0f}  ok={len(ok)}/{len(rows)}  "
        f"cpu us/tok={(used.ru_utime + used.ru_stime) / tokens * 1e6:5.2f}  "
        f"reads/tok={sum(row['reads'] for row in ok) / tokens:.2f}  "
        f"ttft mean={ttft.mean():6.2f} p99={np.percentile(ttft, 99):6.2f}  gap p99={np.percentile(gaps, 99):6.2f}  "
        f"stamp error ms p50={np.percentile(errors, 50):.3f} p99={np.percentile(errors, 99):.3f} "
        f"max={errors.max():.2f}  "
        f"lag p99={np.percentile(lag, 99):.2f} max={lag.max():.1f}  refill p99={np.percentile(refill, 99):.2f}  "
        f"gc max={max(row['gc_pause_max_ms'] for row in health):.1f}  rss={used.ru_maxrss // 1024} MB  "
        f"true gap p99={true_gap_p99_ms(traces):.2f}  held={max(row['in_flight'] for row in health)}  "
        f"KiB/stream={a_stream_kib:.1f}"
    )


if __name__ == "__main__":
    main()
