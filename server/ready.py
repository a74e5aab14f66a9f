"""Readiness with proof: the server that answers on the port is the one this launch started, and it generates.

A 200 from somebody else is not ready: the port must be owned by our processes, /server_info must show this launch's
seed, and one real generation must yield tokens. It must not know of Ray or of what is measured.
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from server import ports, vllm
from server.ask import Answer, ask
from server.death import death, failure_of, hang_of
from server.log import is_up, tail
from server.process import Running, StartError, family, heard

POLL_S = 0.1
# SGLang's /health generates a token and takes a second or more; one that is starting answers 503 at once.
HEALTH_S = 10.0
INFO_S = 10.0
# The first real generation may compile kernels for a minute.
GENERATION_S = 120.0
# Another program on our port: ours either fails to bind and ends, or waits for ever while the other one answers.
STRANGER_S = 10.0

PROBE_TOKENS = 8
PROBE_TEXT = "Name three colours."


class Doubt(Exception):
    """Why the server cannot be called ready now."""


class Stranger(Doubt):
    """Somebody else answers on the server's port."""


@dataclass(frozen=True)
class Ready:
    """A proven server: the launch with its family, what it tells of itself, and the name it serves its model under."""

    running: Running
    server_info: dict[str, Any]
    model_id: str | None


def wait_ready(
    running: Running,
    deadline_s: float,
    cancelled: Callable[[], bool],
    tell: Callable[[str], None] | None = None,
) -> Ready:
    """Wait until the server is proven ready; `deadline_s` is on the monotonic clock.

    `tell` hears why it is not ready yet. StartError at once when the process ends or `cancelled` says so, after
    STRANGER_S when somebody else answers on the port, when it calls itself ready and does not generate within the
    spec's hang_s_max, and at the deadline with the last doubt.
    """
    doubt = Doubt("it was not asked yet")
    own_seen_s = time.monotonic()
    patience = Patience(running, deadline_s, cancelled)
    while True:
        patience.check(doubt)
        try:
            return _prove_meanwhile(running, functools.partial(patience.check, doubt))
        except Stranger as stranger:
            doubt = stranger
            if time.monotonic() - own_seen_s > STRANGER_S:
                raise StartError(str(stranger), tail(running.log)) from None
        except Doubt as other:
            doubt, own_seen_s = other, time.monotonic()
        if tell:
            tell(str(doubt))
        time.sleep(POLL_S)


@dataclass
class Patience:
    """What ends the wait for a server: its death, a wish, the time since it called itself ready, the deadline."""

    running: Running
    deadline_s: float
    cancelled: Callable[[], bool]
    up_s: float | None = None  # when the log first said that it answers

    def check(self, doubt: Doubt) -> None:
        """Raise StartError where there is nothing to wait for any more."""
        running = self.running
        if dead := death(running):
            raise StartError(dead.reason, tail(running.log), dead.exit, dead.failure)
        if self.cancelled():
            raise StartError("the start was cancelled", tail(running.log))
        now_s, hang_s = time.monotonic(), running.spec.hang_s_max
        if self.up_s is None and is_up(running.log, running.spec.engine):
            self.up_s = now_s
        if self.up_s is not None and now_s - self.up_s > hang_s:
            reason = f"it calls itself ready and generates nothing for {hang_s:g} s (engine.hang_s_max): {doubt}"
            raise StartError(reason, tail(running.log), None, hang_of(running))
        if now_s > self.deadline_s:
            limit_s = running.spec.ready_s_max
            reason = f"not ready: {doubt}; if it only needs more than {limit_s:g} s, raise engine.ready_s_max"
            raise StartError(reason, tail(running.log), None, failure_of(running, None))


def _prove_meanwhile(running: Running, check: Callable[[], None]) -> Ready:
    """The proofs in a thread: a server may die while it is asked, and `check` then raises long before it answers."""
    proven: Future[Ready] = Future()

    def prove() -> None:
        try:
            proven.set_result(_prove(running))
        except BaseException as error:
            proven.set_exception(error)

    threading.Thread(target=prove, daemon=True).start()
    while not wait([proven], POLL_S).done:
        check()
    return proven.result()


def _prove(running: Running) -> Ready:
    """All proofs in a row, the cheap ones first; Doubt names the first one that fails."""
    if not ports.answers(running.host, running.port.number):
        raise Doubt("nothing listens on its port yet")
    if other := _other(running):
        raise Stranger(other)
    _get(running, "/health", HEALTH_S)
    info_s = vllm.INFO_S_MAX if running.spec.engine == "vllm" else INFO_S
    info = vllm.server_info(running.spec.engine, lambda path: _get(running, path, info_s).json())
    _check_seed(running, info)
    model_id = _model_id(running)
    _generate(running, model_id or running.spec.model_name)
    # A generation takes its time: a server whose port somebody else has taken has ended by now.
    if changed := replaced(running):
        raise Doubt(changed)
    members = family(running)
    return Ready(dataclasses.replace(running, family=members, heard=heard(members)), info, model_id)


def replaced(running: Running) -> str | None:
    """Why what answers on the port is not the process that was started, or None while it is."""
    dead = death(running)
    return dead.reason if dead else _other(running)


def _other(running: Running) -> str | None:
    """Who listens on the port, if it is none of the server's processes."""
    number = running.port.number
    if ports.listens([member.pid for member in family(running)], number):
        return None
    return f"port {number} is answered by {ports.listener(number)}, not by the server that was started"


def _check_seed(running: Running, info: Any) -> None:
    if not isinstance(info, dict) or "random_seed" not in info:
        raise Doubt("/server_info does not show random_seed, so that the server's identity is not proven")
    if info["random_seed"] != running.seed:
        told = f"/server_info shows random_seed {info['random_seed']}, but this launch gave {running.seed}"
        raise StartError(f"another server than ours answers: {told}", tail(running.log))


def _get(running: Running, path: str, timeout_s: float) -> Answer:
    try:
        answer = ask(running.url, path, timeout_s=timeout_s)
    except OSError as error:
        raise Doubt(f"{path} does not answer: {error}") from error
    if answer.status != 200:
        raise Doubt(f"{path} answers {answer.status}")
    return answer


def first_model(listed: Any) -> str | None:
    """The name of the first model in an answer of /v1/models; None where there is none."""
    try:
        return str(listed["data"][0]["id"])
    except (LookupError, TypeError):
        return None


def _model_id(running: Running) -> str | None:
    try:
        return first_model(ask(running.url, "/v1/models", timeout_s=INFO_S).json())
    except OSError:
        return None


def _generate(running: Running, model: str) -> None:
    """One real generation with at least one token, by the first interface that the server offers."""
    doubts = []
    for path, body in _probes(model):
        try:
            answer = ask(running.url, path, body=body, timeout_s=GENERATION_S)
        except OSError as error:
            raise Doubt(f"a generation by {path} does not answer: {error}") from error
        if answer.status == 200 and _tokens(answer.json()) > 0:
            return
        doubts.append(f"{path} answers {answer.status} without a token")
    raise Doubt("; ".join(doubts))


def _probes(model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    common = {"model": model, "max_tokens": PROBE_TOKENS, "temperature": 0}
    yield "/v1/chat/completions", {**common, "messages": [{"role": "user", "content": PROBE_TEXT}]}
    # A model without a chat template refuses the first.
    yield "/v1/completions", {**common, "prompt": PROBE_TEXT}
    yield "/generate", {"text": PROBE_TEXT, "sampling_params": {"max_new_tokens": PROBE_TOKENS, "temperature": 0}}


def _tokens(content: Any) -> int:
    """How many tokens an answer claims to hold; 0 where it does not say."""
    for part in ("usage", "meta_info"):
        try:
            return int(content[part]["completion_tokens"])
        except (LookupError, TypeError, ValueError):
            continue
    return 0
