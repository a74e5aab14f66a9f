"""R18: what of a joined cluster answers without a token is told, by real sockets that answer as Ray's do."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from recorded import HOST, JOBS, OPEN, REFUSED, SETTINGS, STATUS, UNAUTHENTICATED, answering

from loadgen.surface import client_is_open, dashboard_is_open, host_of, loopback, warnings

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    """A port on which nobody listens."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


def test_r18_an_open_cluster_is_told() -> None:
    """Both ports, each with its address and what to do."""
    with answering(JOBS) as dashboard, answering(SETTINGS, STATUS + OPEN) as client:
        told = warnings(HOST, dashboard, client)
    assert [f":{port} answers without a token" in line for port, line in zip((dashboard, client), told, strict=True)]
    assert all("RAY_AUTH_MODE=token" in line for line in told)


def test_r18_a_cluster_with_a_token_is_not() -> None:
    """Both refuse a call that has none."""
    with answering(REFUSED) as dashboard, answering(SETTINGS, STATUS + UNAUTHENTICATED) as client:
        assert warnings(HOST, dashboard, client) == []


def test_r18_nobody_there() -> None:
    """Neither port is used, as with most clusters seen from another host."""
    with nobody() as dashboard, nobody() as client:
        assert warnings(HOST, dashboard, client) == []


@pytest.mark.parametrize("status", [OPEN, b"\x0212", b"\x019"])
def test_r18_any_status_but_one_is_an_answer(status: bytes) -> None:
    """A client server that knows another version of the call, or wants a client's number, has asked for no token."""
    asked: list[bytes] = []
    with answering(SETTINGS + STATUS[:30], STATUS[30:] + status, asked=asked) as port:
        assert client_is_open(HOST, port)
    assert asked[0].startswith(PREFACE)
    assert b"/ray.rpc.RayletDriver/ClusterInfo" in asked[0]
    assert b"uthorization" not in asked[0]


def test_r18_others_on_these_ports_are_no_cluster() -> None:
    """A web server where the client port would be, something else where the dashboard would be, and silence."""
    with answering(JOBS) as web, answering(b"SSH-2.0-x\r\n" * 9999) as other, answering() as silent:
        assert not client_is_open(HOST, web)
        assert not dashboard_is_open(HOST, other)
        assert not dashboard_is_open(HOST, silent)
        assert not client_is_open(HOST, silent)


def test_r18_a_look_has_its_bound() -> None:
    """A server that drips its answer for minutes is left after a second."""
    with answering(*[b"x"] * 600, pause_s=0.1) as port:
        began_s = time.monotonic()
        assert not dashboard_is_open(HOST, port)
        assert time.monotonic() - began_s < 30  # of sixty


def test_r18_the_head_is_found_in_a_clusters_address() -> None:
    """Forms of cluster.address that name a host, and those that do not."""
    assert host_of("10.0.0.1:6379") == "10.0.0.1"
    assert host_of("ray://head.example:10001") == "head.example"
    assert host_of("[fd00::2]:6379") == "fd00::2"
    assert host_of("auto") is None
    assert host_of("local") is None


def test_r18_the_switch_is_put_back() -> None:
    """Ray's constant is as it was afterwards; where there is none, nothing is made up."""

    class Constants:
        ENABLE_RAY_CLUSTER = True

    with loopback(Constants):
        assert Constants.ENABLE_RAY_CLUSTER is False
    assert Constants.ENABLE_RAY_CLUSTER is True
    with loopback(object()):
        pass
