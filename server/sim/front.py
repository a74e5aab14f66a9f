"""The front end: routes, the answers in work, counters and what /server_info tells.

It must not know how the engine works.
"""

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import orjson

from server.sim import dialect, faults, metrics, wish
from server.sim.answer import Answer
from server.sim.connection import Connection, Request
from server.sim.link import Link
from server.sim.settings import KV_TOKENS_DEFAULT, Settings

HEALTH_WAIT_S = 20.0  # SGLang's SGLANG_HEALTH_CHECK_TIMEOUT, in time of the simulated hardware.
OPEN_PATHS = ("/health", "/metrics")  # Prefixes that need no API key.
GENERATING = {"/v1/chat/completions": "chat", "/v1/completions": "completions", "/generate": "generate"}
REFUSALS = {"http_429": (429, "Too Many Requests"), "http_503": (503, "The server is busy.")}
FLUSHED = (
    b"Cache flushed.\nPlease check backend logs for more details. "
    b"(When there are running or waiting requests, the operation will not be performed.)\n"
)
Route = Callable[[Connection, Request], None]


class Front:
    """Everything the HTTP side of one server knows."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.link: Link
        self.connections: set[Connection] = set()
        self.answers: dict[int, Answer] = {}
        self.counters = metrics.Counters()
        self.stats: dict[str, Any] = {"running": 0, "queued": 0, "throughput": 0.0, "used": 0, "lag_ms": 0.0}
        self.kv_tokens = int(settings.flags["max_total_tokens"] or KV_TOKENS_DEFAULT)
        self.known_kinds = {kind for table in settings.profile.accept_length.values() for kind in table}
        self.hanging = False
        self.awaited: dict[int, Callable[[], object]] = {}  # what happens when the request with this number comes
        self.stopping = False
        self.drained = asyncio.Event()
        self.started_s = time.time()
        self._ordinal = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes = self._table()

    def _table(self) -> dict[tuple[str, str], Route]:
        routes: dict[tuple[str, str], Route] = {("POST", path): self._generate for path in GENERATING}
        for path in ("/health", "/health_generate"):
            routes["GET", path] = self._later(self._health)
        for path in ("/server_info", "/get_server_info"):
            routes["GET", path] = self._server_info
        for path in ("/model_info", "/get_model_info"):
            routes["GET", path] = self._model_info
        routes["GET", "/v1/models"] = self._models
        routes["POST", "/abort_request"] = self._abort_request
        for method in ("GET", "POST"):
            routes[method, "/flush_cache"] = self._later(self._flush_cache)
            routes[method, "/start_profile"] = lambda c, _: c.respond(
                200, b"Start profiling.\n", "text/plain; charset=utf-8"
            )
            routes[method, "/stop_profile"] = lambda c, _: c.respond(
                200, b"Stop profiling. This will take some time.\n", "text/plain; charset=utf-8"
            )
        if self.settings.version != "0.5.9":
            routes["GET", "/ready"] = lambda c, _: c.respond(200, b"")
        if self.settings.flags["enable_metrics"]:
            routes["GET", "/metrics"] = self._metrics
        return routes

    def _later(self, route: Callable[[Connection], Coroutine[Any, Any, None]]) -> Route:
        """A route that has to wait for something."""

        def start(connection: Connection, _: Request) -> None:
            task = asyncio.get_running_loop().create_task(route(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return start

    def connect(self) -> Connection:
        """A protocol for one new client."""
        return Connection(self.request, self.connections)

    def request(self, connection: Connection, request: Request) -> None:
        """Answer one request, or begin to."""
        if self.hanging:
            return
        if not self._allowed(request):
            connection.respond(401, b'{"error":"Unauthorized"}')
            return
        route = self._routes.get((request.method, request.path))
        if route is not None:
            route(connection, request)
        elif any(path == request.path for _, path in self._routes):
            connection.respond(405, b'{"detail":"Method Not Allowed"}')
        else:
            connection.respond(404, b'{"detail":"Not Found"}')

    def _allowed(self, request: Request) -> bool:
        key = self.settings.flags["api_key"]
        if not key or request.path.startswith(OPEN_PATHS):
            return True
        return request.headers.get("authorization", "") == f"Bearer {key}"

    async def _health(self, connection: Connection) -> None:
        answer = await self.link.ask("ping", HEALTH_WAIT_S / self.settings.speed)
        if not connection.transport.is_closing():
            connection.respond(200 if answer and not self.stopping else 503, b"")

    async def _flush_cache(self, connection: Connection) -> None:
        answer = await self.link.ask("flush", HEALTH_WAIT_S / self.settings.speed)
        done = bool(answer and answer[0])
        if answer and done:
            self.stats = answer[1]
        if not connection.transport.is_closing():
            connection.respond(200 if done else 400, FLUSHED, "text/plain; charset=utf-8")

    def _server_info(self, connection: Connection, _: Request) -> None:
        connection.respond(200, orjson.dumps(self.server_info()))

    def server_info(self) -> dict[str, Any]:
        """Resolved flags at the top level, internal_states, and what only a simulation has."""
        settings, stats = self.settings, self.stats
        state = {
            "last_gen_throughput": stats["throughput"],
            "memory_usage": {"weight": 0.0, "kvcache": 0.0, "token_capacity": self.kv_tokens, "graph": 0.0},
            "effective_max_running_requests_per_dp": settings.flags["max_running_requests"],
        }
        if stats.get("accept_length_total"):
            state["avg_spec_accept_length"] = stats["accept_length_total"]
        info = {
            **settings.flags,
            "status": "ready",
            "max_total_num_tokens": self.kv_tokens,
            "max_req_input_len": self.kv_tokens - 6,
            "internal_states": [state],
            "version": settings.shown_version,
            "simulated": True,
            "sim_speed": settings.speed,
            "sim_curve": settings.curve,
            "sim_curve_measured": settings.curve_measured,
            "sim_lag_ms": stats["lag_ms"],
        }
        if settings.version != "0.5.9":
            info["startup_time"] = 0.0
        return info

    def _model_info(self, connection: Connection, _: Request) -> None:
        path = self.settings.flags["model_path"]
        connection.respond(200, orjson.dumps({"model_path": path, "tokenizer_path": path, "is_generation": True}))

    def _models(self, connection: Connection, _: Request) -> None:
        name = self.settings.flags["served_model_name"]
        card = {"id": name, "object": "model", "created": int(self.started_s), "owned_by": "sglang", "root": name}
        card["max_model_len"] = self.settings.flags["context_length"] or wish.CONTEXT_TOKENS_DEFAULT
        connection.respond(200, orjson.dumps({"object": "list", "data": [card]}))

    def _metrics(self, connection: Connection, _: Request) -> None:
        text = metrics.exposition(self.settings, self.counters, self.stats, self.kv_tokens)
        connection.respond(200, text, "text/plain; version=0.0.4; charset=utf-8")

    def _abort_request(self, connection: Connection, request: Request) -> None:
        try:
            body = orjson.loads(request.body or b"{}")
        except ValueError:
            body = {}
        for id, answer in list(self.answers.items()):
            if body.get("abort_all") or answer.wish.stream.id == body.get("rid"):
                self._drop(id)
                answer.abort()
        connection.respond(200, b"")

    def _generate(self, connection: Connection, request: Request) -> None:
        api = GENERATING[request.path]
        ordinal, self._ordinal = self._ordinal, self._ordinal + 1
        self.awaited.get(self._ordinal, lambda: None)()
        for kind, (status, text) in REFUSALS.items():
            if faults.hits(self.settings.faults.get(kind), ordinal):
                connection.respond(status, orjson.dumps(dialect.error_body(text, status, "ServiceUnavailable")))
                return
        try:
            wanted = wish.read(self.settings, api, request.body, uuid.uuid4().hex, int(time.time()))
        except wish.WishError as error:
            body = {"error": {"message": str(error)}} if api == "generate" else dialect.error_body(str(error))
            connection.respond(400, orjson.dumps(body))
            return
        if faults.hits(self.settings.faults.get("short"), ordinal):
            wanted = dataclasses.replace(wanted, max_tokens=max(1, wanted.max_tokens // 2))
        answer = Answer(
            wanted,
            connection,
            shown_cache=self.settings.flags["enable_cache_report"],
            draft_tokens=self.settings.flags["speculative_num_draft_tokens"] or 0,
            fault=next((k for k in faults.STREAM_KINDS if faults.hits(self.settings.faults.get(k), ordinal)), None),
            huge_bytes=int(self.settings.faults["huge_event"].numbers[1] * 2**20)
            if "huge_event" in self.settings.faults
            else 0,
        )
        self._begin(ordinal, answer, request)

    def _begin(self, id: int, answer: Answer, request: Request) -> None:
        self.answers[id] = answer
        prompt_tokens = answer.wish.stream.prompt_tokens
        self.counters.prompt_tokens += prompt_tokens
        answer.connection.on_lost = lambda: self._lost(id)
        if answer.wish.streamed:
            answer.connection.begin_stream()
        kind = request.headers.get("x-request-id", "").rpartition(".")[2]
        kind = kind if kind in self.known_kinds else "default"
        pages = [] if self.settings.flags["disable_radix_cache"] else answer.pages()
        self.link.send("add", id, prompt_tokens, answer.total, kind, answer.key, request.arrived_ns, pages)

    def _drop(self, id: int) -> None:
        if self._forget(id):
            self.counters.aborted += 1
            self.link.send("abort", id)

    def _forget(self, id: int) -> bool:
        known = self.answers.pop(id, None) is not None
        if self.stopping and not self.answers:
            self.drained.set()
        return known

    def stop(self) -> None:
        """Be unhealthy from now on; `drained` is set when no answer is in work."""
        self.stopping = True
        if not self.answers or not self.link.alive:
            self.drained.set()

    def scheduler_lost(self) -> None:
        """Nothing in work will ever end; the front end lives on, as in SGLang 0.5.9."""
        self.drained.set()

    def _lost(self, id: int) -> None:
        answer = self.answers.get(id)
        if answer is not None:
            answer.over = True
            self._drop(id)

    def step(
        self, _: int, ids: list[int], counts: list[int], ends: list[list[Any]], cached: list[list[int]], stats: Any
    ) -> None:
        """Hand one step of the engine to the answers it concerns."""
        if stats is not None:
            self.stats = stats
        if self.hanging:
            return
        answers = self.answers
        for id, tokens in cached:
            if id in answers:
                answers[id].cached = tokens
                self.counters.cached_tokens += tokens
        for id, verify_steps, accepted, histogram in ends:
            self.counters.verify_steps += verify_steps
            if id in answers and histogram:
                drafts = answers[id].draft_tokens
                answers[id].spec = dialect.Speculation(verify_steps, accepted, histogram, drafts)
        for id, count in zip(ids, counts, strict=True):
            answer = answers.get(id)
            if answer is not None:
                answer.push(count)
                if answer.over:
                    self._settle(id, answer)

    def _settle(self, id: int, answer: Answer) -> None:
        if answer.sent >= answer.total:
            self._forget(id)
            self.counters.finished += 1
            # As in SGLang, a request's tokens are counted when it has ended.
            self.counters.generated_tokens += answer.sent
        else:
            self._drop(id)
