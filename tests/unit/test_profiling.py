"""Shares of a trace: real ones of SGLang 0.5.23 on a CPU (tiny model, EAGLE chain, cut to three steps and to what took
longest, addresses taken out), and made-up ones of a GPU in torch's format."""

import gzip
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.shares import lines
from server import profiling
from server.profiling import TraceError, kind_of, shares
from server.torch_trace import events

TRACES = Path(__file__).parent / "traces"
SPANS = TRACES / "sglang-0.5.23-eagle-cpu.trace.json.gz"
STACK = TRACES / "sglang-0.5.23-eagle-cpu-with-stack.trace.json.gz"


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return list(events(file))


def event(category: str, name: str, ts: float, dur: float, tid: int = 1, correlation: int | None = None) -> Any:
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def add_up(found: dict[str, Any]) -> None:
    """Every table of shares is whole."""
    for table in (found["phases"], found["cycle"], found["kinds"], *found["kinds_by_phase"].values()):
        assert sum(table.values()) == pytest.approx(1)
    listed = sum(one["share"] for one in found["unmatched"]) + found["unmatched_more"]["share"]
    assert listed == pytest.approx(found["kinds"]["other"])


def test_a_real_trace_by_its_spans() -> None:
    """One prefill and two verify cycles: the forwards that SGLang's own spans name, nothing counted twice."""
    found = shares(read(SPANS))
    add_up(found)
    assert (found["device"], found["forward"]) == ("cpu", "verify")
    assert found["steps"] == {"prefill": 1, "verify": 2, "decode": 0}
    assert set(found["cycle"]) == {"verify", "draft", "outside"}
    # By another way: all operators inside the spans "step[VERIFY", the outermost ones with their whole duration.
    ops = sorted((one for one in read(SPANS) if one["cat"] == "cpu_op"), key=lambda one: (one["ts"], -one["dur"]))
    over, outermost = 0.0, []
    for op in ops:
        if op["ts"] >= over:
            outermost.append(op)
            over = op["ts"] + op["dur"]
    spans = [one for one in read(SPANS) if one["name"].startswith("step[VERIFY")]
    inside = sum(
        op["dur"] for op, span in itertools.product(outermost, spans) if 0 <= op["ts"] - span["ts"] < span["dur"]
    )
    assert found["busy_ms"] * found["phases"]["verify"] == pytest.approx(inside / 1000, rel=1e-6)
    assert found["busy_ms"] == pytest.approx(sum(op["dur"] for op in outermost) / 1000, rel=1e-6)
    assert found["busy_ms"] < found["span_ms"]
    assert found["kinds"]["attention"] > 0.1
    assert found["kinds"]["matrix"] > 0.1
    assert found["kinds"]["communication"] == 0  # one process
    assert found["unmatched"][0]["name"] == "aten::index"


def test_frames_of_the_python_stack_tell_the_same_as_spans() -> None:
    """Versions without spans are told by their frames: on a trace that has both, either alone gives the same."""
    both = read(STACK)
    spans = shares(one for one in both if one["cat"] != "python_function")
    frames = shares(one for one in both if one["cat"] != "user_annotation")
    for found in (spans, frames):
        add_up(found)
        assert found["steps"]["verify"] == 2
        assert found["busy_ms"] == pytest.approx(spans["busy_ms"])
    for phase in ("verify", "draft"):
        assert frames["cycle"][phase] == pytest.approx(spans["cycle"][phase], abs=0.02), phase
    assert frames["phases"]["prefill"] == pytest.approx(spans["phases"]["prefill"], abs=0.02)


def on_a_gpu() -> list[dict[str, Any]]:
    """A prefill and a verify cycle of two graphs; kernels run after their launches, in another phase's time."""
    return [
        event("user_annotation", "step[EXTEND bs=1 toks=9]", 0, 10),
        event("cuda_runtime", "cudaLaunchKernel", 5, 1, correlation=1),
        event("user_annotation", "draft_extend", 20, 10),  # after a prefill: the prefill's
        event("cuda_runtime", "cudaGraphLaunch", 21, 1, correlation=2),
        event("user_annotation", "draft", 40, 10),
        event("user_annotation", "step[DRAFT bs=1]", 42, 5),
        event("cuda_driver", "cuLaunchKernelEx", 45, 1, correlation=3),
        event("user_annotation", "step[VERIFY bs=1]", 60, 10),
        event("cuda_runtime", "cudaGraphLaunch", 61, 1, correlation=4),
        event("user_annotation", "draft_extend", 80, 10),
        event("cuda_runtime", "cudaLaunchKernel", 82, 1, correlation=5),
        event("cuda_runtime", "cudaMemcpyAsync", 95, 1, correlation=6),
        event("cpu_op", "aten::mm", 5, 900),  # where a GPU works, the CPU's time is none of it
        event("kernel", "nvjet_hsh_64x8_64x16", 1000, 50, 7, 1),
        event("kernel", "void flash::flash_fwd_kernel<x>", 1100, 50, 7, 2),
        event("kernel", "nvjet_hsh_64x8_64x16", 1200, 20, 7, 3),
        event("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 1300, 600, 7, 4),
        event("kernel", "nvjet_hsh_64x8_64x16", 1900, 200, 7, 4),
        event("kernel", "_fwd_grouped_kernel_stage1", 2100, 100, 7, 4),
        event("kernel", "flashinfer::norm::RMSNormKernel<x>", 2200, 50, 7, 4),
        event("kernel", "nvjet_hsh_64x8_64x16", 2300, 20, 7, 5),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 2400, 10, 7, 6),
        event("kernel", "nobody_launched_it", 2500, 0, 7, 77),
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        {"ph": "X", "cat": "kernel", "name": "no duration", "ts": 1},
    ]


def test_kernels_belong_to_the_phase_that_launched_them() -> None:
    """By the launch's correlation, all kernels of a graph by the graph's; the study's sentence comes out."""
    found = shares(on_a_gpu())
    add_up(found)
    assert found["device"] == "gpu"
    assert found["steps"] == {"prefill": 1, "verify": 1, "decode": 0}
    assert found["busy_ms"] == pytest.approx(1.1)
    assert found["span_ms"] == pytest.approx(1.5)
    assert found["phases"]["prefill"] == pytest.approx(100 / 1100)
    assert found["cycle"] == pytest.approx({"verify": 0.95, "draft": 0.04, "outside": 0.01})
    assert found["kinds_by_phase"]["verify"] == pytest.approx(
        {"communication": 600 / 950, "attention": 100 / 950, "matrix": 200 / 950, "other": 50 / 950}
    )
    assert [one["name"] for one in found["unmatched"]] == [
        "flashinfer::norm::RMSNormKernel<x>", "Memcpy DtoH (Device -> Pinned)", "nobody_launched_it"
    ]  # fmt: skip
    told = list(lines("concurrency 8", {"trace": "t/1-TP-0.trace.json.gz", **found}))
    assert "the verify forward is 95 % of the verify cycle" in told
    assert any(line.split() == ["verify", "95", "%", "63", "%", "11", "%", "21", "%", "5.3", "%"] for line in told)
    assert told[-1].startswith("other is: flashinfer::norm::RMSNormKernel<x> 5 %")
    assert "2 further names" not in told[-1]
    assert "1 further name 0 %" in told[-1]


def test_a_baseline_and_a_trace_without_known_spans() -> None:
    """Decoding has no verify; where no span is known everything is outside, and no sentence claims a forward."""
    plain = shares([event("user_annotation", "step[DECODE bs=4]", 0, 10), event("cpu_op", "aten::mm", 1, 5)])
    assert (plain["forward"], plain["cycle"]) == ("decode", {"decode": 1.0})
    unknown = shares([event("cpu_op", "aten::mm", 1, 5)])
    assert (unknown["forward"], unknown["cycle"]) == (None, {"outside": 1.0})
    assert not [line for line in lines("concurrency 4", {"trace": "t", **unknown}) if "forward is" in line]
    prefill = shares([event("user_annotation", "step[EXTEND bs=4]", 0, 10), event("cpu_op", "x", 1, 5)])
    assert prefill["cycle"] == {}
    assert list(lines("concurrency 4", {"trace": "t", **prefill}))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)", "communication"),
        ("flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>", "communication"),
        ("multimem_one_shot_all_reduce_kernel<c10::BFloat16>", "communication"),
        ("gloo:all_reduce", "communication"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<x>", "attention"),
        ("cutlass::device_kernel<flash::FlashAttnFwdSm90<x>>", "attention"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("flash_mla_kernel", "attention"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", "matrix"),
        ("fused_moe_kernel", "matrix"),
        ("aten::addmm", "matrix"),
        ("void cublasLt::splitKreduce_kernel<32, 16>", "matrix"),
        ("flashinfer::norm::RMSNormKernel", None),
        ("layer_norm_fwd_kernel", None),
        ("transformLayoutKernel", None),
        ("aten::gather", None),
        ("aten::mul", None),
    ],
)
def test_kinds_by_name(name: str, kind: str | None) -> None:
    """Names of kernels and operators as torch tells them."""
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no list of traceEvents"),
        ('{"schemaVersion": 1}', "no list of traceEvents"),
        ('{"traceEvents": [{"ph": "X"', "no trace after"),
        ('{"traceEvents": [{"ph": "X"},\n', "no trace after"),
        ('{"traceEvents": [nonsense]}', "no trace after"),
        ('{"traceEvents": []}', "no work"),
        ('{"traceEvents": [1, null, "x", {"ph": "i", "ts": 1}]}', "no work"),
    ],
)
def test_what_is_no_trace_is_told(text: str, why: str) -> None:
    """Nothing, something else, and a file that was cut off."""
    with pytest.raises(TraceError, match=why):
        shares(events(io.StringIO(text)))


def test_events_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cuts between two reads; and no more of them are kept than fit."""
    many = [event("cpu_op", f'aten::"{number}]', number, 0.5) for number in range(3)]
    text = json.dumps({"x": [1], "traceEvents": many, "later": 1}, indent=1)

    class Slow(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            return super().read(7)

    assert list(events(Slow(text))) == many
    monkeypatch.setattr(profiling, "EVENTS_MAX", 2)
    with pytest.raises(TraceError, match=r"engine\.profile_steps"):
        shares(many)


def test_no_trace_is_one_line() -> None:
    """With the reason."""
    told = list(lines("rate 2/s", {"trace": None, "why": "/start_profile answers 404"}))
    assert told == ["profile at rate 2/s: no trace came: /start_profile answers 404"]
