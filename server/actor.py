"""The Ray actor of one Launch: it starts the server, proves it, answers questions about it, and stops it.

Plain class, wrapped by the control plane with max_concurrency above 1, so that it can be asked and stopped while it
starts: every method may run in a thread of its own. The API key is read here, from the variable that the configuration
names, and never returned. It must not know of load, Points or files other than the server's log.
"""

import contextlib
import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ray

from server import apart, batches, dumps, gpu, installed, packages, variant, vllm
from server.ask import Access, abort, base_url, flush, health, json_of, redacted
from server.death import death, failed_with, hang_of, stopped
from server.effects import telling
from server.identity import readable
from server.log import Growing, progress
from server.outside import endpoint, gone, probe
from server.preflight import Place, look
from server.process import Running, StartError, end_with_parent, launch
from server.provenance import cores_of, provenance
from server.ready import Ready, replaced, wait_ready
from server.spec import ServerSpec, SpecError
from server.stop import StopReport, bury_told, clean, leftovers, patience_s, stop
from server.telemetry import Sampler
from server.torch_trace import take

LOG_PART_BYTES = 4 * 1024 * 1024


class ServerActor:
    """One server's life. `host` is the address that it listens on.

    `folder` gets its log, where the file `mark` is found; a node without that disk keeps the log until it is fetched.
    """

    def __init__(
        self,
        spec: ServerSpec,
        folder: str,
        host: str = "127.0.0.1",
        log_name: str = "server.log",
        name: str = "",
        mark: str | None = None,
    ) -> None:
        end_with_parent()
        self._apart = mark is not None and not Path(mark).exists()
        self._folder = apart.new() if self._apart else Path(folder)
        self._spec, self._host, self._log_name, self._name = spec, host, log_name, name
        self._gpus = tuple(str(gpu_id) for gpu_id in ray.get_gpu_ids())
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._running: Running | None = None
        self._doubt = ""
        self._report: StopReport | None = None
        self._samplers: list[Sampler] = []
        self._memory_before: dict[str, int] = {}
        self._urls = tuple(map(base_url, spec.urls))
        self._log: Growing | None = None
        self._said: list[str] = []

    def start(self) -> dict[str, Any]:
        """Start the server and prove it: the Endpoint with ok true, or ok false with reason, log_tail and exit."""
        if (name := self._spec.api_key_env) and not self._key():
            return _failed(f"engine.api_key_env names {name}, which is not set where the server runs; export it there")
        if self._spec.engine == "external":
            return self._probe()
        began_s = time.monotonic()
        try:
            running = self._launch()
            ready = wait_ready(
                running, began_s + self._spec.ready_s_max, self._cancelled.is_set, partial(setattr, self, "_doubt")
            )
        except (StartError, SpecError, OSError) as error:
            return self._give_up(error)
        with self._lock:
            if self._cancelled.is_set():
                return _failed("the start was cancelled")
            self._running = ready.running
            self._samplers = [Sampler(ready.running.url, self._gpus, self._access())]
        return self._endpoint(ready, time.monotonic() - began_s)

    def preflight(
        self, specs: Sequence[ServerSpec], in_flight: int | None, per_worker: int | None, dirty: bool = False
    ) -> list[dict[str, Any]]:
        """What is here for the servers of a command, before anything is started: rows of a table."""
        here = Place(self._folder, self._host, self._gpus, in_flight, per_worker, installed.base_environment(), dirty)
        return [dataclasses.asdict(row) for row in look(specs, here)]

    def _launch(self) -> Running:
        with self._lock:
            if self._cancelled.is_set():
                raise StartError("the start was cancelled")
            self._memory_before = gpu.memory_used(self._gpus)
            base = installed.base_environment()
            self._spec = installed.settled(self._spec, base)
            self._running = launch(self._spec, self._folder, self._host, self._gpus, self._log_name, base, self._name)
            dumps.none_of_us()  # of the server that runs now its user's limit decides
            self._urls = (self._running.url,)
            self._log = Growing(self._running.log)
            return self._running

    def _give_up(self, error: Exception) -> dict[str, Any]:
        report = self.stop()
        failed = _failed(str(error), getattr(error, "log_tail", ""), getattr(error, "exit", None))
        running = self._running
        log, argv = (str(running.log), list(running.argv)) if running else (None, [])
        return {**failed, "log": log, "argv": argv, "left": report["left"]}

    def _endpoint(self, ready: Ready, ready_s: float) -> dict[str, Any]:
        running = ready.running
        return {
            "ok": True,
            "url": running.url,
            "urls": [running.url],
            "host": running.host,
            "port": running.port.number,
            "pid": running.server.pid,
            "pids": [member.pid for member in running.family],
            "known": (list(map(dataclasses.astuple, running.family)), sorted(running.heard), self._memory_before),
            "cores": cores_of(running.server.pid),
            "seed": running.seed,
            "version": ready.server_info.get("version") or self._spec.version,
            "server_info": self._told(ready.server_info),
            "argv": list(running.argv),
            "env": variant.shown_environment(self._spec, self._gpus, installed.base_environment()),
            "gpus": list(self._gpus),
            "log": str(running.log),
            "started_at": running.started_at,
            "ready_s": ready_s,
            "model_id": ready.model_id,
            "said": self._listen(),
        }

    def _probe(self) -> dict[str, Any]:
        """The Endpoint of servers that already run: the first one's, and under `endpoints` what each tells."""
        dumps.none_of_us()
        began_s = time.monotonic()
        told, wrong = probe(self._urls, self._access())
        if wrong:
            return _failed(f"{wrong}; see engine.url")
        for one in told:
            one["server_info"] = self._told(one["server_info"])
        access, several = self._access(), len(self._urls) > 1
        self._samplers = [Sampler(url, (), access, {"endpoint": url} if several else {}) for url in self._urls]
        return endpoint(self._urls, told, time.monotonic() - began_s)

    def progress(self) -> str:
        """How far the start has come and what it waits for, for display."""
        if (running := self._running) is None:
            return "waiting"
        return f"{progress(running.log)} ({self._doubt})" if self._doubt else progress(running.log)

    def look(self) -> dict[str, Any]:
        """Whether the server is alive; if not, its exit status and the reason. Cheap."""
        if self._spec.engine == "external":
            reason = gone(self._urls)
            return {"alive": reason is None, "exit": None, "reason": reason}
        running = self._running
        if running is None or self._report is not None:
            reason = "the server is not started" if running is None else "stopped"
            return {"alive": False, "exit": None, "reason": reason}
        if (dead := death(running)) is None:
            return {"alive": True, "exit": None, "reason": None}
        return {"alive": False, "exit": dead.exit, "reason": dead.words, **failed_with(running, dead.failure)}

    def symptoms(self) -> dict[str, Any]:
        """What can be seen of servers that live and answer nothing: health, stopped processes, class and log."""
        seen = [health(url, self._access()) for url in self._urls]
        running = self._running
        if running is None:
            return {"seen": seen, "kind": "hang", "advice": None, "log_tail": ""}
        return {"seen": [*seen, *stopped(running)], **failed_with(running, hang_of(running))}

    def proof(self) -> dict[str, Any]:
        """What proves the server once more: `replaced` says why it is another one, `said` what its log tells of flags.

        `infos` as below.
        """
        wrong = self._running and replaced(self._running)
        return {"infos": self.infos(), "replaced": wrong, "said": self._listen()}

    def _listen(self) -> list[str]:
        """The lines so far by which the log tells that a flag has no effect."""
        if self._log is not None:
            self._said = list(dict.fromkeys([*self._said, *telling(self._log.lines())]))
        return self._said

    def infos(self) -> dict[str, dict[str, Any] | None]:
        """What each server tells of itself now, without secrets, by its address; None where it does not."""
        engine, access = self._spec.engine, self._access()
        told = {url: vllm.server_info(engine, partial(json_of, url, access=access)) for url in self._urls}
        return {url: self._told(info) if isinstance(info, dict) else None for url, info in told.items()}

    def telemetry(self) -> list[dict[str, Any]]:
        """Rows sampled since the last call."""
        alive = self.look()["alive"]
        return [row for sampler in self._samplers for row in sampler.rows(alive)]

    def clock(self) -> int:
        """This node's monotonic clock in nanoseconds, that of the rows of telemetry."""
        return time.monotonic_ns()

    def log_end(self) -> int:
        """How many bytes the server has written to its log; 0 where there is none."""
        try:
            return self._running.log.stat().st_size if self._running else 0
        except OSError:
            return 0

    def log_part(self, start: int) -> bytes:
        """What the log holds from byte `start` on, LOG_PART_BYTES at most; nothing where the driver has it anyway."""
        if not self._apart or self._running is None:
            return b""
        with self._running.log.open("rb") as log:
            log.seek(start)
            return log.read(LOG_PART_BYTES)

    def forget(self) -> None:
        """Take away what this node kept of a stopped server's log."""
        if self._apart:
            shutil.rmtree(self._folder, ignore_errors=True)

    def logged(self, start: int, end: int) -> dict[str, Any] | None:
        """What the log says of the engine's batches between two of its ends; None where it says nothing."""
        if self._running is None or end <= start:
            return None
        with contextlib.suppress(OSError), self._running.log.open("rb") as log:
            return batches.read(log, start, end)
        return None

    def flush(self) -> bool:
        """Empty each server's prefix cache and its totals of speculation; whether all did."""
        path = vllm.FLUSH_PATH if self._spec.engine == "vllm" else "/flush_cache"
        done = [flush(url, self._access(), path) for url in self._urls]  # each of them, also behind one that refuses
        return all(done)

    def profile(self, name: str, steps: int) -> dict[str, Any]:
        """Have the server profile so many steps; their shares, see torch_trace.take. Traces go to traces/`name`."""
        if self._apart:
            return {"trace": None, "why": "the server's node has not the driver's disk"}
        return take(self._urls[0], self._access(), self._spec, (self._folder / "traces" / name).absolute(), steps)

    def leftovers(self, end: bool = False) -> list[str]:
        """Servers of earlier runs on this machine whose guard was killed, in words; `end`: they are ended."""
        return clean() if end else leftovers()

    def bury(self, name: str, log: str, endpoint: Mapping[str, Any]) -> list[str]:
        """End what is left of another launch whose actor is gone; what stays of it, in words."""
        return list(bury_told(name, log, endpoint, self._host))

    def provenance(self) -> dict[str, Any]:
        """The machine that the server runs on, and what its engine's interpreter has installed."""
        return {
            **provenance(self._gpus),
            "engine_packages": packages.of_engine(self._spec, installed.base_environment()),
        }

    def stop(self) -> dict[str, Any]:
        """End the server, or its start, and say whether anything is left of it. An external server is left alone."""
        self._cancelled.set()
        for sampler in self._samplers:
            sampler.stop()
        with self._lock:
            if self._report is None:
                self._report = self._stop_running()
        return {"clean": self._report.clean, "left": list(self._report.left)}

    def _stop_running(self) -> StopReport:
        if self._running is None:
            return StopReport(clean=True, left=())
        if self._samplers and self._spec.engine != "vllm":
            abort(self._urls[0], self._access())
        return stop(self._running, patience_s(self._running), lambda: gpu.memory_held(self._gpus, self._memory_before))

    def _key(self) -> str | None:
        return os.environ.get(self._spec.api_key_env) if self._spec.api_key_env else None

    def _access(self) -> Access:
        return Access(self._key(), self._spec.tls)

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        return readable(redacted(info, tuple(filter(None, [self._key()]))))


def _failed(reason: str, log_tail: str = "", exit_status: int | None = None) -> dict[str, Any]:
    return {"ok": False, "reason": reason, "log_tail": log_tail, "exit": exit_status}
