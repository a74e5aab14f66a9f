"""Batch lines of server logs: both dialects, ranks, missing fields, logs of many gigabytes; and what they say."""

import io

import pytest

from loadgen.logged import caveats
from server import batches
from server.batches import CHUNK_BYTES, Batches, lines, read

OLD = (
    b"[2026-02-20 10:00:00 TP0] Decode batch, #running-req: 48, #token: 12000, token usage: 0.12, accept len: 2.81, "
    b"accept rate: 0.70, cuda graph: True, gen throughput (token/s): 4312.55, #queue-req: 202"
)
OLD_PREFILL = (
    b"[2026-02-20 10:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 128, #cached-token: 0, token usage: 0.00, "
    b"#running-req: 0, #queue-req: 0, input throughput (token/s): 0.00, cuda graph: False"
)
NEW = (
    b"[2026-09-13 16:06:07] Decode batch [117], #running-req: 66, #full token: 9, full token usage: 1.00, mamba num: 3,"
    b" mamba usage: 0.10, cap len: 2.00, cuda graph: False, gen throughput (token/s): 2529.33, #queue-req: 13"
)
NEW_PREFILL = (
    b"[2026-09-24 10:31:46 PP0] Prefill batch, #new-seq: 1, #new-token: 12660, #cached-token: 0, token usage: 0.05, "
    b"#running-req: 0, #queue-req: 0, #pending-token: 3, cuda graph: False, input throughput (token/s): 501.36"
)
RETRACT = (
    b"[2026-09-13 16:06:07] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 646, "
    b"#new_token_ratio: 0.0980 -> 0.3487"
)
VLLM = (
    b"(APIServer pid=1) INFO 11-30 08:00:00 [loggers.py:248] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg "
    b"generation throughput: 20.0 tokens/s, Running: 4 reqs, Waiting: 3 reqs, GPU KV cache usage: 1.2%, Prefix cache"
)
OTHER = [b"", b"\xff\x00", b"Decode batch", b"[x] Prefill batch", b"POST /generate #running-req: 9", b"Running: 9 reqs"]


def told(*given: bytes) -> dict:
    found = Batches()
    for line in given:
        found.add(line)
    record = found.told()
    assert record is not None
    return record


def test_both_dialects() -> None:
    """Fields are found by their names, in whatever order and number a version prints them."""
    found = told(*OTHER, OLD, OLD_PREFILL, NEW, NEW_PREFILL, RETRACT)
    assert (found["decode_lines"], found["prefill_lines"]) == (2, 3)
    assert (found["running_max"], found["queued_max"], found["running_mean"]) == (66, 202, 57)
    assert (found["eager_share"], found["eager_running_min"]) == (0.5, 66)
    assert (found["queued_share"], found["token_usage_max"], found["retracted"]) == (1.0, 1.0, 2)


def test_ranks() -> None:
    """Tensor ranks print the same batch, data-parallel ranks have their own."""
    assert told(OLD, OLD.replace(b"TP0", b"TP1"))["running_max"] == 48
    two = told(OLD.replace(b"TP0", b"DP0 TP0"), OLD.replace(b"TP0", b"DP1 TP2"))
    assert (two["running_max"], two["queued_max"], two["running_mean"]) == (96, 404, 96)


def test_missing_fields() -> None:
    """What a line does not tell is not counted; a CPU's own graph is no CUDA graph."""
    short = told(b"[t] Decode batch. #running-req: 3, #token: 5", OLD.replace(b"cuda graph", b"cpu graph"))
    assert (short["eager_share"], short["queued_share"], short["running_max"]) == (None, 0.5, 48)
    assert Batches().told() is None


def test_vllm() -> None:
    """vLLM's line every ten seconds tells running, waiting and its cache."""
    found = told(VLLM)
    assert (found["running_max"], found["queued_max"], found["eager_share"]) == (4, 3, None)
    assert found["token_usage_max"] == pytest.approx(0.012)


def test_only_the_points_part_is_read() -> None:
    """From one end of the log to a later one; a line that is cut off at an edge is not guessed."""
    text = OLD + b"\n" + NEW + b"\n" + OLD
    start, end = len(OLD) + 1, len(OLD) + len(NEW) + 2
    found = read(io.BytesIO(text), start, end)
    assert found is not None
    assert (found["decode_lines"], found["running_max"], found["bytes_skipped"]) == (1, 66, 0)
    assert read(io.BytesIO(text), 0, 0) is None
    assert read(io.BytesIO(text), end, len(text)) is None


def test_a_log_of_many_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends are read and the middle is counted as skipped; a line without end does not fill the memory."""
    most = 2 * (len(OLD) + len(NEW) + 2)
    monkeypatch.setattr(batches, "PART_BYTES_MAX", most)
    text = OLD + b"\n" + (NEW + b"\n") * 50 + OLD + b"\n"
    found = read(io.BytesIO(text), 0, len(text))
    assert found is not None
    assert (found["decode_lines"], found["running_max"]) == (3, 66)
    assert found["bytes_skipped"] == len(text) - most
    endless = [b"x" * CHUNK_BYTES] * 3 + [b"\n" + OLD + b"\n"]
    assert max(map(len, lines(endless))) <= CHUNK_BYTES
    assert OLD in list(lines(endless))


def at_cap(**more: object) -> dict:
    return {**told(OLD), "running_cap": 48, "retracted": 0, **more}


def test_queueing_says_why() -> None:
    """Below the level's concurrency: by the server's limit, by its full cache, or by what its log tells."""
    (text,) = caveats(at_cap(), 100)
    assert "at most 48 of 100" in text
    assert "max_running_requests" in text
    assert "97 % full" in caveats(at_cap(running_cap=256, token_usage_max=0.97), 100)[0]
    assert "full" in caveats(at_cap(running_cap=None, retracted=3, token_usage_max=None), 100)[0]
    assert "server.log" in caveats(at_cap(running_cap=256), 100)[0]


def test_what_is_no_queue() -> None:
    """All streams run at times; a request waits for a moment before its prefill; a rate has no concurrency."""
    assert caveats(at_cap(), 48) == []
    assert caveats(at_cap(queued_share=0.2), 100) == []
    assert caveats(at_cap(), None) == []
    assert caveats(None, 100) == []


def test_steps_without_a_graph_and_retractions() -> None:
    """Both are told with what to change."""
    (eager,) = caveats({**told(NEW, OLD), "running_cap": 48}, 60)
    assert "50 % of its decode lines, from 66" in eager
    assert "cuda_graph_max_bs" in eager
    assert "took back 2" in caveats({**told(OLD, RETRACT), "running_cap": 48}, 48)[0]
