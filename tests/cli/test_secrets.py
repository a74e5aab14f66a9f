"""Secrets and texts: a key reaches the server and nothing else (L02, R13); prompts and answers stay private (R17)."""

import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow.parquet
import pytest
import trustme
from fake_api import HOLD_S_MAX, TOKENS, Api, serving
from running import Ended, Run, below_us

from loadgen.__main__ import main
from loadgen.plan import WARM_UP_REQUESTS

KEY = "canary-key-7d1f93"
PROMPT = "canary-prompt-55ae10"
ANSWER = "canary-answer-c2b04e"
TOKEN = "canary-token-91cc3a"
NETRC = "canary-netrc-08be77"
CANARIES = (KEY, PROMPT, ANSWER, TOKEN, NETRC)
REQUESTS = 14
ILL = ("refusal", "unknown", "redirect", "event", "answer", "garbage")
# Ray hands its own environment down to the workers, which read the key there.
NEED_IT = ("python -m loadgen", "gcs_server", "raylet", "ray::", "runtime_env", "dashboard/agent")

REFUSED = [
    "engine.api_key=sk-test-000",
    "+engine.api_key=sk-test-000",
    "++workload.body={headers: {Authorization: Bearer sk-test-000}}",
    "variant.env.HF_TOKEN=hf_test_000",
    "tags.note=sk-test-000",
    "engine.url=[http://a:1,http://user:sk=test@b:2]",
    "engine.url=http://a:1?api_key=test-000",
    "variant.env.HTTPS_PROXY=http://user:test-000@proxy:1",
]


def hits(texts: Iterable[tuple[str, bytes]], canaries: Iterable[str]) -> list[str]:
    """Where one of the canaries stands, and which."""
    return [f"{where}: {canary}" for where, text in texts for canary in canaries if canary.encode() in text]


def files(top: Path) -> Iterable[tuple[str, bytes]]:
    """Every file below `top`; a Parquet file also as what it says, since it is compressed."""
    for path in top.rglob("*"):
        if not path.is_file():
            continue
        yield str(path), path.read_bytes()
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
            said = [str(pyarrow.parquet.read_schema(path).metadata), str(table.schema), str(table.to_pylist())]
            yield f"{path} (decoded)", "\n".join(said).encode()


def command_lines() -> Iterable[tuple[str, bytes]]:
    """What `ps` shows of everything that we started."""
    for pid in below_us():
        try:
            yield str(pid), " ".join(psutil.Process(pid).cmdline()).encode()
        except psutil.Error:
            continue


@pytest.mark.parametrize("given", REFUSED)
def test_l02_a_secret_as_override_is_refused_before_it_is_written(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 in one line that does not repeat it; no file, although Hydra would write the sweep's texts first."""
    monkeypatch.chdir(tmp_path)
    assert main(["-m", "+variant=baseline", given, "load.concurrency=1,2"]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert "test" not in told.err + told.out
    assert list(tmp_path.rglob("*")) == []


@contextlib.contextmanager
def trap() -> Iterator[tuple[str, list[str]]]:
    """An address that nobody may ever connect to, and who did."""
    seen: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(5)
                        seen.append(str(connection.recv(4096)))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@dataclass
class Servers:
    """The servers of one grid, in the order in which it asks them."""

    careless: Api  # repeats what it was sent, in every way there is
    stranger: Api  # does not know the key
    secured: Api  # has a certificate of nobody's
    killed: Api  # its worker gets killed
    gone: Api  # dies
    last: Api  # is interrupted

    @property
    def urls(self) -> str:
        """For a sweep."""
        return ",".join(f"'{getattr(self, one.name).url}'" for one in fields(self))


@pytest.fixture
def servers(elsewhere: tuple[str, list[str]]) -> Iterator[Servers]:
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(own)
    at = WARM_UP_REQUESTS + 2
    with contextlib.ExitStack() as open_ones:

        def one(tls: ssl.SSLContext | None = None, key: str = KEY, **more: Any) -> Api:
            return open_ones.enter_context(serving(Api(key, ANSWER, elsewhere=elsewhere[0], **more), tls))

        yield Servers(
            careless=one(kinds=("ok", *ILL)),
            stranger=one(key="another"),
            secured=one(own),
            killed=one(hold_at=at),
            gone=one(hold_at=at),
            last=one(hold_at=at),
        )


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    with trap() as found:
        yield found


@pytest.fixture
def cores_allowed() -> Iterator[None]:
    """What this test starts may dump cores, as where a developer said `ulimit -c unlimited`."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    assert before[1] != 0
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


def environments() -> Iterable[tuple[str, bytes]]:
    """What the processes that we started have in their environments, by pid and title."""
    for pid, title in below_us().items():
        with contextlib.suppress(OSError):
            yield f"{pid} {title}", Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.slow
def test_r13_r14_r17_l02_key_prompt_and_answer_stay_where_they_belong(
    start: Callable[..., Run], servers: Servers, elsewhere: tuple[str, list[str]], cores_allowed: None, tmp_path: Path
) -> None:
    """Outputs, Parquet, Ray's logs, console and process list hold none of them, however a run ends.

    One grid: a server that repeats all of it in statuses, heads, events and redirects, one that knows another key, one
    of an unknown certificate, a killed worker, a server that dies, Ctrl-C. Nobody follows a redirect, a proxy or netrc.
    """
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{PROMPT} {n}"}) + "\n" for n in range(REQUESTS)))
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login a password {NETRC}\n")
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"), elsewhere[0])
    run = start(
        "-m",
        "+variant=baseline",
        "engine=external",
        f"engine.url={servers.urls}",
        "engine.api_key_env=CANARY_KEY",
        "workload.source=jsonl",
        f"workload.path={prompts}",
        f"workload.max_tokens={TOKENS}",
        "load.concurrency=2",
        f"load.requests={REQUESTS}",
        "load.failed_share_max=1",
        env={"CANARY_KEY": KEY, "HF_TOKEN": TOKEN, "NETRC": str(tmp_path / "netrc"), "NO_PROXY": "", **proxies},
    )
    assert servers.killed.held.wait(HOLD_S_MAX), run.err
    for pid, title in below_us().items():
        if title.startswith("ray::loadgen:worker"):
            os.kill(pid, signal.SIGKILL)
    servers.killed.hold.set()
    assert servers.gone.held.wait(HOLD_S_MAX), run.err
    servers.gone.vanish()
    assert servers.last.held.wait(HOLD_S_MAX), run.err
    # Ray removes its files in the end; now its logs hold all but the last request.
    (ray_folder,) = run.ray_folders()
    logs = list(files(ray_folder))
    assert len(logs) > 5
    assert hits(files(tmp_path), [PROMPT]), "the search itself finds what is there"
    assert hits(logs, CANARIES) == []
    assert hits(command_lines(), CANARIES) == []
    needed = [where for where, text in environments() if KEY.encode() in text]
    assert [where for where in needed if not any(title in where for title in NEED_IT)] == []
    assert dumping() == {"ray::loadgen:worker": 0, "ray::ServerActor": 0}
    run.process.send_signal(signal.SIGINT)
    servers.last.hold.set()
    ended = run.end()
    assert ended.code == 130, ended.err
    assert hits(files(ended.folder), CANARIES) == []
    assert hits([("stdout", ended.out.encode()), ("stderr", ended.err.encode())], CANARIES) == []
    assert elsewhere[1] == []
    check_asked(servers)
    check_outcomes(ended)


def dumping() -> dict[str, int]:
    """How large a core the processes with a key in their hands may leave, by title."""
    titles = {pid: title.partition(" ")[0] for pid, title in below_us().items()}
    held = {pid: title for pid, title in titles.items() if title in ("ray::loadgen:worker", "ray::ServerActor")}
    return {title: psutil.Process(pid).rlimit(resource.RLIMIT_CORE)[0] for pid, title in held.items()}


def check_asked(servers: Servers) -> None:
    """The key came with every request and the prompts in their bodies, else there was nothing to find."""
    for api in (servers.careless, servers.stranger, servers.gone, servers.last):
        assert all(asked == {f"Bearer {KEY}"} for asked in api.authorizations.values()), api.authorizations
    assert not servers.secured.authorizations
    assert any(PROMPT in body for body in servers.careless.bodies)


def check_outcomes(ended: Ended) -> None:
    """Every way of ending was there; what was well has its hash."""
    first, *others = [line["status"] for line in ended.ledger()]
    assert first in ("VALID", "INVALID")
    assert others == [*["FAILED"] * 4, "INTERRUPTED"]
    glob = f"{ended.folder}/outputs/*/*/0/**/requests.parquet"
    outcomes = dict(duckdb.sql(f"select outcome, count(*) from '{glob}' group by 1").fetchall())
    assert set(outcomes) == {"ok", "http_status", "redirect", "error_event", "malformed"}
    assert sum(outcomes.values()) == REQUESTS
    hashes = duckdb.sql(f"select count(answer_sha256) from '{glob}' where outcome = 'ok'").fetchall()
    assert hashes == [(outcomes["ok"],)]


def test_l02_a_named_variable_that_is_not_set(cli: Callable[..., Ended]) -> None:
    """The sentence names the variable; nothing was started."""
    ended = cli("+variant=baseline", "engine=external", "engine.url='http://127.0.0.1:9'", "engine.api_key_env=NOT_SET")
    assert ended.code == 2
    assert "NOT_SET" in ended.err
    assert ended.err.count("\n") == 1
