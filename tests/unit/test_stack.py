"""What must match in a comparison: one hash for the same things, another as soon as one of them changes."""

import hashlib
import json
from typing import Any

import pytest

from loadgen.stack import Difference, differences, hash_of, ingredients, must_match

GPU = {"id": "0", "name": "H200", "power_limit_mw": 700_000, "sm_clock_max_mhz": 1980, "uuid": "GPU-1"}
LAUNCH: dict[str, Any] = {
    "schema_version": 1,
    "launch_id": "baseline-1",
    "variant": "baseline",
    "engine": "sglang",
    "engine_version": "0.5.23",
    "simulated": False,
    "sim_speed": None,
    "started_at": "2026-01-01T00:00:00Z",
    "seed": 1,
    "argv": ["python", "--port", "1", "--api-key", "canary"],
    "env": {"HF_TOKEN": "canary"},
    "cores": [0, 1],
    "provenance": {
        "host": "node1",
        "kernel": "6.1",
        "cpu_model": "X",
        "cpu_cores": 64,
        "driver": "580.1",
        "gpus": [GPU, {**GPU, "id": "1", "uuid": "GPU-2"}],
        "links": [{"gpus": ["0", "1"], "link": "nvlink"}],
        "packages": {"loadgen": "0.1.0"},
        "engine_packages": {"packages": {"torch": "2.14.1", "sglang": "0.5.23"}},
        "limits": {"cpus": None},
    },
    "config": {
        "engine": {"api": "chat", "args": {"page_size": 1}, "env": {}, "api_key_env": "canary"},
        "model": {"name": "m", "path": "/models/m", "draft_path": None, "tp": 2, "nodes": 1},
        "variant": {"args": {"speculative_algorithm": "EAGLE"}},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """A copy of LAUNCH with another value at the path."""
    copy = json.loads(json.dumps(LAUNCH))
    *places, last = path.split(".")
    inner = copy
    for place in places:
        inner = inner[int(place)] if isinstance(inner, list) else inner[place]
    inner[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        ("engine", "vllm", "engine.kind"),
        ("engine_version", "0.5.22", "engine.version"),
        ("sim_speed", 10.0, "engine.sim_speed"),
        ("config.engine.api", "generate", "api"),
        ("config.engine.args", {"page_size": 64}, "engine.args"),
        ("config.model.path", "/models/other", "model.path"),
        ("config.model.tp", 4, "model.tp"),
        ("provenance.driver", "590.0", "hardware.driver"),
        ("provenance.gpus", [GPU], "hardware.gpus"),
        ("provenance.links", [{"gpus": ["0", "1"], "link": "cpu"}], "hardware.gpu_links"),
        ("provenance.cpu_model", "Y", "hardware.cpu_model"),
        ("provenance.packages.loadgen", "0.2.0", "loadgen"),
        ("provenance.engine_packages.packages.torch", "2.13.0", "engine.torch"),
        ("cores", [0], "hardware.server_cores"),
    ],
)
def test_one_change_is_one_difference(path: str, value: Any, name: str) -> None:
    """Each ingredient changes the hash, and is named with both values."""
    one, other = (must_match(ingredients(launch)) for launch in (LAUNCH, changed(path, value)))
    assert one["hash"] != other["hash"]
    assert [found.name for found in differences(one, other)] == [name]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("variant", "eagle"),
        ("seed", 2),
        ("launch_id", "x"),
        ("started_at", "later"),
        ("argv", ["python", "--port", "2"]),
        ("config.variant.args", {}),
        ("provenance.host", "node2"),
        ("provenance.gpus.0.uuid", "GPU-9"),
    ],
)
def test_what_variants_and_blocks_differ_in_is_none_of_it(path: str, value: Any) -> None:
    """Flags, ports, seeds, times, and which of equal machines it was."""
    assert ingredients(changed(path, value)) == ingredients(LAUNCH)


def test_the_hash_knows_no_order() -> None:
    """Records that were written by other versions of Python, or read back, agree."""
    of = ingredients(LAUNCH)
    turned = json.loads(json.dumps(dict(reversed(of.items()))))
    assert hash_of(turned) == hash_of(of) == must_match(of)["hash"]
    assert hash_of({"b": [1, 2], "a": 1}) == hashlib.sha256(b'{"a":1,"b":[1,2]}').hexdigest()
    assert differences(must_match(of), must_match(turned)) == []


def test_an_ingredient_of_only_one_record_is_a_difference() -> None:
    """Older files may lack one: that is told, not taken for agreement."""
    assert differences(must_match({"a": 1}), must_match({"a": 1, "b": 2})) == [Difference("b", None, 2)]


def test_simulations_and_foreign_servers() -> None:
    """A simulation depends on no package of the engine; of a foreign server the hardware is not known."""
    simulated = ingredients({**LAUNCH, "simulated": True})
    assert simulated["engine.torch"] is None
    foreign = ingredients({**LAUNCH, "engine": "external"})
    assert {value for name, value in foreign.items() if name.startswith("hardware.")} == {None}


def test_no_secret_inside() -> None:
    """Neither argv, environment nor the name of the key's variable."""
    assert "canary" not in json.dumps(must_match(ingredients(LAUNCH)))
