"""Whether a Point may be believed: rules over facts.

Pure. Each rule is one line of RULES and gives one Finding with what was measured, the limit and what to do next. Knows
nothing of files, servers or how the facts were gathered from rows (see facts.py).
"""

import dataclasses
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from loadgen import agreement
from loadgen.errors import INVALID_POINTS, Interrupted, ServerError
from loadgen.facts import Facts as Facts
from loadgen.margin import Finding as Finding
from loadgen.margin import Measure
from loadgen.margin import margin as margin
from loadgen.openloop import findings
from loadgen.stats import HALVES_DIFFERENCE_MAX, HALVES_STANDARD_ERRORS_MAX
from server.proof import decisive

CONCURRENCY_HELD_MIN = 0.98  # below, the level that was asked for was not what ran
IN_STEP_MAX = 0.5  # spread streams stay below 0.1, a pause of the server herds some; all of them together are 1
REFILL_P99_MS_MAX = 10.0  # a stream that stands empty for longer lightens the load ...
REFILL_SHARE_MAX = 0.01  # ... unless it is short against the request that follows
LOOP_LAG_P99_MS_MAX = 5.0  # stamps are late by as much ...
LOOP_LAG_GAP_SHARE_MAX = 0.1  # ... which bends nothing that is ten times slower
LOOP_LAG_MAX_MS_MAX = 100.0  # one such pause bends every stream's tail
WORKER_CPU_P95_MAX = 0.80  # of a core; queues grow steeply from there
CAPACITY_SHARE_MAX = 0.70  # of what calibration found this client to measure exactly
GC_PAUSE_MS_MAX = 20.0
START_SKEW_MS_MAX = 5.0  # of the workers against the common start
SILENCE_SHARE_MAX = 0.15  # of the window without an event of any stream: the server stood still ...
SILENCE_TIMES_MAX = 3.0  # ... unless its answers begin, or follow each other, as slowly as that
DESCRIPTORS_SHARE_MAX = 0.80  # of the process's limit; the next level would fail
CHUNKS_PER_READ_MAX = 2.0  # above, most events share a read: their times are the read's, and perhaps a proxy's
CACHED_SHARE_MAX = 0.01  # above, the server did less work than prompts that are new to it would ask

VALID, INVALID, FAILED, INTERRUPTED = "VALID", "INVALID", "FAILED", "INTERRUPTED"


@dataclass(frozen=True)
class Verdict:
    """`reasons` are what speaks against the Point, `margins` all other findings."""

    status: str
    reasons: tuple[Finding, ...]
    margins: tuple[Finding, ...]
    exit_code: int = 0


def _at_most(rule: str, measured: float | None, limit: float, unit: str, advice: str) -> list[Finding]:
    """Judged where it was measured."""
    return [Finding(rule, measured, limit, unit, None if measured is None else measured <= limit, advice)]


def _warned(rule: str, measured: float | None, limit: float, unit: str, note: str) -> list[Finding]:
    """Never judged, and of interest only above the limit: without one it is not printed."""
    above = measured is not None and measured > limit
    return [Finding(rule, measured, limit if above else None, unit, None, "", note=note if above else "")]


def _seen(finding: Finding) -> Finding:
    """The same, but a client that was not watched is not taken for a good one."""
    if finding.measured is not None:
        return finding
    advice = "no health rows in the window: the client was not watched; look for lost workers, make the window longer"
    return Finding(finding.rule, None, finding.limit, finding.unit, False, advice)


def _requests(f: Facts) -> list[Finding]:
    advice = "no request was sent in the window; make it longer (load.window_s) or raise the load"
    return [Finding("requests", f.requests, 1, "", f.requests >= 1, advice, at_least=True)]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _failed_share(f: Facts) -> list[Finding]:
    most = f"most often {f.failure}; " if f.failure else ""
    advice = most + "read outcomes and errors in requests.parquet and server.log; lower the load or mend the server"
    return _at_most("failed_share", _share(f.failed, f.requests), f.failed_share_max, "share", advice)


def _short_share(f: Facts) -> list[Finding]:
    advice = "the server stops before workload.max_tokens: see finish_reason, its context length and ignore_eos"
    return _at_most("short_share", _share(f.short, f.requests), f.short_share_max, "share", advice)


def _steady(f: Facts) -> list[Finding]:
    """Unsteady only when the halves differ by more than the limit and by more than chance.

    Not judged in open loop, where arrivals decide how many tokens come in a half, and chance decides the arrivals.
    """
    difference = None if f.halves_difference is None else abs(f.halves_difference)
    errors = "unknown" if f.halves_standard_errors is None else f"{abs(f.halves_standard_errors):.1f}"
    note = f" and {HALVES_STANDARD_ERRORS_MAX:.0f} standard errors, here {errors}"
    advice = "the server was still warming up or slowing down; make the window longer (load.window_durations)"
    ok = None if f.whole_run or f.open else bool(f.steady)  # no tokens to compare is not steady
    return [Finding("steady", difference, HALVES_DIFFERENCE_MAX, "share", ok, advice, note=note)]


def _silence(f: Facts) -> list[Finding]:
    """A stall widens the spread that the halves are tested against, so it needs a rule of its own."""
    slowest_s = max(f.ttft_ms or 0.0, f.chunk_gap_ms or 0.0) / 1000
    limit_s = max(SILENCE_SHARE_MAX * (f.window_s or 0.0), SILENCE_TIMES_MAX * slowest_s)
    advice = "no stream received anything for so long: the server, or the network, stood still; read server.log"
    ok = None if f.whole_run or f.silence_s is None else f.silence_s <= limit_s
    return [Finding("silence", f.silence_s, limit_s, "s", ok, advice)]


def _drift(f: Facts) -> list[Finding]:
    width = "" if f.slope_half_width is None else f"its 95 % interval is ± {100 * f.slope_half_width:.1f} %/min"
    return [
        Finding("slope", f.slope_per_min, None, "share/min", None, width),
        Finding("mser5_cut", f.mser_s, None, "s", None, "what it would still drop at the window's start"),
    ]


def _concurrency(f: Facts) -> list[Finding]:
    advice = (
        "fewer requests were in flight than asked: see refill_ns and connect_ns, use more workers (cluster.workers)"
    )
    judged = f.concurrency_held is not None and not f.whole_run
    ok = f.concurrency_held >= CONCURRENCY_HELD_MIN if judged and f.concurrency_held is not None else None
    return [Finding("concurrency_held", f.concurrency_held, CONCURRENCY_HELD_MIN, "share", ok, advice, at_least=True)]


def _in_step(f: Facts) -> list[Finding]:
    advice = "the streams ask together, and so they would for ever; spread their first requests (load.stagger_s)"
    return _at_most("in_step", None if f.whole_run else f.in_step, IN_STEP_MAX, "share", advice)


MORE_WORKERS = "the client was the bottleneck: use more workers or nodes (cluster.workers), or a quieter machine"


def _refill(f: Facts) -> list[Finding]:
    limit_ms = max(REFILL_P99_MS_MAX, REFILL_SHARE_MAX * (f.request_ms or 0))
    return _at_most("refill_p90" if f.refill_few else "refill_p99", f.refill_ms, limit_ms, "ms", MORE_WORKERS)


def _arrivals(f: Facts) -> list[Finding]:
    return [] if f.open is None else findings(f.open, f.whole_run)


def _loop_lag(f: Facts) -> list[Finding]:
    limit_ms = max(LOOP_LAG_P99_MS_MAX, LOOP_LAG_GAP_SHARE_MAX * (f.chunk_gap_ms or 0))
    p99 = _at_most("loop_lag_p99", f.loop_lag_p99_ms, limit_ms, "ms", MORE_WORKERS)
    longest = _at_most("loop_lag_max", f.loop_lag_max_ms, LOOP_LAG_MAX_MS_MAX, "ms", MORE_WORKERS)
    return [_seen(p99[0]), _seen(longest[0])]


def _cpu(f: Facts) -> list[Finding]:
    return [_seen(_at_most("worker_cpu_p95", f.worker_cpu_p95, WORKER_CPU_P95_MAX, "share", MORE_WORKERS)[0])]


def _capacity(f: Facts) -> list[Finding]:
    """A share of a figure that calibration gives as "at least" clears a Point, and cannot condemn it."""
    (one,) = _at_most("capacity_share", f.capacity_share, CAPACITY_SHARE_MAX, "share", MORE_WORKERS)
    ok = None if f.capacity_at_least and one.ok is False else one.ok
    return [dataclasses.replace(one, ok=ok, note=f" {f.capacity_note}".rstrip())]


def _start(f: Facts) -> list[Finding]:
    if f.start is None:
        return []
    note = f", between hosts known to ± {f.start.known_ms:.2g} ms" if f.start.known_ms else ""
    late = max(f.start.skew_ms, f.start.late_ms)
    advice = "a worker began late: look at what else runs on its host, and at the way from it to the driver's"
    return [Finding("start_skew", late, START_SKEW_MS_MAX, "ms", late <= START_SKEW_MS_MAX, advice, note=note)]


def _workers(f: Facts) -> list[Finding]:
    return agreement.findings(f.workers)


def _gc(f: Facts) -> list[Finding]:
    return _at_most("gc_pause_max", f.gc_pause_max_ms, GC_PAUSE_MS_MAX, "ms", MORE_WORKERS)


def _descriptors(f: Facts) -> list[Finding]:
    advice = "raise the limit of open files (ulimit -n) or use more workers (cluster.workers)"
    return _at_most("descriptors", f.descriptors_share, DESCRIPTORS_SHARE_MAX, "share", advice)


def _merged(f: Facts) -> list[Finding]:
    note = ": most events share a read, their times are the read's; look for a proxy that holds the stream back"
    return _warned("chunks_per_read", f.chunks_per_read, CHUNKS_PER_READ_MAX, "", note)


def _cached(f: Facts) -> list[Finding]:
    note = ": the server knew prompts already; see cache_flushed in point.json"
    limit = 1.0 if f.sharing_meant else CACHED_SHARE_MAX
    return _warned("cached_share", f.cached_share, limit, "share", note)


def _server(f: Facts) -> list[Finding]:
    """What a server of ours must tell (see server.proof) and does not, speaks against it; the rest is only shown."""
    ours = "the server resolved it to something else, its log may say why; ask for what can run, or null for either"
    usual = ours if f.proof_needed else "start the server that the variant means, or name the variant that runs there"
    wrong = [
        Finding("server", f"{one.flag} = {one.told}", f"{one.flag} = {one.asked}", "", False, one.advice or usual)
        for one in f.contradictions
    ]
    quiet = "the server does not tell it" + ("" if f.proof_needed else ", and nothing is claimed of it")
    shown = [(flag, False if f.proof_needed and decisive(flag) else None) for flag in f.not_proven]
    return wrong + [Finding("not_proven", flag, None, "", ok, quiet) for flag, ok in shown]


def _alive(f: Facts) -> list[Finding]:
    if f.died is None:
        return []
    return [Finding("server_died", f.died, "throughout", "", False, "read the end of server.log, then run again")]


RULES: tuple[Callable[[Facts], list[Finding]], ...] = (
    _alive,
    _server,
    _requests,
    _failed_share,
    _short_share,
    _steady,
    _silence,
    _drift,
    _concurrency,
    _in_step,
    _refill,
    _arrivals,
    _loop_lag,
    _cpu,
    _capacity,
    _start,
    _workers,
    _gc,
    _descriptors,
    _merged,
    _cached,
)


def judge(facts: Facts) -> Verdict:
    """The verdict of all rules: FAILED when the server died, INVALID when any rule was broken, else VALID."""
    findings = [finding for rule in RULES for finding in rule(facts)]
    reasons = tuple(finding for finding in findings if finding.ok is False)
    margins = tuple(finding for finding in findings if finding.ok is not False)
    if facts.died is not None:
        return Verdict(FAILED, reasons, margins, ServerError.exit_code)
    if reasons:
        return Verdict(INVALID, reasons, margins, INVALID_POINTS)
    return Verdict(VALID, (), margins)


def failed(rule: str, measured: Measure, limit: Measure, advice: str, exit_code: int, log_tail: str = "") -> Verdict:
    """A Point that something other than its own numbers ended; `exit_code` is that of the error it belongs to."""
    return Verdict(FAILED, (Finding(rule, measured, limit, "", False, advice, log_tail=log_tail),), (), exit_code)


def interrupted(signum: int) -> Verdict:
    """A Point that SIGINT or SIGTERM ended."""
    advice = "run it again; resume=true goes on with the Points that are missing"
    finding = Finding("interrupted", f"by {signal.Signals(signum).name}", None, "", False, advice)
    return Verdict(INTERRUPTED, (finding,), (), Interrupted(signum).exit_code)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """What `point.json` holds under `verdict`."""
    return {
        "status": verdict.status,
        "reasons": [_as_json(finding) for finding in verdict.reasons],
        "margins": [_as_json(finding) for finding in verdict.margins],
    }


def _as_json(finding: Finding) -> dict[str, Any]:
    """A log's end only where there is one: it belongs to few findings."""
    return {name: value for name, value in asdict(finding).items() if name != "log_tail" or value}
