"""What a server and its GPUs tell while they run: one sample a second of /metrics and of the devices, kept as rows.

Gauges are as stale as the server's own log interval makes them; counters are read as they are. It must not know what
load is on, or judge anything.
"""

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from server import gpu
from server.ask import OPEN, Access, ask

PERIOD_S = 1.0
# A server under load may take a second to render its metrics; a later answer would be another second's sample.
SAMPLE_S_MAX = 5.0
# An hour of 50 rows a second, about 60 MB; older rows are dropped first.
ROWS_MAX = 180_000

SGLANG = (
    "num_running_reqs",
    "num_queue_reqs",
    "gen_throughput",
    "token_usage",
    "num_used_tokens",
    "max_total_num_tokens",
    "cache_hit_rate",
    "generation_tokens_total",
    "prompt_tokens_total",
    "cached_tokens_total",
    "num_requests_total",
    "num_retracted_reqs",
    "num_retracted_requests_total",
    "num_aborted_requests_total",
    "spec_accept_length",
    "spec_accept_rate",
    "spec_num_steps",
    "spec_num_draft_tokens",
    "spec_verify_calls_total",
)
VLLM = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "generation_tokens_total",
    "prompt_tokens_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "request_success_total",
    "num_preemptions_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
)
KEPT = frozenset([*(f"sglang:{name}" for name in SGLANG), *(f"vllm:{name}" for name in VLLM)])

Sample = tuple[str, dict[str, str], float]


def samples(text: str) -> Iterator[Sample]:
    """Every sample of a /metrics page: name, labels, value. Nothing where the page is no such page."""
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, dict(sample.labels), float(sample.value)
    except (ValueError, KeyError, IndexError):
        return


def kept(text: str) -> list[Sample]:
    """The samples worth a row each second; the thousands of histogram lines are not even parsed."""
    lines = [line for line in text.splitlines() if line.split("{", 1)[0].split(" ", 1)[0] in KEPT]
    return list(samples("\n".join(lines) + "\n"))


def page(url: str, access: Access = OPEN) -> str:
    """The text of /metrics; empty where the server has none or does not answer in time."""
    try:
        answer = ask(url, "/metrics", timeout_s=SAMPLE_S_MAX, access=access)
    except OSError:
        return ""
    return answer.body.decode("utf-8", errors="replace") if answer.status == 200 else ""


class Sampler:
    """A thread that takes a sample each second until `stop`, and hands over rows once each.

    `labels` are added to each sample's own: which server it is of, where there are several.
    """

    def __init__(
        self, url: str, gpus: Sequence[str], access: Access = OPEN, labels: Mapping[str, str] | None = None
    ) -> None:
        self._url, self._gpus, self._access, self._labels = url, tuple(gpus), access, dict(labels or {})
        self._rows: deque[dict[str, Any]] = deque(maxlen=ROWS_MAX)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def rows(self, alive: bool = True) -> list[dict[str, Any]]:
        """The rows since the last call, the last of this moment: t_utc_ns, t_mono_ns, name, labels (JSON), value.

        A server that is not `alive` is not asked: what is left of it may take the question and never answer.
        """
        if alive:  # counters must not lack what came after the last whole second
            self._rows.extend(self._rows_of(kept(page(self._url, self._access))))
        taken = []
        while self._rows:
            taken.append(self._rows.popleft())
        return taken

    def stop(self) -> None:
        """Take no more samples; what was taken can still be had."""
        self._ended.set()
        self._thread.join(timeout=2 * SAMPLE_S_MAX)

    def _run(self) -> None:
        with gpu.session() if self._gpus else contextlib.nullcontext():
            due_s = time.monotonic()
            while not self._ended.is_set():
                self._rows.extend(self._rows_of([*kept(page(self._url, self._access)), *gpu.samples(self._gpus)]))
                # Absolute times, so that samples do not drift; seconds that a slow answer took are left out.
                due_s = max(due_s + PERIOD_S, time.monotonic())
                self._ended.wait(due_s - time.monotonic())

    def _rows_of(self, taken: list[Sample]) -> list[dict[str, Any]]:
        stamp = {"t_utc_ns": time.time_ns(), "t_mono_ns": time.monotonic_ns()}
        return [
            {**stamp, "name": name, "labels": json.dumps({**labels, **self._labels}, sort_keys=True), "value": value}
            for name, labels, value in taken
        ]
