"""Our worker against a server that knows the truth: counts always, stamps loosely and only where asked."""

import argparse
import csv
import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvloop
from ours import measure, stamp_errors_ms

HERE = Path(__file__).parent
TURNS_MAX = 3
Truthd = Callable[..., str]


def asked(url: str, **changes: object) -> argparse.Namespace:
    return argparse.Namespace(**{"c": 8, "n": 32, "tokens": 24, "port": urlsplit(url).port, "stagger": 0.1, **changes})


@pytest.mark.parametrize("per_chunk", [1, 4])
def test_counts_are_the_servers(truthd: Truthd, per_chunk: int) -> None:
    """Requests, tokens and chunks are those that the server counted; no stamp precedes its event."""
    url = truthd("--ttft-ms", "10", "--itl-ms", "2", "--stamp", "--tokens-per-chunk", str(per_chunk))
    rows, health, traces = uvloop.run(measure(asked(url)))
    assert {row["outcome"] for row in rows} == {"ok"}
    seen = {(row["output_tokens"], len(row["chunk_ns"]), row["token_source"]) for row in rows}
    assert seen == {(24, 24 // per_chunk, "usage")}
    assert (stamp_errors_ms(traces) >= 0).all()
    assert sum(len(row["loop_lag_ms"]) for row in health) > 0
    with urllib.request.urlopen(f"{url}/truth") as told:
        assert json.load(told)["tokens"] == 32 * 24


def test_the_log_knows_our_request_ids(truthd_binary: Path, tmp_path: Path) -> None:
    """A server's log and our rows can be joined by X-Request-Id; it received nothing before we sent it."""
    log = tmp_path / "truth.csv"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--ttft-ms", "5", "--itl-ms", "1", "--stamp", "--log", str(log)]
    with subprocess.Popen([truthd_binary, *options], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert "ready" in server.stderr.readline()
        rows, _, traces = uvloop.run(measure(asked(f"http://127.0.0.1:{port}", n=16)))
        server.terminate()  # the log is written at the end
    with log.open() as lines:
        truth = {row["request_id"]: row for row in csv.DictReader(lines)}
    assert set(truth) == {f"ours.{row['seq']}.text" for row in rows}
    sent = sorted(trace.sent_ns for trace in traces)
    received = sorted(int(row["t_recv"]) for row in truth.values())
    assert all(ours <= theirs for ours, theirs in zip(sent, received, strict=True))


@pytest.mark.slow
def test_stamps_are_near_the_limit(truthd: Truthd) -> None:
    """256 streams at 5 ms: our stamps are not far worse than the bare protocol's in the same minute.

    In one of three turns: a core that others have for a tenth of a second is what a p99 shows, whichever turn it hits.
    """
    url = truthd("--ttft-ms", "50", "--itl-ms", "5", "--stamp")
    for _ in range(TURNS_MAX):
        bare_ms, ours_ms = bare_p99_ms(url), ours_p99_ms(url)
        print(bare_ms, ours_ms)
        if ours_ms < max(10.0, 10 * bare_ms):
            break
    assert ours_ms < max(10.0, 10 * bare_ms)


def bare_p99_ms(url: str) -> float:
    """The stamp error of the bare protocol."""
    load = ("--c", "256", "--n", "512", "--stagger", "2", "--port", str(urlsplit(url).port))
    limit = [sys.executable, str(HERE / "limit.py"), "raw", *load]
    told = subprocess.run(limit, capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"p99=([\d.]+)", told)[-1])


def ours_p99_ms(url: str) -> float:
    """Ours, under the same load."""
    _, _, traces = uvloop.run(measure(asked(url, c=256, n=512, tokens=512, stagger=2.0)))
    return float(np.percentile(stamp_errors_ms(traces), 99))
