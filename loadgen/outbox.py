"""Requests on their way: a number of the plan becomes a body and its headers, goes out, and its trace to the tally.

What the closed and the open loop share; they decide when. It must not know of streams, rates or the window, and does
not look into a response.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from loadgen.plan import Plan, payload
from loadgen.row import Asked
from loadgen.tally import Tally
from loadgen.trace import Trace

KIND_CHARS_MAX = 64  # of a kind, in a header: servers refuse long ones

History = tuple[Mapping[str, Any], ...]
Exchange = Callable[[int, dict[str, str], bytes, Trace], Awaitable[Any]]  # which endpoint, headers, body, trace to fill


def request_id(point_id: str, seq: int, kind: str) -> str:
    """The value of X-Request-Id: what a server's log needs to find the row again."""
    return re.sub(r"[^!-~]", "_", f"{point_id}.{seq}.{kind[:KIND_CHARS_MAX]}")


class Outbox:
    """Asks for one worker, and keeps what is in flight, by whatever number the loop gives it."""

    def __init__(
        self,
        plan: Plan,
        *,
        point_id: str,
        api: str,
        model_id: str,
        endpoints: Sequence[str],
        exchange: Exchange,
        tally: Tally,
    ) -> None:
        self._plan, self._api, self._model_id, self._point_id = plan, api, model_id, point_id
        self._exchange, self._tally, self.endpoints = exchange, tally, endpoints
        self.active: dict[int, tuple[Asked, Trace]] = {}
        self.sent = 0

    def asked(
        self,
        seq: int,
        place: int,
        planned_ns: int | None = None,
        freed_ns: int | None = None,
        history: History = (),
    ) -> Asked:
        """What the plan says of request `seq`, which goes to the endpoint in this place."""
        plan, prompt = self._plan, self._plan.prompt(seq)
        conversation, turn = divmod(seq, plan.turns)
        several = plan.turns > 1
        return Asked(
            seq,
            prompt.id,
            prompt.kind,
            plan.tokens(seq),
            plan.ignore_eos,
            planned_ns,
            freed_ns,
            planned_prompt_tokens=prompt.tokens,
            conversation=conversation if several else None,
            turn=turn + 1 if several else None,
            place=place,
            endpoint=self.endpoints[place],
            history=history,
        )

    def body(self, asked: Asked) -> bytes:
        """The request's body."""
        return orjson.dumps(payload(self._plan, asked.seq, self._api, self._model_id, asked.history))

    async def send(self, number: int, asked: Asked, body: bytes, ended: Callable[[Trace], None]) -> Trace:
        """Asks, as `number` of those in flight; `ended` hears of the trace however it ends, a cancellation too."""
        trace = Trace(asked_tokens=asked.planned_tokens)
        headers = {"X-Request-Id": request_id(self._point_id, asked.seq, asked.prompt_kind)}
        self.active[number] = asked, trace
        self.sent += 1
        try:
            await self._exchange(asked.place, headers, body, trace)
        finally:
            del self.active[number]
            ended(trace)
            if trace.done_ns is not None:
                self._tally.put(asked, trace)
        return trace
