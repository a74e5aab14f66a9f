"""Who may use the cluster of a run beside it: Ray runs any code for whoever can talk to it.

Sockets only, each look bounded by LOOK_S. It does not import Ray; nothing is sent that a server could take for work.
"""

import contextlib
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

DASHBOARD_PORT, CLIENT_PORT = 8265, 10001  # Ray's own, where nobody chose others
LOOK_S = 1.0
SEEN_BYTES_MAX = 1 << 16  # of an answer
UNAUTHENTICATED = b"16"  # gRPC's status for a call that lacks its token
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Ray's client asks so for the cluster's resources; the least that a client server answers.
CALL = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/ray.rpc.RayletDriver/ClusterInfo",
    "content-type": "application/grpc",
    "te": "trailers",
}
ADVICE = "give the cluster RAY_AUTH_MODE=token, or let nobody but its own hosts reach that port"


@contextlib.contextmanager
def loopback(constants: Any) -> Iterator[None]:
    """While Ray starts for this machine alone, all of it listens on loopback only.

    `constants` are ray._private.ray_constants. Ray replaces 127.0.0.1 by the host's address in the network unless it
    is told that there are no clusters, and then listens on every interface, for anybody. A private name: where it is
    unknown, Ray starts as before.
    """
    name = "ENABLE_RAY_CLUSTER"
    before = getattr(constants, name, None)
    if before is not None:
        setattr(constants, name, False)
    try:
        yield
    finally:
        if before is not None:
            setattr(constants, name, before)


def host_of(address: str) -> str | None:
    """The host in a cluster's address (host:port, [host]:port, ray://host:port); None where it names none (auto)."""
    found = re.fullmatch(r"(?:\w+://)?(?:\[(?P<six>[^]]+)\]|(?P<host>[^:/\[\]]+)):\d+", address.strip())
    return found and (found["six"] or found["host"])


def warnings(host: str, dashboard: int = DASHBOARD_PORT, client: int = CLIENT_PORT) -> list[str]:
    """What of the cluster whose head is `host` answers without a token; takes at most 4 x LOOK_S."""
    looks: tuple[tuple[str, int, Callable[[str, int], bool]], ...] = (
        ("dashboard", dashboard, dashboard_is_open),
        ("client port", client, client_is_open),
    )
    return [
        f"the cluster's {name} at {host}:{port} answers without a token: who reaches it can run code there; {ADVICE}"
        for name, port, is_open in looks
        if is_open(host, port)
    ]


def dashboard_is_open(host: str, port: int) -> bool:
    """Whether what listens there lists its jobs for anybody; no answer within LOOK_S is no."""
    asked = f"GET /api/jobs/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
    found = _answer(host, port, asked, re.compile(rb"HTTP/1\.[01] (\d{3})"))
    return found is not None and found[1] not in (b"401", b"403")


def client_is_open(host: str, port: int) -> bool:
    """Whether a gRPC server there lets a call without a token through; no answer within LOOK_S is no."""
    headers = b"".join(map(_literal, [*CALL.items(), (":authority", f"{host}:{port}")]))
    empty = b"\0\0\0\0\0"  # a gRPC message of no bytes
    asked = PREFACE + _frame(4, 0, 0, b"") + _frame(1, 4, 1, headers) + _frame(0, 1, 1, empty)
    # gRPC's own servers write the status as it is, behind its length.
    found = _answer(host, port, asked, re.compile(rb"grpc-status(?:\x01(\d)|\x02(\d\d))"))
    return found is not None and (found[1] or found[2]) != UNAUTHENTICATED


def _literal(header: tuple[str, str]) -> bytes:
    """A header in HTTP/2's compression at its plainest: name and value as they are."""
    name, value = (text.encode() for text in header)
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _answer(host: str, port: int, asked: bytes, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """The first match in what comes back within LOOK_S of the connect; None where there is none."""
    seen = b""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=LOOK_S) as connection:
        deadline_s = time.monotonic() + LOOK_S
        connection.sendall(asked)
        while (left_s := deadline_s - time.monotonic()) > 0 and len(seen) < SEEN_BYTES_MAX:
            connection.settimeout(left_s)
            piece = connection.recv(4096)
            seen += piece
            if (found := pattern.search(seen)) or not piece:
                return found
    return None
