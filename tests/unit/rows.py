"""Rows of a Point as a worker would have written them, for tests of everything that reads rows."""

from datetime import UTC, datetime
from typing import Any

NS_PER_MS = 1_000_000
IDENTITY: dict[str, Any] = {
    "study": None,
    "variant": "baseline",
    "spec_mode": "none",
    "engine": "sim",
    "engine_version": "0.5.9",
    "simulated": True,
    "sim_speed": 10.0,
    "model": "kimi_k25",
    "workload": "story",
    "workload_hash": "abc",
    "block": 0,
    "concurrency": 1,
    "rate": None,
    "point_id": "p0",
    "launch_id": "l0",
    "started_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
}


def row(seq: int, sent_ms: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A request sent at `sent_ms`: first output after 100 ms, then four more events 10 ms apart, 5 tokens in all."""
    sent = round(sent_ms * NS_PER_MS)
    chunk_ns = changes.pop("chunk_ns", [sent + (100 + 10 * i) * NS_PER_MS for i in range(5)])
    first, last = (chunk_ns[0], chunk_ns[-1]) if chunk_ns else (None, None)
    whole = {
        **IDENTITY,
        "seq": seq,
        "prompt_id": f"t{seq}",
        "prompt_kind": "code",
        "worker": 0,
        "host": "here",
        "endpoint": "http://127.0.0.1:1",
        "planned_ns": sent,
        "sent_ns": sent,
        "headers_ns": sent + NS_PER_MS,
        "first_chunk_ns": first,
        "first_token_ns": first,
        "first_answer_ns": first,
        "last_token_ns": last,
        "done_ns": last,
        "address": "127.0.0.1",
        "dns_ns": None,
        "connect_ns": None,
        "tls_ns": None,
        "refill_ns": NS_PER_MS,
        "chunk_ns": chunk_ns,
        "chunk_tokens": [1] * len(chunk_ns),
        "prompt_tokens": 20,
        "output_tokens": len(chunk_ns),
        "cached_tokens": 0,
        "planned_tokens": 5,
        "token_source": "usage",
        "spec_verify_steps": None,
        "bytes": 1000,
        "reads": len(chunk_ns),
        "done_seen": True,
        "short": False,
        "answer_sha256": "f" * 64,
        "outcome": "ok",
        "http_status": 200,
        "error": None,
        "finish_reason": "length",
    }
    return {**whole, **changes}


def failure(seq: int, sent_ms: float, outcome: str, **changes: Any) -> dict[str, Any]:
    """A request without any output."""
    nothing: dict[str, Any] = {"chunk_ns": [], "output_tokens": None, "prompt_tokens": None, "token_source": None}
    sent = round(sent_ms * NS_PER_MS)
    return row(seq, sent_ms, **{**nothing, "outcome": outcome, "done_ns": sent + 10 * NS_PER_MS, **changes})


def health(t_ms: float, **changes: Any) -> dict[str, Any]:
    """One second of a quiet worker."""
    quiet = {
        **IDENTITY,
        "worker": 0,
        "host": "here",
        "pid": 1,
        "t_ns": round(t_ms * NS_PER_MS),
        "utc": datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
        "duration_ns": 1000 * NS_PER_MS,
        "loop_lag_ms": [0.1] * 200,
        "in_flight": 1,
        "sent": 1,
        "finished": 1,
        "failed": 0,
        "reads": 5,
        "cpu_share": 0.2,
        "rss_bytes": 10_000_000,
        "descriptors": 12,
        "descriptors_max": 24,
        "gc_pause_max_ms": 0.0,
    }
    return {**quiet, **changes}
