"""What the cases share: one response played without a network, a plan asked over a real one, and a Point's numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scripted import Answer, Script, scripted
from test_worker import PLAN, Board, check, exhausted, shard, until

from loadgen import checks
from loadgen.columns import columns, fitted, table
from loadgen.config import Config, Engine, Load, Model, Variant, Workload
from loadgen.errors import ConfigError
from loadgen.facts import facts_of, health_columns
from loadgen.record import IDENTITY, REQUEST, REQUESTS, names
from loadgen.row import Asked, build, outcome_of
from loadgen.series import held_mean, in_window
from loadgen.sse import Reader
from loadgen.summary import summarize
from loadgen.trace import Limits, Trace
from loadgen.verdict import Facts

MS = 1_000_000
LATE_MS = 1000.0  # a busy machine may stamp so much too late, never too early
EVER = (0, 3600 * 1000 * MS)
COLUMNS = names(IDENTITY + REQUEST)


def played(*steps: tuple[int, bytes], api: str = "chat", seq: int = 0, asked_tokens: int | None = None) -> dict:
    """The row of a response whose reads came at these milliseconds; `asked_tokens` under ignore_eos."""
    reader, trace = Reader(api, keep_text=True), Trace(sent_ns=0, headers_ns=0, http_status=200)
    for at_ms, data in steps:
        trace.take(at_ms * MS, data, Limits())
        reader.feed(at_ms * MS, data)
        trace.done_ns = at_ms * MS
    parsed = reader.finish()
    asked = Asked(seq, f"t{seq}", "code", asked_tokens or 0, asked_tokens is not None, 0)
    return build(asked, trace, parsed, *outcome_of(trace, parsed), 0, {}) | {"text": parsed.text}


async def asked(script: Script | Answer, requests: int = 1, **changes: Any) -> Board:
    """A plan of `requests` asked to its end by one worker, with the texts of the answers; no request is retried."""
    plan = replace(changes.pop("plan", PLAN), requests=requests)
    async with scripted(script) as server:
        given = shard(server.url, **{"concurrency": min(4, requests), "keep_text": True, "plan": plan, **changes})
        board = await until(exhausted).drive(given)
    check(board)
    assert len(server.requests) == sum(row["sent_ns"] is not None for row in board.rows) == requests
    board.rows.sort(key=lambda row: row["seq"])
    return board


def refusal(load: dict | None = None, engine: dict | None = None, **workload: Any) -> str:
    """The sentence by which a configuration is refused, "" where it is not."""
    asked_for = Config(
        model=Model(name="m"),
        engine=Engine(**{"kind": "external", "url": "http://127.0.0.1:1", **(engine or {})}),
        workload=Workload(**{"name": "w", "source": "builtin", **workload}),
        load=Load(**{"kind": "closed", "concurrency": 1, **(load or {})}),
        variant=Variant(name="baseline"),
    )
    try:
        checks.check(asked_for)
    except ConfigError as error:
        return str(error)
    return ""


def arrays(rows: Sequence[dict]) -> dict[str, np.ndarray]:
    """The rows as the dataset's columns, all of them in the window."""
    bare = [{name: row.get(name) for name in COLUMNS} for row in rows]
    cols = columns(fitted(table(bare, IDENTITY + REQUEST), REQUESTS))
    return {**cols, "in_window": in_window(cols, *EVER)}


def numbers(rows: Sequence[dict]) -> dict[str, Any]:
    """The summary of a Point of these rows."""
    return summarize(arrays(rows), *EVER, concurrency=None, gpus=None, whole_run=False)


def facts(rows: Sequence[dict], health: Sequence[dict] = (), concurrency: int | None = None) -> Facts:
    """What the verdict is given of a Point of these rows."""
    shares = {"failed_share_max": 0.01, "short_share_max": 0.01}
    return facts_of(arrays(rows), health_columns(health), EVER, concurrency=concurrency, **shares)


def held(rows: Sequence[dict], concurrency: int, think_s: float) -> float:
    """The share of the streams that was in use from the first request's sending to the last one's end."""
    cols = arrays(rows)
    mean = held_mean(cols, float(np.nanmin(cols["sent_ns"])), float(np.nanmax(cols["done_ns"])), think_s)
    assert mean is not None
    return mean / concurrency


def ms(row: dict, name: str) -> float:
    """A stamp of the row in milliseconds after the request was sent."""
    return (row[name] - row["sent_ns"]) / MS


def at(row: dict) -> list[int]:
    """The stamps of all events with output, whole milliseconds after the request was sent."""
    return [(stamp - row["sent_ns"]) // MS for stamp in row["chunk_ns"]]


def near(measured: float, scripted_ms: float) -> bool:
    """Whether a time measured over a socket is the scripted one: never sooner, later only by what busy machines do."""
    return scripted_ms - 2 <= measured <= scripted_ms + LATE_MS
