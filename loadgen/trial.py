"""One try at a level: a worker as in a Point, with its board and its files, against the null server.

Owns what is asked of both and for how long. It must not know which levels are tried, nor what their figures mean.
"""

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

import server
from loadgen import cluster, cores, dataset, exactness, store, worker
from loadgen.columns import columns
from loadgen.config import Cluster, Load
from loadgen.crew import Crew, hire
from loadgen.errors import ClusterError
from loadgen.exactness import Asked, Try
from loadgen.interrupt import Stop
from loadgen.plan import Plan, Prompt

STREAMS = 256
REQUEST_S = 0.75  # an answer's length: answers begin, end and are parsed all the time, as in a Point
ROUNDS = 3  # requests of each stream
FIRST_MS = 20.0
TRY_S_MAX = 30.0  # processes and imports on a busy machine; a try takes three seconds
NULL_START_S_MAX = 10.0
PROMPT = Prompt("null", "text", ({"role": "user", "content": "Tell me when you wrote this. " * 32},))
CALM = "end what else runs on this machine, then calibrate again"


@contextlib.contextmanager
def null_server() -> Iterator[str]:
    """The null server's address for the block, on a core of its own where one was spared for a second worker."""
    program = Path(str(server.__file__)).parent / "null.py"
    command = [sys.executable, "-I", "-S", str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if (core := cores.of(1)) is not None:
                os.sched_setaffinity(process.pid, {core})
            assert process.stdout is not None
            told, _, _ = select.select([process.stdout], [], [], NULL_START_S_MAX)
            port = process.stdout.readline().strip() if told else b""
            if not port:
                raise ClusterError(f"the null server did not start; {CALM}")
            yield f"http://127.0.0.1:{int(port)}"
        finally:
            process.kill()


def asked_for(events_per_s: float) -> Asked:
    """The streams, gap and length of answers that make so many events a second."""
    gap_ms = STREAMS / events_per_s * 1000
    tokens = max(2, round(REQUEST_S * 1000 / gap_ms))
    return Asked(STREAMS, tokens, FIRST_MS, gap_ms, stagger_s=(tokens - 1) * gap_ms / 1000 + FIRST_MS / 1000)


def attempt(address: str, events_per_s: float, stop: Stop) -> Try:
    """One try at `events_per_s`. Raises ClusterError where the worker is lost or does not end, Interrupted."""
    asked = asked_for(events_per_s)
    with tempfile.TemporaryDirectory(prefix="loadgen-calibrate-") as name:
        folder = Path(name)
        load = Load(kind="closed", concurrency=asked.streams)
        where = cluster.places(Cluster(), 0, ours=True)
        with store.marked(folder) as mark:
            crew = hire([_shard(address, asked)], load, asked.stagger_s, True, where, mark, stop)
            try:
                start_ns = _await(crew, stop)
                health = crew.look()["health"]
            finally:
                crew.dismiss()
        rows = store.requests_table(folder, None)
        texts = {line["seq"]: line["text"] for line in map(orjson.loads, dataset.text_lines(folder))}
    if set(rows["outcome"].to_pylist()) != {"ok"}:
        raise ClusterError(f"requests to the null server failed; {CALM}")
    return exactness.tried(columns(rows), texts, start_ns, asked, health)


def _shard(address: str, asked: Asked) -> worker.Shard:
    body = {"first_ms": asked.first_ms, "gap_ms": asked.gap_ms}
    plan = Plan(
        prompts=(PROMPT,),
        max_tokens=asked.tokens,
        ignore_eos=True,
        temperature=0.0,
        seed=0,
        numbered=False,
        requests=asked.streams * ROUNDS,
        body=body,
    )
    return worker.Shard(
        worker=0,
        workers=1,
        concurrency=asked.streams,
        plan=plan,
        point_id="calibration",
        base_urls=(address,),
        api="chat",
        model_id="null",
        stagger_s=asked.stagger_s,
        limits=worker.Limits(),
        identity={},
        keep_text=True,  # the answers are the server's own stamps
    )


def _await(crew: Crew, stop: Stop) -> int:
    """When the worker's clock began (ns), once it has returned."""
    deadline = time.monotonic() + TRY_S_MAX
    while True:
        returned, lost, over = crew.ended(cluster.POLL_S)
        if lost:
            raise lost[0]
        if over:
            return int(returned[0]["start_ns"])
        stop.check()
        if time.monotonic() > deadline:
            raise ClusterError(f"a try of {REQUEST_S * (ROUNDS + 1):g} s did not end within {TRY_S_MAX:g} s; {CALM}")
