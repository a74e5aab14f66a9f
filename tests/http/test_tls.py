"""R12: a server has to prove itself, and we to it; every other connection is `tls`, with what to do about it.

The same for measured requests (stream) and small questions (server.ask). Certificates are real, made by an authority
of the test's own.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
import uvloop
from scripted import Answer, Scripted, plain, scripted, well

from loadgen.errors import ConfigError
from loadgen.record import Outcome
from loadgen.stream import exchange, session
from loadgen.trace import Limits, Trace
from server.ask import Access, ask
from server.tls import UNVERIFIED, VERIFIED, Tls, context, remarks

HOST = "127.0.0.1"
DAY = timedelta(days=1)
QUICK = Limits(connect_s=5, first_token_s=10, stall_s=10, total_s=20)
LONG_AGO = datetime.now(UTC) - 10 * DAY


@pytest.fixture(params=["uvloop", "asyncio"], scope="module")
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()


@dataclass(frozen=True)
class Files:
    """The test's authority, another one, and what its certificates are kept in."""

    ours: trustme.CA
    other: trustme.CA
    ca: str
    client: str
    stranger: str
    key: str
    locked: str


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder, ours, other = tmp_path_factory.mktemp("tls"), trustme.CA(), trustme.CA()

    def kept(name: str, *blobs: trustme.Blob) -> str:
        (folder / name).write_bytes(b"".join(blob.bytes() for blob in blobs))
        return str(folder / name)

    client, stranger = ours.issue_cert("client@here"), other.issue_cert("client@here")
    both = client.private_key_and_cert_chain_pem
    return Files(
        ours,
        other,
        ca=kept("ca.pem", ours.cert_pem),
        client=kept("client.pem", both),
        stranger=kept("stranger.pem", stranger.private_key_and_cert_chain_pem),
        key=kept("key.pem", client.private_key_pem),
        locked=_locked(folder, both.bytes()),
    )


def _locked(folder: Path, pem: bytes) -> str:
    """The same certificate, its key behind a password."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, None)
    closed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"canary-password"),
    )
    (folder / "locked.pem").write_bytes(closed + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return str(folder / "locked.pem")


def certificate(files: Files, kind: str) -> trustme.LeafCert:
    """A server's certificate; only that of `good` is any good."""
    if kind == "wrong host":
        return files.ours.issue_cert("elsewhere.example")
    if kind == "expired":
        return files.ours.issue_cert(HOST, not_before=LONG_AGO, not_after=datetime.now(UTC) - DAY)
    return (files.other if kind == "another authority" else files.ours).issue_cert(HOST)


@asynccontextmanager
async def secured(leaf: trustme.LeafCert, clients: trustme.CA | None = None) -> AsyncIterator[Scripted]:
    """A server with this certificate, that wants one of `clients`' from us."""
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    leaf.configure_cert(own)
    if clients is not None:
        clients.configure_trust(own)
        own.verify_mode = ssl.CERT_REQUIRED
    async with scripted(lambda _r, _n: well(1) if _r.path == "/" else plain("200 OK", b"{}"), own) as server:
        yield server


def with_alert(leaf: trustme.LeafCert, clients: trustme.CA, connections: int) -> str:
    """The address of a server that says in an alert why it refuses us; asyncio's only closes."""
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    leaf.configure_cert(own)
    clients.configure_trust(own)
    own.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        for _ in range(connections):
            client, _ = listener.accept()
            with client.dup() as raw:
                with contextlib.suppress(ssl.SSLError):
                    own.wrap_socket(client, server_side=True)
                raw.shutdown(socket.SHUT_WR)
                # Unread bytes of the request would make a reset of the close, and that overtakes the alert.
                while raw.recv(65536):
                    pass
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return f"https://{HOST}:{listener.getsockname()[1]}"


async def measured(server: Scripted, tls: Tls) -> Trace:
    async with session(QUICK, tls, "canary-key") as http:
        return await exchange(http, server.url + "/", {}, b"{}", QUICK, "chat")


async def asked(server: Scripted, tls: Tls) -> str | None:
    """How a small question ends: None well."""
    try:
        await asyncio.to_thread(ask, server.url, "/health", timeout_s=5.0, access=Access("canary-key", tls))
    except OSError as error:
        return str(error)
    return None


BAD = [
    ("wrong host", "write engine.url with a name that the certificate is for"),
    ("expired", "renew it at the server"),
    ("another authority", "engine.ca_file=FILE"),
]


async def test_r12_a_good_certificate_connects(files: Files) -> None:
    """Signed by the authority that was named, for this address, in time."""
    async with secured(certificate(files, "good")) as server:
        trace = await measured(server, Tls(files.ca))
        assert (trace.outcome, trace.http_status) == (None, 200)
        assert await asked(server, Tls(files.ca)) is None
    assert len(server.requests) == 2


@pytest.mark.parametrize(("kind", "advice"), BAD)
async def test_r12_a_bad_certificate_does_not(kind: str, advice: str, files: Files) -> None:
    """Outcome `tls`, nothing sent, and what to do about it."""
    async with secured(certificate(files, kind)) as server:
        trace = await measured(server, Tls(files.ca))
        words = await asked(server, Tls(files.ca))
    assert (trace.outcome, trace.sent_ns) == (Outcome.TLS, None)
    for said in (str(trace.error), str(words)):
        assert "certificate is refused" in said
        assert advice in said
    assert server.requests == []


async def test_r12_without_an_authority_the_systems_decide(files: Files) -> None:
    """A private authority is not believed unless it is named."""
    async with secured(certificate(files, "good")) as server:
        trace = await measured(server, VERIFIED)
        words = await asked(server, VERIFIED)
    assert trace.outcome is Outcome.TLS
    assert "engine.ca_file=FILE" in str(trace.error)
    assert "engine.ca_file=FILE" in str(words)
    assert server.requests == []


@pytest.mark.parametrize("kind", ["good", *(kind for kind, _ in BAD)])
async def test_r12_verification_can_be_turned_off_by_its_own_key_only(kind: str, files: Files) -> None:
    """engine.tls_verify=false believes them all, and every result says so."""
    async with secured(certificate(files, kind)) as server:
        assert (await measured(server, Tls(verify=False))).outcome is None
        assert await asked(server, Tls(verify=False)) is None
    assert remarks(Tls(verify=False), [server.url]) == [UNVERIFIED]
    assert remarks(Tls(verify=False), ["http://h:1"]) == []
    assert remarks(Tls(files.ca), [server.url]) == []


async def test_r12_a_server_that_wants_our_certificate(files: Files) -> None:
    """The right one connects; none, and a stranger's, is `tls` with the keys that name one."""
    async with secured(certificate(files, "good"), clients=files.ours) as server:
        assert (await measured(server, Tls(files.ca, files.client))).outcome is None
        assert (await measured(server, Tls(files.ca, files.client, files.key))).outcome is None
        assert await asked(server, Tls(files.ca, files.client)) is None
        known = len(server.requests)
        for tls in (Tls(files.ca), Tls(files.ca, files.stranger)):
            trace = await measured(server, tls)
            assert trace.outcome is Outcome.TLS, trace.error
            for said in (str(trace.error), str(await asked(server, tls))):
                assert "engine.client_cert_file=FILE" in said
        assert len(server.requests) == known == 3


async def test_r12_a_server_that_says_that_it_wants_our_certificate(files: Files) -> None:
    """An alert behind the handshake is `tls` too, although the request was sent by then."""
    server = Scripted(url=with_alert(certificate(files, "good"), files.ours, connections=2))
    trace = await measured(server, Tls(files.ca))
    words = await asked(server, Tls(files.ca))
    assert trace.outcome is Outcome.TLS
    for said in (str(trace.error), str(words)):
        assert "CERTIFICATE_REQUIRED" in said
        assert "engine.client_cert_file=FILE" in said


async def test_r12_a_server_that_dies_is_not_blamed_on_certificates(files: Files) -> None:
    """It took our handshake and was lost then: connection_lost, as over plain HTTP."""
    leaf = certificate(files, "good")
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    leaf.configure_cert(own)
    async with scripted(Answer(head=b"", end="rst"), own) as server:
        assert (await measured(server, Tls(files.ca))).outcome is Outcome.CONNECTION_LOST


async def test_r12_files_that_are_none_are_named(files: Files, tmp_path: Path) -> None:
    """A missing or wrong file, or a key with a password: a sentence with its key, never a question at the terminal."""
    (tmp_path / "text.pem").write_text("canary-text\n")
    text = str(tmp_path / "text.pem")
    cases = [
        (Tls(text), "engine.ca_file="),
        (Tls(f"{text}.gone"), "engine.ca_file="),
        (Tls(files.ca, text), "engine.client_cert_file="),
        (Tls(files.ca, files.ca), "engine.client_cert_file="),
        (Tls(files.ca, files.stranger, files.key), "engine.client_key_file="),
        (Tls(files.ca, files.locked), "the key has a password"),
    ]
    for tls, said in cases:
        with pytest.raises(OSError, match=said) as told:
            context(tls)
        assert "canary" not in str(told.value)
        with pytest.raises(ConfigError, match=said):
            async with session(QUICK, tls):
                pass


async def test_r12_a_server_without_tls(tmp_path: Path) -> None:
    """A plain server behind https is told as such."""

    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, HOST, 0) as server:
        address = Scripted(url=f"https://{HOST}:{server.sockets[0].getsockname()[1]}")
        trace, words = await measured(address, VERIFIED), await asked(address, VERIFIED)
    assert trace.outcome is Outcome.TLS
    for said in (str(trace.error), str(words)):
        assert "write its address with http://" in said
