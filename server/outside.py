"""Servers that already run and are not ours to stop: what each tells when it is asked, and whether it still answers.

It must not know of Ray, or claim anything of a server that it does not tell.
"""

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from server import ports
from server.ask import Access, ask
from server.ready import first_model

# A server is asked for at most this long in all; it may be far away, or no SGLang.
PROBE_S_MAX = 10.0


def probe(urls: Sequence[str], access: Access) -> tuple[list[dict[str, Any]], str]:
    """What each server tells within PROBE_S_MAX (url, server_info, model_id), and what is wrong with one of them.

    Any HTTP answer at all makes it a server; several must serve the same model.
    """
    told = [dict[str, Any](url=url) for url in urls]
    # In threads, because a server that drips its answer would outlast any time-out of a socket.
    threads = [threading.Thread(target=_ask_into, args=(one, access), daemon=True) for one in told]
    deadline_s = time.monotonic() + PROBE_S_MAX
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    found = [
        {"url": one["url"], "server_info": one.get("server_info") or {}, "model_id": one.get("model_id")}
        for one in told
    ]
    return found, next(filter(None, [*map(_silent, told), *(_other(one, found[0]) for one in found)]), "")


def endpoint(urls: Sequence[str], told: Sequence[dict[str, Any]], ready_s: float) -> dict[str, Any]:
    """The Endpoint of servers that already run: the first one's, and under `endpoints` what each tells."""
    first = told[0]
    return {
        "ok": True,
        "url": first["url"],
        "urls": list(urls),
        "endpoints": list(told),
        "host": urlsplit(first["url"]).hostname,
        "port": port_of(first["url"]),
        "pid": None,
        "pids": [],
        "seed": None,
        "version": first["server_info"].get("version"),
        "server_info": first["server_info"],
        "argv": [],
        "env": {},
        "gpus": [],
        "log": None,
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "ready_s": ready_s,
        "model_id": first["model_id"],
    }


def _silent(one: dict[str, Any]) -> str:
    return "" if one.get("answered") else f"nothing answers at {one['url']}: {one.get('error', 'no answer in time')}"


def _other(one: dict[str, Any], first: dict[str, Any]) -> str:
    """Several servers are asked by one name of a model: another one would refuse, or answer as something else."""
    same = one["model_id"] == first["model_id"]
    return "" if same else f"{one['url']} serves {one['model_id']}, {first['url']} serves {first['model_id']}"


def _ask_into(told: dict[str, Any], access: Access) -> None:
    for path in ("/server_info", "/v1/models", "/health"):
        try:
            answer = ask(told["url"], path, timeout_s=PROBE_S_MAX / 3, access=access)
        except OSError as error:
            told["error"] = str(error)
            continue
        told["answered"] = True
        if path == "/server_info" and answer.status == 200 and isinstance(answer.json(), dict):
            told["server_info"] = answer.json()
        if path == "/v1/models":
            told["model_id"] = first_model(answer.json())


def gone(urls: Sequence[str]) -> str | None:
    """The first server whose port refuses connections, in words; None where none does."""
    for url in urls:
        parts = urlsplit(url)
        if ports.refuses(parts.hostname or "", port_of(url)):
            return f"{url} refuses connections"
    return None


def port_of(url: str) -> int:
    """The port of an address, told or meant."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
