"""What a Point costs the driver and the board, by workers, requests and tokens: `python tests/accuracy/scale.py`.

24 real workers, each a process of its own, through the whole program; then 200 shards on 8 processes, each shard the
loop that a worker is, against the same board. Prints what docs/scale.md calculates with. Two cores are enough: what is
counted are calls and bytes; times are only printed.
"""

import asyncio
import dataclasses
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray
import uvloop

from loadgen import cluster, crew, duty, record, rowstream, worker
from loadgen.__main__ import main
from loadgen.board import Wall
from loadgen.config import Load, Workload
from loadgen.prompts import load as load_prompts
from loadgen.prompts import plan as plan_of
from loadgen.shard import limits
from loadgen.trial import null_server

WORKERS = (4, 24)
SHARDS, PROCESSES, SHARD_STREAMS, SECONDS = 200, 8, 2, 20
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
PORT = 6391


@contextmanager
def wide() -> Iterator[str]:
    """A Ray of this machine that takes more workers than it has cores; its address."""
    env = {**os.environ, "RAY_worker_niceness": "0", "RAY_AUTH_MODE": "disabled"}
    os.environ["RAY_AUTH_MODE"] = "disabled"
    head = ["start", "--head", f"--port={PORT}", f"--num-cpus={max(WORKERS) + 4}", "--include-dashboard=false"]
    with tempfile.TemporaryDirectory(prefix="lgs-", dir="/tmp") as folder:
        subprocess.run(
            [*RAY, *head, "--node-ip-address=127.0.0.1", f"--temp-dir={folder}", "--disable-usage-stats"],
            env=env, check=True, capture_output=True,
        )  # fmt: skip
        try:
            yield f"127.0.0.1:{PORT}"
        finally:
            for pid in _below(folder):
                os.kill(pid, 9)


def _below(folder: str) -> list[int]:
    """The processes of the Ray whose files lie in `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder.encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts what the driver calls over Ray, and the bytes of what it gives along."""
    seen: Counter[str] = Counter()
    from ray.actor import ActorMethod
    from ray.remote_function import RemoteFunction

    kept = {
        (owner, name): getattr(owner, name) for owner, name in ((ActorMethod, "_remote"), (RemoteFunction, "_remote"))
    }

    def watched(kind: str, real: Any) -> Any:
        def call(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            seen[kind] += 1
            seen[f"{kind} bytes"] += sum(len(pickle.dumps(one, 5)) for one in args or () if _plain(one))
            return real(self, args, kwargs, **options)

        return call

    try:
        for (owner, name), real in kept.items():
            setattr(owner, name, watched("calls" if owner is ActorMethod else "tasks", real))
        yield seen
    finally:
        for (owner, name), real in kept.items():
            setattr(owner, name, real)


def _plain(value: Any) -> bool:
    return not isinstance(value, ray.ObjectRef | ray.actor.ActorHandle)


def whole(address: str, workers: int, requests: int, tokens: int) -> None:
    """One Point of the whole program in this process; a line of figures."""
    with tempfile.TemporaryDirectory() as folder, counted() as seen:
        begun_s = time.process_time()
        main(
            ["+variant=baseline", "engine=sim", "engine.sim_speed=20", f"cluster.address={address}",
             "output.quiet=true", f"cluster.workers={workers}", "load.concurrency=48", f"load.requests={requests}",
             f"workload.max_tokens={tokens}", f"hydra.run.dir={folder}/run"]
        )  # fmt: skip
        cpu_s = time.process_time() - begun_s
        point = Path(folder) / "run" / "c48"
        rows = pq.read_table(point / "requests.parquet", columns=["done_ns"])
        long_s = max(filter(None, rows["done_ns"].to_pylist())) / 1e9
        files = sum(1 for path in point.iterdir())
        size = sum(path.stat().st_size for path in point.iterdir())
    told = ", ".join(f"{name} {count}" for name, count in sorted(seen.items()))
    what = f"{workers:3} workers {requests:5} requests of {tokens:3}: {long_s:5.1f} s, driver {cpu_s:4.1f} CPU-s"
    print(f"{what}, {told}; {files} files, {size / 1e6:.2f} MB", flush=True)


def shards(url: str) -> list[worker.Shard]:
    """The shards of a Point of SHARDS workers."""
    asked = Workload(name="diverse", source="builtin", max_tokens=64)
    plan = plan_of(asked, load_prompts(asked)[0], 0, None)
    one = worker.Shard(0, SHARDS, SHARDS * SHARD_STREAMS, plan, "scale", (url,), "chat", "null", 2.0, limits(Load()),
                       dict.fromkeys(column.name for column in record.IDENTITY))  # fmt: skip
    return [dataclasses.replace(one, worker=number) for number in range(SHARDS)]


def several(mine: list[worker.Shard], wall: Any, key: str) -> list[dict[str, Any]]:
    """A process that is many workers: each its own loop of streams, its own beats, its own rows."""

    async def one(shard: worker.Shard) -> dict[str, Any]:
        took, sizes, rows = [], [], rowstream.RowSender()

        async def tell(beat: dict[str, Any]) -> dict[str, Any]:
            parcel = rows.parcel() if beat["phase"] != "ready" else None
            sizes.append((len(pickle.dumps(beat, 5)), len(parcel.rows) if parcel else 0))
            begun = time.monotonic()
            answer = await (duty._tell(wall, key, beat, parcel) if parcel else duty._tell(wall, key, beat))
            took.append(time.monotonic() - begun)
            if parcel:
                rows.arrived(parcel)
            return answer

        done = await worker.drive(shard, tell, rows.append_with_texts)
        return {**done, "took_s": took, "sizes": sizes}

    async def together() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*map(one, mine)))

    return uvloop.run(together())


def many(url: str) -> None:
    """200 shards on 8 processes: what the board bears."""
    given, key = shards(url), "scale"
    folder = tempfile.mkdtemp()
    wall = ray.remote(Wall).options(num_cpus=0).remote(crew.store.kept)
    ray.get(wall.hang.remote(key, Load(kind="closed", window_s=600.0), SHARDS, 2.0, False, folder))
    groups = [given[number::PROCESSES] for number in range(PROCESSES)]
    refs = [ray.remote(several).options(num_cpus=1).remote(group, wall, key) for group in groups]
    begun_s = time.monotonic()
    health = 0
    while time.monotonic() - begun_s < SECONDS + 15:
        look = ray.get(wall.look.remote(key))
        health += len(pickle.dumps(look, 5))
        time.sleep(0.25)
    cpu = _cpu_of("ray::Wall")
    ray.get(wall.stop.remote(key, "enough"))
    done = [one for group in ray.get(refs) for one in group]
    beats = np.array([size for one in done for size, _ in one["sizes"]])
    rows = np.array([size for one in done for _, size in one["sizes"]])
    took = np.array([took for one in done for took in one["took_s"]])
    late = np.array([one["start_late_ns"] or np.nan for one in done]) / 1e6
    sent = sum(one["sent"] for one in done)
    lines = (
        f"{SHARDS} shards on {PROCESSES} processes: {len(took)} beats of {beats.mean():.0f} bytes; "
        f"{sent} requests, {rows.sum() / max(1, sent):.0f} bytes of rows each",
        f"a beat's answer p50 {np.median(took) * 1e3:.1f} ms, p99 {np.quantile(took, 0.99) * 1e3:.0f} ms; "
        f"board {cpu:.1f} CPU-s; driver reads {health / 1e6 / SECONDS:.2f} MB/s",
        f"start late p50 {np.nanmedian(late):.1f} ms, max {np.nanmax(late):.1f} ms; a shard travels as "
        f"{len(pickle.dumps(crew.without_plan(given[0]), 5))} bytes, "
        f"the plan once as {len(pickle.dumps(given[0].plan, 5))}",
    )
    print("\n".join(lines), flush=True)


def _cpu_of(title: str) -> float:
    import psutil

    found = [one for one in psutil.process_iter(["cmdline"]) if title in " ".join(one.info["cmdline"] or ())]
    return sum(sum(one.cpu_times()[:2]) for one in found)


if __name__ == "__main__":
    with wide() as address:
        if sys.argv[1:] == ["many"]:
            with cluster.opened(address), null_server() as url:
                many(url)
            sys.exit()
        for case in ((4, 480, 64), (4, 480, 512), (4, 1920, 64), (24, 1920, 64)):
            whole(address, *case)
        with cluster.opened(address), null_server() as url:
            many(url)
