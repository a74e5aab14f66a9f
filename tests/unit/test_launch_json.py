"""launch.json holds what a comparison needs and no secret, wherever one was given; the log beside it is whole."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from loadgen import launch, stack
from loadgen.config import Config, Engine, Model, Variant
from loadgen.errors import StorageError
from loadgen.launched import Launched
from loadgen.nodes import Node, Places
from server.spec import ServerSpec

CANARY = "canary-5f1c"
HERE = Node("1", "127.0.0.1", "here", 2, 0)
PLACES = Places(HERE, (HERE,), HERE)


class Told:
    """In place of the server's actor: what it answers when it is asked for the machine."""

    def ask(self, method: str, **_: Any) -> dict[str, Any]:
        return {"method": method, "packages": {"loadgen": "0.1.0"}, "engine_packages": {}, "hf_token": CANARY}


def test_no_secret_reaches_launch_json() -> None:
    """Flags, environment, resolved arguments and configuration: the entry goes or its value is hidden."""
    endpoint = {
        "version": "0.5.9",
        "argv": ["python", "-m", "sglang.launch_server", "--api-key", CANARY, "--port", "1"],
        "env": {"HF_TOKEN": "***", "SGLANG_LAUNCH": f"x --admin-api-key={CANARY} --port 1", "NCCL_ALGO": "Ring"},
        "server_info": {"api_key": CANARY, "launch_command": f"serve --api-key '{CANARY}'", "tp_size": 8},
        "endpoints": [{"server_info": {"admin_api_key": CANARY}}],
    }
    spec = ServerSpec(engine="sglang", variant="baseline")
    launched = Launched("baseline-1", "1", spec, 0, Told(), endpoint, Path(), PLACES, "")  # type: ignore[arg-type]
    conf = Config(
        model=Model(name="m"),
        engine=Engine(kind="sglang", args={"api_key": CANARY, "page_size": 1}, api_key_env="MY_KEY"),
        variant=Variant(name="baseline", args={"admin_api_key": CANARY}),
    )
    content = launch._content(launched, conf)
    assert CANARY not in json.dumps(content)
    assert content["argv"][-4:] == ["--api-key", "***", "--port", "1"]
    assert content["env"]["NCCL_ALGO"] == "Ring"
    assert content["server_info"]["tp_size"] == 8
    assert content["config"]["engine"]["api_key_env"] == "MY_KEY"
    assert content["must_match"] == stack.must_match(stack.ingredients(content))
    assert content["must_match"]["of"]["engine.args"] == {"page_size": 1}


class Apart:
    """In place of the actor of a server on another disk: its log, seven bytes at a time."""

    def ask(self, method: str, start: int, **_: Any) -> bytes:
        return b"one line\nanother\n"[start : start + 7]


def test_r05_a_log_of_which_the_disk_took_a_part_is_fetched_once(tmp_path: Path) -> None:
    """What is fetched again after room was made lies where the part lay, not behind it."""
    spec = ServerSpec(engine="sglang", variant="baseline")
    launched = Launched("baseline-1", "1", spec, 0, Apart(), {}, tmp_path, PLACES, "")  # type: ignore[arg-type]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(StorageError, match="File too large"):
            launch._fetch_log(launched)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    launch._fetch_log(launched)
    assert launched.log.read_bytes() == b"one line\nanother\n"
