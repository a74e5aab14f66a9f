"""What engines write before they end, as released, and the class each line belongs to."""

import time

import pytest

from server.failures import FAILURES, classify

SIGQUIT = "[2026-02-20 10:00:00] Received sigquit from a child process. It usually means the child failed.\n"
BEGUN = "[2026-02-20 10:00:00 TP0] Init torch distributed begin.\n"
TRACE = "Scheduler hit an exception: Traceback (most recent call last):\n"

SAID = [
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "kv_memory"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory"),
    ("Capture cuda graph failed: x\nPossible solutions:\n1. set --mem-fraction-static", "gpu_memory"),
    (
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. rank0=1",
        "gpu_occupied",
    ),
    ("launch_server.py: error: unrecognized arguments: --no-such", "flag_refused"),
    ("launch_server.py: error: ambiguous option: --tp could match --tp-size, --tpx", "flag_refused"),
    ("ValueError: Spec v2 currently only supports topk = 1 for speculative decoding.", "config_refused"),
    ("AssertionError: page size", "config_refused"),
    ("Rank 0 scheduler is dead. Please check if there are relevant logs.", "child_died"),
    ("Rank 0 scheduler died during initialization (exit code: -9). x", "child_died"),
    ("Initialization failed. warmup error: Traceback", "warm_up_failed"),
    (TRACE + "RuntimeError: simulated failure at start", "engine_crashed"),
    ("SIGQUIT received. signum=3, frame=None. It usually means one child failed.", "child_died"),
    ("Subprocess scheduler_0 (pid=77) crashed with exit code -11. Triggering SIGQUIT for cleanup...", "child_died"),
    ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "hang"),
    ("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.", "hang"),
    ("ModuleNotFoundError: No module named 'deep_ep'", "package_missing"),
    ("cannot start /no/such/python: No such file or directory", "package_missing"),
    ("RuntimeError: nccl_port is used by a process already", "port_taken"),
    ("[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use", "port_taken"),
    ("RuntimeError: size mismatch for fc.weight: copying a param", "draft_mismatch"),
    ("AttributeError: 'X' object has no attribute 'set_embed'", "draft_mismatch"),
    ("torch.distributed.DistBackendError: NCCL error in: x", "nccl"),
    ("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", "nccl"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error"),
    ("OSError: /m does not appear to have a file named config.json.", "model_files"),
    # vLLM
    ("ValueError: Free memory on device (3.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9)",
     "gpu_occupied"),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "kv_memory"),
    ("ERROR Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "child_died"),
    ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "engine_crashed"),
    ("RuntimeError: Engine core initialization failed. See root cause above.", "engine_crashed"),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory", "host_memory"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "kind"), SAID)
def test_a_line_has_its_class(said: str, kind: str) -> None:
    """Each line is found between others, gives its class, itself and an advice; the general line after it is none."""
    begun = BEGUN if kind != "config_refused" else ""
    failure = classify(f"{begun}loading\n{said}\n{SIGQUIT}", -9)
    assert failure is not None
    assert failure.kind == kind
    assert failure.line in said or kind == "config_refused"
    assert failure.line
    assert failure.advice


def test_every_class_is_tried() -> None:
    """No pattern without a line that it was made for."""
    assert {kind for _, kind in SAID} == {kind for kind, _, _ in FAILURES}


def test_an_error_while_serving_is_no_refused_configuration() -> None:
    """Once the devices were joined a ValueError is the engine's own."""
    failure = classify(BEGUN + TRACE + "ValueError: negative\n", -9)
    assert failure is not None
    assert failure.kind == "engine_crashed"


def test_killed_without_a_word() -> None:
    """Status -9 and an empty log: the kernel for want of memory where it counted one, else somebody else."""
    counted, silent = (
        classify("serving\n", -9, {"this control group": 1}),
        classify("serving\n", -9, {"this machine": 0}),
    )
    child = classify(SIGQUIT, -9, {"this machine": 2})
    assert counted is not None
    assert silent is not None
    assert child is not None
    assert (counted.kind, silent.kind, child.kind) == ("host_memory", "killed", "host_memory")
    assert "this control group" in counted.advice


def test_an_orderly_end_says_nothing() -> None:
    """No line and no signal: no class."""
    assert classify("The server is fired up and ready to roll!\n", 0) is None


def test_a_long_log_costs_little() -> None:
    """A quarter of a megabyte of decode lines is searched in well under a second: a Point waits for it."""
    log = "[2026-02-20 10:00:00 TP0] Decode batch, #running-req: 48, #token: 12000, token usage: 0.12\n" * 2800
    begun_s = time.process_time()
    assert classify(log, 0) is None
    assert time.process_time() - begun_s < 1.0
