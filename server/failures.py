"""What a server's death means: the lines that engines write before they end, as classes with advice.

Pure. The lines are those of SGLang 0.5.9 to 0.5.23, vLLM and the simulator, as released.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LINE_CHARACTERS_MAX = 200
KILLED = (-9, 137)


@dataclass(frozen=True)
class Failure:
    """Why a server ended: `kind` is its class, `line` the line of the log that tells, empty where none does."""

    kind: str
    line: str
    advice: str


# The more specific first: an engine that ran out of memory also says that its child failed. Searched in whole logs,
# line by line (MULTILINE).
FAILURES: tuple[tuple[str, str, str], ...] = (
    (
        "gpu_occupied",
        r"memory capacity is unbalanced|Free memory on device .* is less than desired GPU memory utilization",
        "another process holds GPU memory; find it with nvidia-smi, or take other devices",
    ),
    (
        "kv_memory",
        r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|No available memory for the cache blocks|GiB KV cache is needed",
        "no room for the KV cache beside the weights: raise mem_fraction_static (vLLM: gpu_memory_utilization), "
        "or use more GPUs (model.tp)",
    ),
    (
        "gpu_memory",
        r"CUDA out of memory|torch\.OutOfMemoryError|OutOfMemoryError: CUDA|Capture cuda graph failed"
        r"|CUBLAS_STATUS_ALLOC_FAILED",
        "the GPU ran out of memory: lower mem_fraction_static (vLLM: gpu_memory_utilization), the largest graph batch "
        "or max_running_requests",
    ),
    (
        "host_memory",
        r"DefaultCPUAllocator: (?:can't|not enough|couldn't) allocate|std::bad_alloc|^MemoryError\b"
        r"|Cannot allocate memory",
        "the machine ran out of memory: free some, or use a smaller model",
    ),
    (
        "flag_refused",
        r"error: (?:unrecognized arguments|ambiguous option|argument |the following arguments are required)"
        r"|there is no fault '",
        "the engine does not know a flag, or its value: correct variant.args, or name the installed engine.version",
    ),
    (
        "package_missing",
        r"^(?:.*ERROR .*)?\s*(?:ModuleNotFoundError|ImportError):|^\S*python\S*: No module named"
        r"|(?:flashinfer|sgl[-_]kernel)\S* .*(?:is not installed|less than the minimum required)"
        r"|PackageNotFoundError|^cannot start ",
        "the engine's environment lacks a package: install it there, or name another interpreter (engine.python)",
    ),
    (
        "draft_mismatch",
        r"AttributeError: .*(?:set_embed|hot_token_id)|(?:size|shape) mismatch for|"
        r"The size of tensor a .* must match the size of tensor b",
        "draft and target weights do not fit each other: check model.draft_path",
    ),
    (
        "model_files",
        r"does not appear to have a file named|is not a local folder and is not a valid model identifier"
        r"|Repository Not Found|No safetensors|Cannot find any model weights|Incorrect path_or_model_id"
        r"|Can't load the configuration of",
        "the model's files are not where they were said to be: check model.path and model.draft_path",
    ),
    (
        "port_taken",
        r"\[Errno 98\]|is used by a process already|[Aa]ddress already in use|EADDRINUSE",
        "another process took a port between the choice and the start: run again",
    ),
    (
        "cuda_error",
        r"an illegal memory access was encountered|CUDA error:|device-side assert|Xid \(",
        "a kernel failed: try another attention backend or engine version, and look for Xid lines in dmesg",
    ),
    (
        "nccl",
        r"NCCL error|ncclSystemError|ncclInternalError|Watchdog caught collective operation timeout",
        "the devices could not talk to each other: set variant.env.NCCL_DEBUG=INFO, look at NCCL_* and the fabric",
    ),
    (
        "hang",
        r"[Ww]atchdog timeout|Health check failed\. Server couldn't get a response|sample_tokens? .*timed out"
        r"|RPC call to \S+ timed out",
        "the engine stood still until its own watchdog ended it: read the stacks in its log, or try another version",
    ),
    (
        "config_refused",
        r"\A(?![\s\S]*Init torch distributed begin)(?:.*\n)*?\s*(?:ValueError|AssertionError|NotImplementedError|"
        r"(?:pydantic_core\S*\.)?ValidationError|1 validation error for)\b",
        "the engine refuses this combination of flags: change variant.args",
    ),
    (
        "warm_up_failed",
        r"Initialization failed\. warmup error:",
        "the engine's own first request failed: read its log",
    ),
    (
        "engine_crashed",
        r"Scheduler hit an exception: Traceback|EngineCore encountered a fatal error|EngineDeadError"
        r"|EngineCore encountered an issue|Engine core initialization failed|EngineCore failed to start",
        "the engine's own process failed: read the traceback in its log",
    ),
    (
        "child_died",
        r"[Ss]cheduler (?:is dead|died during initialization)|Received sigquit from a child process|SIGQUIT received"
        r"|Subprocess .* crashed|Engine core proc \S+ died unexpectedly|Initialization failed\. Please see the error",
        "a process of the engine died without saying why: look for the kernel's OOM killer (dmesg) and core dumps",
    ),
)
PATTERNS = tuple((kind, re.compile(pattern, re.MULTILINE), advice) for kind, pattern, advice in FAILURES)


def classify(log: str, exit_status: int | None, oom_kills: Mapping[str, int] | None = None) -> Failure | None:
    """Why a server ended, from its log, its exit status (None: unknown), and how often the kernel killed meanwhile.

    `oom_kills` counts processes that ran out of the machine's memory while the server lived, by place. None where
    nothing tells.
    """
    told = next(_told(log), None)
    # A child of the engine that the kernel killed leaves no other line.
    if told and told.kind != "child_died":
        return told
    if where := [place for place, count in (oom_kills or {}).items() if count > 0]:
        advice = f"the kernel killed a process for want of memory ({where[0]}): free memory, or use a smaller model"
        return Failure("host_memory", told.line if told else "", advice)
    if told is None and exit_status in KILLED:
        return Failure("killed", "", "it was killed from outside, and says nothing: see dmesg, and who else works here")
    return told


def _told(log: str) -> Iterator[Failure]:
    for kind, pattern, advice in PATTERNS:
        if found := pattern.search(log):
            yield Failure(kind, _line(log, found.end()), advice)


def _line(log: str, place: int) -> str:
    """The line of the log that `place` is in."""
    begin = log.rfind("\n", 0, place) + 1
    end = log.find("\n", place)
    return log[begin : end if end >= 0 else None].strip()[:LINE_CHARACTERS_MAX]


def in_words(reason: str, failure: Failure | None) -> str:
    """A death with its class: "the server was killed by signal 9 (gpu_memory: CUDA out of memory)"."""
    if failure is None:
        return reason
    return f"{reason} ({failure.kind}{f': {failure.line}' if failure.line else ''})"
