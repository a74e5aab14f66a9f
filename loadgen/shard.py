"""What a worker is given: its Shard of a Point, and what follows from it (addresses, the key's place, certificates)."""

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from loadgen.config import Load
from loadgen.errors import ConfigError
from loadgen.plan import Plan
from loadgen.trace import Limits
from server.tls import VERIFIED, Tls, context

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "generate": "/generate"}


POLL_S = 0.05  # all workers begin together, none may hear of it late


@dataclass(frozen=True)
class Shard:
    """Everything one worker needs for its share of a Point.

    `concurrency` is that of the whole Point; of a plan with arrivals it is the bound on requests in flight, None as
    many as open files allow. Several `base_urls` are asked in turns, request by request of the plan.
    """

    worker: int
    workers: int
    concurrency: int | None
    plan: Plan
    point_id: str
    base_urls: tuple[str, ...]
    api: str
    model_id: str
    stagger_s: float
    limits: Limits
    identity: Mapping[str, Any]
    api_key_env: str | None = None
    tls: Tls = VERIFIED
    keep_text: bool = False
    keep_rows: bool = False  # on a node without the driver's disk too: its part of the dataset is written there
    in_flight_max: int = 0  # requests of this worker at once: the worker finds it out


def poll_s(workers: int) -> float:
    """Seconds between two questions of a worker that waits for the start: of all together 500 a second at most."""
    return max(POLL_S, workers / 500)


def without_plan(shard: Shard) -> Shard:
    """The shard as it travels: the plan, the same for all of a Point, goes its own way."""
    return replace(shard, plan=replace(shard.plan, prompts=(), arrivals=None))


def api_key(variable: str | None) -> str | None:
    """The key in the environment variable of that name; it is read here, in the worker, and nowhere kept."""
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise ConfigError(f"engine.api_key_env names {variable}, which is not set where the worker runs: set it there")
    if not key.isprintable():
        raise ConfigError(f"the key in {variable} holds a line end or another sign that no header may; set it without")
    return key


def secured(tls: Tls) -> ssl.SSLContext:
    """How the worker secures its connections. ConfigError for its files."""
    try:
        return context(tls)
    except OSError as error:
        raise ConfigError(f"{error} (on {socket.gethostname()}, where the worker runs)") from None


def url(base_url: str, api: str) -> str:
    """The address of `api` below `base_url`, which may or may not end in /v1."""
    base, path = base_url.rstrip("/"), PATHS[api]
    return base.removesuffix("/v1") + path


def endpoint(base_url: str) -> str:
    """The address as it may be written down: without a user's name and password."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def limits(load: Load) -> Limits:
    """The deadlines of one request, out of the configuration."""
    return Limits(
        connect_s=load.connect_s_max,
        first_token_s=load.first_token_s_max,
        stall_s=load.stall_s_max,
        total_s=load.total_s_max,
    )
