"""The scheduler child: runs the engine against the real clock and sends one message a step to the front end.

It owns the log's milestones and batch lines, and the statistics refreshed with them. It must not know of HTTP.
"""

import os
import select
import socket
import time
from collections import deque
from typing import Any

import orjson

from server.sim import children
from server.sim.engine import Engine, Generation, Pace, Step
from server.sim.faults import seconds
from server.sim.log import say
from server.sim.settings import KV_TOKENS_DEFAULT, Settings, steps_at

LAG_MAX_NS = 1_000_000_000  # Beyond this the machine cannot keep up: time is lost, and the log says so.
OUTBOX_MAX = 64  # Messages the front end may be behind before the engine waits for it.
FAULT_POLL_S = 0.05  # How exactly timed faults strike an idle engine.
RECEIVE_BYTES = 1 << 18
TAG = "TP0"
now = time.monotonic_ns


def run(settings: Settings, link: socket.socket) -> None:
    """Start up as SGLang does, then serve the front end at the other end of `link` until it closes."""
    _start_up(settings)
    if "orphan" in settings.faults:
        children.leave_orphan()
    link.sendall(b'["ready"]\n')
    Scheduler(settings, link).serve()


def _start_up(settings: Settings) -> None:
    flags = settings.flags
    say("Init torch distributed begin.", TAG)
    say("Init torch distributed ends. elapsed=0.00 s, mem usage=0.00 GB", TAG)
    say("Load weight begin. avail mem=94.00 GB", TAG)
    time.sleep(seconds(settings.faults, "slow_start") or 0)
    while "never_ready" in settings.faults:
        time.sleep(60)
    say("Load weight end. elapsed=0.00 s, type=Simulated, dtype=torch.bfloat16, avail mem=20.00 GB", TAG)
    say(f"KV Cache is allocated. #tokens: {kv_tokens(settings)}, K size: 0.00 GB, V size: 0.00 GB", TAG)
    say("Capture cuda graph begin. This can take up to several minutes. avail mem=18.00 GB", TAG)
    say("Capture cuda graph end. Time elapsed: 0.00 s. mem usage=0.00 GB.", TAG)
    if settings.speculates:
        say("Capture draft cuda graph begin. This can take up to several minutes. avail mem=17.00 GB", TAG)
        say("Capture draft cuda graph end. Time elapsed: 0.00 s. mem usage=0.00 GB.", TAG)
    say(
        f"max_total_num_tokens={kv_tokens(settings)}, chunked_prefill_size={flags['chunked_prefill_size']}, "
        f"max_prefill_tokens=16384, max_running_requests={flags['max_running_requests']}, "
        f"context_len={flags['context_length']}, available_gpu_mem=17.00 GB",
        TAG,
    )


def kv_tokens(settings: Settings) -> int:
    """Tokens that the simulated KV cache holds."""
    return int(settings.flags["max_total_tokens"] or KV_TOKENS_DEFAULT)


class Scheduler:
    """The engine, its link to the front end, and the statistics of decode-log intervals."""

    def __init__(self, settings: Settings, link: socket.socket) -> None:
        flags = settings.flags
        self.settings = settings
        self.link = link
        self.engine = Engine(
            Pace(settings),
            max_running=flags["max_running_requests"],
            prefill_tokens_max=flags["chunked_prefill_size"],
            cache=not flags["disable_radix_cache"],
            draft_steps=settings.draft_steps,
        )
        self.interval = max(1, flags["decode_log_interval"])
        # 0.5.9 knows --cuda-graph-max-bs, later versions --cuda-graph-max-bs-decode; 512 is the default at tp >= 4.
        self.graph_max = flags.get("cuda_graph_max_bs") or flags.get("cuda_graph_max_bs_decode") or 512
        self.stats: dict[str, Any] = {"running": 0, "queued": 0, "throughput": 0.0, "used": 0, "lag_ms": 0.0}
        self.spec_total = [0, 0]  # tokens, verify steps since start or flush
        self.spec_recent = [0, 0]  # the same since the last decode log line
        self.steps = 0
        self.tokens = 0
        self.logged_ns = 0
        self.unread = b""
        self.outbox: deque[bytes] = deque()
        self.started_ns = now()
        self.doomed_ns = self._doom()

    def serve(self) -> None:
        """Alternate between messages and steps until the front end is gone."""
        self.link.setblocking(False)
        try:
            while self._receive(self._wait_s()):
                self._mind_faults()
                due = self.engine.due_ns
                if due is not None and due <= now() and len(self.outbox) < OUTBOX_MAX:
                    self._step(due)
        except (BrokenPipeError, ConnectionResetError):
            return

    def _wait_s(self) -> float | None:
        if len(self.outbox) >= OUTBOX_MAX:
            return None
        if self.engine.due_ns is None:
            return FAULT_POLL_S if self.settings.faults else None
        return max(0.0, (self.engine.due_ns - now()) / 1e9)

    def _receive(self, wait_s: float | None) -> bool:
        """Wait for messages at most this long and act on them; False when the front end has closed its end."""
        # A blocked send must never stop the reading: the front end may be writing to us at that moment.
        readable, _, _ = select.select([self.link], [self.link] if self.outbox else [], [], wait_s)
        self._flush_outbox()
        if not readable:
            return True
        data = self.link.recv(RECEIVE_BYTES)
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self._act(*orjson.loads(line))
        return bool(data)

    def _send(self, *message: Any) -> None:
        self.outbox.append(orjson.dumps(message) + b"\n")
        self._flush_outbox()

    def _flush_outbox(self) -> None:
        while self.outbox:
            try:
                sent = self.link.send(self.outbox[0])
            except BlockingIOError:
                return
            if sent < len(self.outbox[0]):
                self.outbox[0] = self.outbox[0][sent:]
            else:
                self.outbox.popleft()

    def _act(self, verb: str, *rest: Any) -> None:
        if verb == "add":
            self.engine.add(Generation(*rest))
            self.doomed_ns = self.doomed_ns or self._doom(rest[0] + 1)
        elif verb == "abort":
            self.engine.abort(rest[0])
        elif verb == "flush":
            self._send("answer", rest[0], self._flush(), self.stats)
        else:
            self._send("answer", rest[0], True, self.stats)

    def _flush(self) -> bool:
        done = self.engine.flush()
        if done:
            self.spec_total, self.spec_recent = [0, 0], [0, 0]
            for name in ("accept_length", "accept_rate", "accept_length_total"):
                self.stats.pop(name, None)
            say("Cache flushed successfully!", TAG)
        return done

    def _step(self, due_ns: int) -> None:
        self._mind_lag(due_ns)
        self._log_prefill()
        step = self.engine.step()
        self.tokens += sum(step.counts)
        fresh = self._after_prefill() if step.prefill else self._after_decode(step)
        if self.engine.due_ns is None:
            self.stats |= {"running": 0, "queued": 0, "used": 0}
            fresh = True
        ends = [[g.id, g.verify_steps, g.accepted, g.histogram] for g in step.finished]
        cached = [[g.id, g.cached] for g in step.batch] if step.prefill else []
        self._send("step", step.at_ns, step.ids, step.counts, ends, cached, self.stats if fresh else None)

    def _mind_lag(self, due_ns: int) -> None:
        lag_ns = now() - due_ns
        self.stats["lag_ms"] = round(lag_ns / 1e6, 3)
        if lag_ns > LAG_MAX_NS:
            self.engine.shift(lag_ns)
            say(f"SIMULATION: {lag_ns / 1e9:.1f} s behind its clock, which is lost: lower --sim-speed.", TAG)

    def _log_prefill(self) -> None:
        batch = self.engine.prefilling
        if not batch:
            return
        cached = sum(g.cached for g in batch)
        new = sum(g.prompt_tokens for g in batch) - cached
        queued = len(self.engine.waiting)
        speed, graph = "input throughput (token/s): 0.00", "cuda graph: False"
        pending = f"#pending-token: {sum(g.prompt_tokens for g in self.engine.waiting)}"
        # Later versions tell what is pending, and the graph before the throughput.
        last = f"{speed}, {graph}" if self.settings.version == "0.5.9" else f"{pending}, {graph}, {speed}"
        say(
            f"Prefill batch, #new-seq: {len(batch)}, #new-token: {new}, #cached-token: {cached}, "
            f"token usage: {self._usage():.2f}, #running-req: {len(self.engine.running)}, #queue-req: {queued}, {last}",
            TAG,
        )

    def _usage(self) -> float:
        return min(1.0, self.engine.used_tokens() / kv_tokens(self.settings))

    def _after_prefill(self) -> bool:
        self.stats |= {"running": len(self.engine.running), "queued": len(self.engine.waiting)}
        self.stats["used"] = self.engine.used_tokens()
        return True

    def _after_decode(self, step: Step) -> bool:
        if self.settings.speculates:
            for counters in (self.spec_total, self.spec_recent):
                counters[0] += sum(step.counts)
                counters[1] += len(step.counts)
        self.steps += 1
        if self.steps % self.interval:
            return False
        self._log_decode(step)
        return True

    def _log_decode(self, step: Step) -> None:
        elapsed_ns = step.at_ns - self.logged_ns
        throughput = self.tokens * 1e9 / elapsed_ns if self.logged_ns and elapsed_ns > 0 else 0.0
        self.tokens, self.logged_ns = 0, step.at_ns
        running, queued = len(step.batch), len(self.engine.waiting)
        used = self.engine.used_tokens()
        self.stats |= {"running": running, "queued": queued, "throughput": round(throughput, 2), "used": used}
        self.stats["draft_steps"] = steps_at(self.settings, running)
        accept = self._note_acceptance()
        say(
            f"Decode batch, #running-req: {running}, #token: {used}, token usage: {self._usage():.2f}, "
            f"{accept}cuda graph: {running <= self.graph_max}, gen throughput (token/s): {throughput:.2f}, "
            f"#queue-req: {queued}",
            TAG,
        )

    def _note_acceptance(self) -> str:
        tokens, steps = self.spec_recent
        if not steps:
            return ""
        drafts = self.settings.flags["speculative_num_draft_tokens"]
        # Two definitions of the rate: 0.5.9 counts the bonus token in both terms, later versions in none.
        rate = (
            tokens / (steps * drafts) if self.settings.version == "0.5.9" else (tokens - steps) / (steps * (drafts - 1))
        )
        self.stats |= {"accept_length": tokens / steps, "accept_rate": rate}
        self.stats["accept_length_total"] = self.spec_total[0] / self.spec_total[1]
        self.spec_recent = [0, 0]
        return f"accept len: {tokens / steps:.2f}, accept rate: {rate:.2f}, "

    def _doom(self, came: int = 0) -> int | None:
        """When it dies by its fault, once the request from which that is counted came (0: its start)."""
        if "kill_scheduler" not in self.settings.faults:
            return None
        after_s, request = self.settings.faults["kill_scheduler"].numbers
        return now() + round(after_s * 1e9) if request == came else None

    def _mind_faults(self) -> None:
        faults, alive_s = self.settings.faults, (now() - self.started_ns) / 1e9
        if self.doomed_ns is not None and now() >= self.doomed_ns:
            os.kill(os.getpid(), 9)
        if "stall" in faults and self.engine.due_ns is not None:
            stall_s, every_s = faults["stall"].numbers
            left_s = stall_s - alive_s % every_s
            behind_ns = now() + round(left_s * 1e9) - self.engine.due_ns
            if left_s > 0 and behind_ns > 0 and self.engine.due_ns <= now():
                self.engine.shift(behind_ns)
