"""The text of /metrics: SGLang's names from the front end's counters and the scheduler's last statistics. Pure.

A request's generated tokens and verify steps are counted when it has ended, as in SGLang. Running and queued requests
are refreshed with the decode log, by prefills and when the engine becomes idle (SGLang leaves them stale there);
gen_throughput keeps its last value, as SGLang's does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server.sim.settings import Settings


@dataclass(slots=True)
class Counters:
    """Totals since the start; `finished` are requests that were answered to their end."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    verify_steps: int = 0


def exposition(settings: Settings, counters: Counters, stats: Mapping[str, Any], kv_tokens: int) -> bytes:
    """The Prometheus text format, one sample a metric."""
    common = f'model_name="{_escaped(settings.flags["served_model_name"])}"'
    ranked = f'engine_type="unified",{common},pp_rank="0",tp_rank="0"'
    lines = []
    for name, value in _gauges(settings, counters, stats, kv_tokens).items():
        lines += _sample(name, "gauge", ranked, value)
    for name, total in _totals(settings, counters).items():
        lines += _sample(name, "counter", common, total)
    return ("\n".join(lines) + "\n").encode()


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _sample(name: str, kind: str, labels: str, value: float) -> list[str]:
    full = f"sglang:{name}"
    return [f"# HELP {full} Simulated.", f"# TYPE {full} {kind}", f"{full}{{{labels}}} {value}"]


def _gauges(settings: Settings, counters: Counters, stats: Mapping[str, Any], kv_tokens: int) -> dict[str, float]:
    gauges = {
        "num_running_reqs": stats["running"],
        "num_queue_reqs": stats["queued"],
        "num_used_tokens": stats["used"],
        "token_usage": min(1.0, stats["used"] / kv_tokens),
        "gen_throughput": stats["throughput"],
        # 0.5.9 sets the rate to 0 with every decode log line: the counters tell the truth.
        "cache_hit_rate": 0.0
        if settings.version == "0.5.9"
        else counters.cached_tokens / max(1, counters.prompt_tokens),
        "max_total_num_tokens": kv_tokens,
    }
    if settings.speculates:
        gauges["spec_accept_length"] = stats.get("accept_length", 0.0)
        gauges["spec_accept_rate"] = stats.get("accept_rate", 0.0)
        if settings.version != "0.5.9":
            gauges["spec_num_steps"] = stats.get("draft_steps", settings.draft_steps)
    return gauges


def _totals(settings: Settings, counters: Counters) -> dict[str, int]:
    totals = {
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generated_tokens,
        "cached_tokens_total": counters.cached_tokens,
        "num_requests_total": counters.finished,
        "num_aborted_requests_total": counters.aborted,
    }
    if settings.speculates and settings.version != "0.5.9":
        totals["spec_verify_calls_total"] = counters.verify_steps
    return totals
