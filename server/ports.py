"""Ports of one host: choosing free ones that nobody else chooses at the same time, and saying who listens.

A choice is held by an abstract socket that carries the port's number and vanishes with the process, so that two
launches on one machine never share a port, and no file is left behind.
"""

import contextlib
import random
import socket
from dataclasses import dataclass

import psutil

PORT_FIRST = 20000
# Where the range of outgoing connections usually begins: below it no client can take the port away.
PORT_LAST = 32000
TRIES = 200
CONNECT_S = 0.5


@dataclass(frozen=True)
class Port:
    """A port that is ours until `release`, in this network namespace."""

    number: int
    claim: socket.socket

    def release(self) -> None:
        """Let others choose the port again."""
        self.claim.close()


def free_port(host: str) -> Port:
    """A port on which nobody listens and which no other launch has chosen; OSError if none is found."""
    for number in random.SystemRandom().sample(range(PORT_FIRST, PORT_LAST), TRIES):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0loadgen-port-{number}")
        except OSError:
            claim.close()
            continue
        if can_bind(host, number) and not answers(host, number):
            return Port(number, claim)
        claim.close()
    raise OSError(
        f"none of {TRIES} ports between {PORT_FIRST} and {PORT_LAST} on {host} is free; see what listens there"
    )


def can_bind(host: str, port: int) -> bool:
    """Whether a server could listen on the port now, as servers do it: connections that are closing do not count."""
    with contextlib.closing(socket.socket(_family(host))) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
        return True


def answers(host: str, port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            return True
    except OSError:
        return False


def refuses(host: str, port: int) -> bool:
    """Whether connections are turned away, which a busy or a distant server does not do."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listens(pids: list[int], port: int) -> bool:
    """Whether one of the processes owns a listening socket on the port."""
    return any(port in listening(pid) for pid in pids)


def listening(pid: int) -> set[int]:
    """The ports on which a process listens; none for one that is gone, or not ours to see."""
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return set()
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def listener(port: int) -> str:
    """Who listens on the port, in words for an error message."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return "a process that cannot be seen"
