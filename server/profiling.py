"""Where the time of a server's steps goes: the events of a torch profiler's trace as shares, by phase and kind of work.

Pure. The phase (prefill, draft, verify, decode) comes from the spans in which SGLang launched the work, the kind from
the work's name by rules; what no rule matches is listed by name. On a GPU the work is what its streams did, by its
duration; on a CPU it is torch's operators, each by its own time without that of those inside it. Knows no file.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OUTSIDE = "outside"  # of all forwards: sampling, scheduling
FOLLOWS = "draft_extend"  # the draft model reads what the target has just done: prefill after a prefill, else draft
OTHER = "other"

_WORKER = r"speculative/\w*worker\w*\.py\(\d+\): "
# Spans that SGLang opens (from 0.5.14), and frames of its Python code where the stack was traced.
PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    # A frame that says nothing: until 0.5.13 the forward of n-grams verifies under the names of a prefill.
    (OUTSIDE, re.compile(r"ngram_worker\.py\(\d+\): forward_batch_generation$")),
    (FOLLOWS, re.compile(rf"draft_extend$|step\[DRAFT|.*{_WORKER}_?(forward_)?draft_extend\w*$")),
    ("draft", re.compile(rf"draft$|.*{_WORKER}draft$")),
    ("verify", re.compile(rf"step\[(TARGET_)?VERIFY|.*{_WORKER}verify$")),
    (
        "prefill",
        re.compile(
            rf"step\[(EXTEND|MIXED|SPLIT_PREFILL)|.*{_WORKER}_?forward_(target_extend|prefill_batch)$"
            r"|.*model_runner\.py\(\d+\): forward_(extend|split_prefill)$"
        ),
    ),
    (
        "decode",
        re.compile(r"step\[DECODE|.*model_runner\.py\(\d+\): forward_decode$|.*/cuda_graph_runner\.py\(\d+\): replay$"),
    ),
)
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "communication",
        re.compile(
            r"nccl|rccl|gloo|c10d::|record_param_comms|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
            r"|cross_device|multimem|mscclpp|deep_ep|one_?shot|two_?shot",
            re.IGNORECASE,
        ),
    ),
    (
        "attention",
        re.compile(
            r"attention|attn|fmha|flash::|flash_fwd|(?<![a-z])mla(?![a-z])|BatchPrefill|BatchDecode|SinglePrefill"
            r"|^_fwd_(grouped_)?kernel|merge_?states?|paged_?kv",
            re.IGNORECASE,
        ),
    ),
    (
        "matrix",
        re.compile(
            r"gemm|gemv|nvjet|matmul|cutlass|cublas|xmma|split_?k|moe_kernel|marlin|dot_kernel"
            r"|^aten::_?(mm|bmm|addmm|addmv|baddbmm|linear|scaled_mm)(_|$)|^mkldnn",
            re.IGNORECASE,
        ),
    ),
)
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
SPANS = ("user_annotation", "python_function")
EVENTS_MAX = 5_000_000  # about a gigabyte of memory; twenty steps of a large model have some hundred thousand
NAMES_MAX = 25  # unmatched names that are listed, the longest time first; the rest is counted
NAME_CHARACTERS = 100

Place = tuple[Any, Any]  # process and thread


class TraceError(ValueError):
    """A trace that cannot be read; the message says why."""


@dataclass
class Told:
    """What of a trace is of use. Times in microseconds, the trace's own."""

    spans: dict[Place, list[tuple[float, float, str]]] = field(default_factory=lambda: defaultdict(list))
    launches: dict[int, tuple[Place, float]] = field(default_factory=dict)  # by correlation
    kernels: list[tuple[float, float, str, int | None]] = field(default_factory=list)
    ops: dict[Place, list[tuple[float, float, str]]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class Work:
    """A piece of work: where and when it was launched, when it began, how long it took (µs), its name and kind."""

    place: Place | None
    launched: float
    began: float
    took: float
    name: str
    kind: str | None


def shares(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares of the time that the work of these trace events took. Raises TraceError where there is none.

    `phases` are shares of all; `cycle` is everything but prefill, and `kinds`, `kinds_by_phase` (each kind's share of
    its phase) and `unmatched` are of the cycle. `forward` is the target's forward there, verify or else decode.
    """
    told = gather(events)
    work = list(_on_gpu(told) if told.kernels else _on_cpu(told))
    if not (busy := sum(piece.took for piece in work)):
        raise TraceError("the trace holds no work of a GPU and no operator of torch")
    lines = {place: timeline(spans) for place, spans in told.spans.items()}
    main = max(lines.values(), key=len, default=[])
    took: dict[tuple[str, str], float] = defaultdict(float)
    names: dict[str, float] = defaultdict(float)
    for piece in work:
        phase = phase_at(lines.get(piece.place, main) if piece.place else main, piece.launched)
        took[phase, piece.kind or OTHER] += piece.took
        if piece.kind is None and phase != "prefill":
            names[piece.name] += piece.took
    return {
        "device": "gpu" if told.kernels else "cpu",
        "busy_ms": busy / 1000,
        "span_ms": (max(piece.began + piece.took for piece in work) - min(piece.began for piece in work)) / 1000,
        "steps": {phase: sum(begun == phase for line in lines.values() for _, begun, forward in line if forward)
                  for phase in ("prefill", "verify", "decode")},
        **_tables(took, busy, names),
    }  # fmt: skip


def gather(events: Iterable[Mapping[str, Any]]) -> Told:
    """Keep of each event what is of use, in one pass."""
    told, kept, phases = Told(), 0, dict[str, str | None]()
    for event in events:
        if event.get("ph") != "X" or "dur" not in event:
            continue
        category, name = str(event.get("cat", "")).lower(), str(event.get("name", ""))
        place, start, took = (event.get("pid"), event.get("tid")), float(event["ts"]), float(event["dur"])
        correlation = (event.get("args") or {}).get("correlation")
        if category in SPANS:
            if name not in phases:
                phases[name] = _first(PHASES, name, re.Pattern.match)
            if (phase := phases[name]) is None:
                continue
            told.spans[place].append((start, start + took, phase))
        elif category in GPU_WORK:
            told.kernels.append((start, took, name, correlation))
        elif category in LAUNCHES and correlation is not None:
            told.launches[correlation] = (place, start)
        elif category == "cpu_op":
            told.ops[place].append((start, took, name))
        else:
            continue
        if (kept := kept + 1) > EVENTS_MAX:
            raise TraceError(f"the trace has more than {EVENTS_MAX} events; ask for fewer steps (engine.profile_steps)")
    return told


def timeline(spans: Sequence[tuple[float, float, str]]) -> list[tuple[float, str, bool]]:
    """When which phase begins on one thread, and whether that is a forward of the target.

    Of nested spans the outermost counts. What comes after a prefill's forward, until the next forward, is prefill's.
    """
    marks: list[tuple[float, str, bool]] = []
    over, last = float("-inf"), OUTSIDE
    for start, end, phase in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start < over:
            continue
        last = last if phase == FOLLOWS else phase
        marks.append(
            (start, ("prefill" if last == "prefill" else "draft") if phase == FOLLOWS else phase, phase != FOLLOWS)
        )
        marks.append((end, "prefill" if last == "prefill" else OUTSIDE, False))
        over = end
    return marks


def phase_at(marks: Sequence[tuple[float, str, bool]], ts: float) -> str:
    """The phase at a time."""
    place = bisect_right(marks, ts, key=lambda mark: mark[0])
    return marks[place - 1][1] if place else OUTSIDE


def kind_of(name: str) -> str | None:
    """The kind of work that a kernel or operator of this name does; None where no rule knows it."""
    return _first(KINDS, name, re.Pattern.search)


def _first(rules: Iterable[tuple[str, re.Pattern[str]]], name: str, look: Any) -> str | None:
    return next((kind for kind, pattern in rules if look(pattern, name)), None)


def _on_gpu(told: Told) -> Iterator[Work]:
    """What the GPU's streams did; its phase is that of its launch, which a replayed graph's kernels share."""
    kinds: dict[str, str | None] = {}
    for start, took, name, correlation in told.kernels:
        if name not in kinds:
            kinds[name] = kind_of(name)
        place, launched = told.launches.get(correlation, (None, start)) if correlation is not None else (None, start)
        yield Work(place, launched, start, took, name, kinds[name])


def _on_cpu(told: Told) -> Iterator[Work]:
    """Operators by their own time; one whose name says nothing does the kind of work of the one around it."""
    for place, ops in told.ops.items():
        around: list[list[Any]] = []  # of the operators under way: end, name, kind, own time, start

        def closed(op: list[Any], place: Place = place) -> Work:
            return Work(place, op[4], op[4], max(0.0, op[3]), op[1], op[2])

        for start, took, name in sorted(ops, key=lambda op: (op[0], -op[1])):
            while around and around[-1][0] <= start:
                yield closed(around.pop())
            if around:
                around[-1][3] -= took
            around.append([start + took, name, kind_of(name) or (around[-1][2] if around else None), took, start])
        while around:
            yield closed(around.pop())


def _tables(took: Mapping[tuple[str, str], float], busy: float, names: Mapping[str, float]) -> dict[str, Any]:
    phases: dict[str, float] = defaultdict(float)
    for (phase, _), time in took.items():
        phases[phase] += time
    cycle = busy - phases.get("prefill", 0.0)
    forward = next((phase for phase in ("verify", "decode") if phase in phases), None)
    ranked = _longest(phases)
    kinds = [kind for kind, _ in KINDS] + [OTHER]
    of_cycle = {kind: sum(time for (phase, one), time in took.items() if one == kind and phase != "prefill")
                for kind in kinds}  # fmt: skip
    listed = [(name[:NAME_CHARACTERS], time) for name, time in _longest(names)[:NAMES_MAX]]
    rest = sum(names.values()) - sum(time for _, time in listed)
    return {
        "phases": {phase: time / busy for phase, time in ranked},
        "forward": forward,
        "cycle": {phase: _share(time, cycle) for phase, time in ranked if phase != "prefill"},
        "kinds": {kind: _share(time, cycle) for kind, time in of_cycle.items()},
        "kinds_by_phase": {
            phase: {kind: _share(took.get((phase, kind), 0.0), phases[phase]) for kind in kinds} for phase in phases
        },
        "unmatched": [{"name": name, "share": _share(time, cycle)} for name, time in listed],
        "unmatched_more": {"names": len(names) - len(listed), "share": _share(rest, cycle)},
    }


def _longest(times: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(times.items(), key=lambda item: -item[1])


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
