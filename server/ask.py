"""Small HTTP requests to one server: health, facts, metrics, a probe of generation. Never the measured load.

Owns the bounds on time and size, and keeps secrets out of what is handed on. Redirects are not followed, proxies not
used, and the API key is sent as a header and nowhere else.
"""

import contextlib
import http.client
import json
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from server.tls import CLOSED, VERIFIED, Tls, context, trouble

# /server_info of a large server has some hundred kilobytes, /metrics some megabytes.
BODY_BYTES_MAX = 32 * 1024 * 1024
READ_BYTES = 256 * 1024
ASK_S = 10.0
# A healthy server answers these at once; from one that hangs nothing is to be had.
ABORT_S = 2.0
HEALTH_S = 3.0
# /flush_cache is refused while requests are pending; the last ones of a Point end within moments.
FLUSH_S_MAX = 5.0
FLUSH_POLL_S = 0.1

SECRET_LAST_WORDS = ("key", "apikey", "token", "secret", "secrets", "password", "passwd", "credential", "credentials")
# --api-key X and --api-key=X inside a command line that a server shows of itself
SECRET_FLAG = re.compile(
    r"(--[\w-]*(?:key|token|secret|password|credential)(?:=|\s+))(\"[^\"]*\"|'[^']*'|\S+)", re.IGNORECASE
)
SECRET_FLAG_ALONE = re.compile(r"--[\w-]*(?:key|token|secret|password|credential)", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """One HTTP answer: status and body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True)
class Access:
    """What a server asks for: an API key (never shown), and how an https connection is secured."""

    key: str | None = field(default=None, repr=False)
    tls: Tls = VERIFIED


OPEN = Access()


def base_url(url: str) -> str:
    """The server's address without a trailing slash or /v1, which users often copy along."""
    return url.rstrip("/").removesuffix("/v1")


def ask(
    url: str,
    path: str,
    *,
    timeout_s: float,
    body: Any = None,
    post: bool = False,
    access: Access = OPEN,
) -> Answer:
    """One request: GET, or POST where there is a `body` or `post` is set. OSError where none comes in time."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OSError(f"{url!r} is no address of a server; write it as http://host:port")
    connection = _connection(parts, timeout_s, access.tls)
    headers = {"Accept-Encoding": "identity", "Connection": "close"}
    headers |= {"Authorization": f"Bearer {access.key}"} if access.key else {}
    headers |= {"Content-Type": "application/json"} if body is not None else {}
    try:
        method = "POST" if post or body is not None else "GET"
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, parts.path + path, body=content, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, _read(response, time.monotonic() + timeout_s))
    except ssl.SSLError as error:  # some of them are ValueErrors too
        raise OSError(trouble(error)) from None
    except (http.client.HTTPException, ValueError) as error:
        # Never repr: it may hold the request's headers.
        silent = parts.scheme == "https" and isinstance(error, http.client.RemoteDisconnected)
        hint = f"; {trouble(ssl.SSLError(CLOSED))}" if silent else ""
        raise OSError(f"no HTTP answer from {parts.hostname}: {type(error).__name__}{hint}") from None
    finally:
        connection.close()


def _connection(parts: SplitResult, timeout_s: float, tls: Tls) -> http.client.HTTPConnection:
    host = str(parts.hostname)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context(tls))


def _read(response: http.client.HTTPResponse, deadline_s: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > BODY_BYTES_MAX or time.monotonic() > deadline_s:
            raise OSError(f"the answer did not end within {BODY_BYTES_MAX} bytes or its time")
    return b"".join(pieces)


def redacted(value: Any, secrets: tuple[str, ...] = ()) -> Any:
    """What a server told, without entries named like a secret, secret flags of a command line, and known `secrets`."""
    if isinstance(value, Mapping):
        return {name: redacted(item, secrets) for name, item in value.items() if not names_secret(str(name))}
    if isinstance(value, list):
        hidden = [isinstance(item, str) and bool(SECRET_FLAG_ALONE.fullmatch(item)) for item in [None, *value]]
        return ["***" if hide else redacted(item, secrets) for hide, item in zip(hidden, value, strict=False)]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return SECRET_FLAG.sub(r"\1***", value)
    return value


def names_secret(name: str) -> bool:
    """Whether an entry's name ends like a secret's; `hf_token` does, `speculative_num_draft_tokens` does not."""
    return re.split(r"[^a-z]+", name.lower())[-1] in SECRET_LAST_WORDS


def flush(url: str, access: Access, path: str = "/flush_cache") -> bool:
    """Empty a server's prefix cache and its totals of speculation; whether it did: not while it works."""
    deadline_s = time.monotonic() + FLUSH_S_MAX
    while True:
        try:
            status = ask(url, path, post=True, timeout_s=ASK_S, access=access).status
        except OSError:
            return False
        if status != 400 or time.monotonic() > deadline_s:
            return status == 200
        time.sleep(FLUSH_POLL_S)


def abort(url: str, access: Access) -> None:
    """Have SGLang drop the requests under way, which it would otherwise wait for without an end of its own."""
    with contextlib.suppress(OSError):
        ask(url, "/abort_request", body={"abort_all": True}, timeout_s=ABORT_S, access=access)


def health(url: str, access: Access) -> str:
    """What /health says, in words."""
    try:
        return f"/health answers {ask(url, '/health', timeout_s=HEALTH_S, access=access).status}"
    except OSError:
        return f"/health does not answer within {HEALTH_S:g} s"


def json_of(url: str, path: str, access: Access) -> Any:
    """What a server answers there, as JSON; None where it does not answer 200 in time."""
    try:
        answer = ask(url, path, timeout_s=ASK_S, access=access)
    except OSError:
        return None
    return answer.json() if answer.status == 200 else None
