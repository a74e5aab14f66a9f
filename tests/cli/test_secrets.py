"""Secrets and texts: a key reaches the server and nothing else (L02, R13); prompts and answers stay private (R17)."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
import psutil
import pyarrow.parquet
import pytest
from fake_api import HOLD_S_MAX, TOKENS, Api, serving
from running import Ended, Run, below_us

from loadgen.__main__ import main
from loadgen.plan import WARM_UP_REQUESTS

KEY = "canary-key-7d1f93"
PROMPT = "canary-prompt-55ae10"
ANSWER = "canary-answer-c2b04e"
TOKEN = "canary-token-91cc3a"
REQUESTS = 12

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


def test_l02_r13_r17_the_key_reaches_the_server_and_nothing_else(start: Callable[..., Run], tmp_path: Path) -> None:
    """Outputs, Parquet, Ray's logs, console and process list hold no key, prompt or answer; the header came each time.

    The server answers some requests with errors that repeat key and body.
    """
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{PROMPT} {n}"}) + "\n" for n in range(REQUESTS)))
    env = {"CANARY_KEY": KEY, "HF_TOKEN": TOKEN}
    with serving(Api(KEY, ANSWER, hold_at=WARM_UP_REQUESTS + REQUESTS)) as api:
        arguments = (
            "+variant=baseline",
            "engine=external",
            f"engine.url='{api.url}'",
            "engine.api_key_env=CANARY_KEY",
            "workload.source=jsonl",
            f"workload.path={prompts}",
            f"workload.max_tokens={TOKENS}",
            "load.concurrency=2",
            f"load.requests={REQUESTS}",
            "load.failed_share_max=1",
        )
        run = start(*arguments, env=env)
        assert api.held.wait(HOLD_S_MAX), run.err
        canaries = (KEY, PROMPT, ANSWER, TOKEN)
        # Ray removes its files in the end; now its logs hold all but the last request.
        (ray_folder,) = run.ray_folders()
        logs = list(files(ray_folder))
        assert len(logs) > 5
        assert hits(files(tmp_path), [PROMPT]), "the search itself finds what is there"
        assert hits(logs, canaries) == []
        assert hits(command_lines(), canaries) == []
        api.hold.set()
        ended = run.end()
    assert ended.code in (0, 6), ended.err
    assert hits(files(ended.folder), canaries) == []
    assert hits([("stdout", ended.out.encode()), ("stderr", ended.err.encode())], canaries) == []
    assert all(asked == {f"Bearer {KEY}"} for asked in api.authorizations.values()), api.authorizations
    assert any(PROMPT in body for body in api.bodies)
    glob = f"{ended.folder}/outputs/**/requests.parquet"
    outcomes = dict(duckdb.sql(f"select outcome, count(*) from '{glob}' group by 1").fetchall())
    assert set(outcomes) == {"ok", "http_status"}
    assert sum(outcomes.values()) == REQUESTS
    hashes = duckdb.sql(f"select count(answer_sha256) from '{glob}' where outcome = 'ok'").fetchall()
    assert hashes == [(outcomes["ok"],)]


def test_l02_a_named_variable_that_is_not_set(cli: Callable[..., Ended]) -> None:
    """The sentence names the variable; nothing was started."""
    ended = cli("+variant=baseline", "engine=external", "engine.url='http://127.0.0.1:9'", "engine.api_key_env=NOT_SET")
    assert ended.code == 2
    assert "NOT_SET" in ended.err
    assert ended.err.count("\n") == 1
