"""server.variant: command line, environment and refusals by engine and version, and the proof of identity."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from server.variant import (
    Contradiction,
    ServerSpec,
    SpecError,
    argv,
    check,
    contradictions,
    contradictions_of_all,
    environment,
    missing_keys,
    shown_environment,
    spec_mode,
)

TREE = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 4,
    "speculative_num_draft_tokens": 16,
}
CHAIN = {**TREE, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
V1, V2 = {"SGLANG_ENABLE_SPEC_V2": "0"}, {"SGLANG_ENABLE_SPEC_V2": "1"}

BASELINE = ServerSpec("sglang", "baseline", model_name="kimi_k25", model_path="/m", draft_path="/d", tp=8, python="py")
TOPK4_V1 = replace(BASELINE, variant="eagle_topk4_v1", args=TREE, env=V1)
TOPK1_V2 = replace(BASELINE, variant="eagle_topk1_v2", args=CHAIN, env=V2)

PLACE = "--model-path /m --served-model-name kimi_k25 --tp-size 8 --host 127.0.0.1 --port 30000 --random-seed 7"
COMMON = (
    "--attention-backend flashinfer --page-size 1 --max-running-requests 256 --cuda-graph-max-bs 256 "
    "--mem-fraction-static 0.8 --disable-radix-cache --enable-metrics --decode-log-interval 10 --enable-cache-report "
    "--stream-interval 1"
)
EAGLE = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d --speculative-num-steps 3"
GOLDEN = [
    (BASELINE, f"{PLACE} {COMMON}"),
    (TOPK4_V1, f"{PLACE} {COMMON} {EAGLE} --speculative-eagle-topk 4 --speculative-num-draft-tokens 16"),
    (TOPK1_V2, f"{PLACE} {COMMON} {EAGLE} --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"),
]


def line(spec: ServerSpec) -> str:
    return " ".join(argv(spec, host="127.0.0.1", port=30000, seed=7))


@pytest.mark.parametrize(("spec", "flags"), GOLDEN, ids=lambda value: getattr(value, "variant", ""))
def test_golden_argv(spec: ServerSpec, flags: str) -> None:
    """The command line of each of the study's variants, word for word; the simulator takes the same one."""
    assert line(spec) == f"py -m sglang.launch_server {flags}"
    assert line(replace(spec, engine="sim", sim_speed=30.0)) == f"py -m server.sim {flags} --sim-speed 30"


def test_argv_of_the_simulator() -> None:
    """The simulator needs no model and no other interpreter, and is told version, speed and profile."""
    spec = ServerSpec("sim", "eagle_topk1_v2", CHAIN, V2, version="0.5.23", sim_profile="p.yaml")
    words = argv(spec, host="::1", port=1, seed=2, nccl_port=3)
    text = " ".join(words)
    assert words[:3] == [sys.executable, "-m", "server.sim"]
    assert "--model-path <model.path>" in text
    assert "--speculative-draft-model-path <model.draft_path>" in text
    assert "--host ::1 --port 1 --nccl-port 3 --random-seed 2" in text
    assert text.endswith("--sim-version 0.5.23 --sim-speed 10 --sim-profile p.yaml")


@pytest.mark.parametrize(
    ("args", "present", "absent"),
    [
        ({"disable_radix_cache": False}, [], ["--disable-radix-cache"]),
        ({"attention_backend": None}, [], ["--attention-backend"]),
        ({"page_size": 64}, ["--page-size 64"], ["--page-size 1"]),
        ({"cuda_graph_bs": [1, 2, 4]}, ["--cuda-graph-bs 1 2 4"], []),
        ({"trust_remote_code": True}, ["--trust-remote-code"], ["True"]),
        ({"speculative_algorithm": "NGRAM"}, ["--speculative-algorithm NGRAM"], ["--speculative-draft-model-path"]),
        ({**CHAIN, "speculative_draft_model_path": "/x"}, ["--speculative-draft-model-path /x"], ["/d"]),
    ],
)
def test_flags(args: dict[str, Any], present: list[str], absent: list[str]) -> None:
    """True is a bare flag, false and null are not passed, a list is several values; the variant beats the rest."""
    text = line(replace(BASELINE, args=args))
    assert all(words in text for words in present)
    assert not any(words in text for words in absent)


@pytest.mark.parametrize(
    ("version", "graph", "sync_flag"),
    [
        (None, "--cuda-graph-max-bs 256", False),
        ("0.5.13.post1", "--cuda-graph-max-bs 256", False),
        ("0.5.14", "--cuda-graph-max-bs 256", True),
        ("0.5.23", "--cuda-graph-max-bs-decode 256", True),
    ],
)
def test_argv_by_version(version: str | None, graph: str, sync_flag: bool) -> None:
    """Renamed flags get their new name, and a worker asked for by a variable that is gone is asked for by flag."""
    text = line(replace(TOPK4_V1, version=version))
    assert graph in text
    assert ("--disable-overlap-schedule" in text) == sync_flag


@pytest.mark.parametrize(
    ("version", "args", "env", "mode"),
    [
        ("0.5.9", {}, {}, "none"),
        ("0.5.9", {"speculative_algorithm": "NGRAM"}, V2, "ngram"),
        (None, TREE, {}, "tree_sync"),
        (None, TREE, V1, "tree_sync"),
        (None, CHAIN, {}, "chain_sync"),
        ("0.5.10.post1", CHAIN, V2, "chain_overlap"),
        ("0.5.9", {**CHAIN, "disable_overlap_schedule": True}, V2, "chain_overlap"),
        ("0.5.11", TREE, {}, "tree_sync"),
        ("0.5.12.post1", CHAIN, {}, "chain_overlap"),
        ("0.5.12", CHAIN, V1, "chain_sync"),
        ("0.5.13", TREE, {}, "tree_overlap"),
        ("0.5.13", TREE, V1, "tree_sync"),
        ("0.5.23", TREE, V2, "tree_overlap"),
        ("0.5.23", {**CHAIN, "disable_overlap_schedule": True}, {}, "chain_sync"),
        ("0.5.23", {**CHAIN, "speculative_adaptive": True}, {}, "adaptive"),
        ("0.5.23", {"speculative_algorithm": "NEXTN"}, {}, "chain_overlap"),
        ("0.5.23", {"speculative_algorithm": "DFLASH"}, {}, "dflash"),
    ],
)
def test_spec_mode(version: str | None, args: dict[str, Any], env: dict[str, str], mode: str) -> None:
    """What "v1" and "v2" mean depends on the version."""
    assert spec_mode(args, env, version) == mode


def test_environment_keeps_no_secret() -> None:
    """Names that say secret, and the one named as the key's, stay out; the variant's own and the devices go in."""
    base = {"PATH": "/bin", "PYTHONPATH": "/p", "HF_TOKEN": "x", "my_api_key": "x", "DB_PASSWORD": "x", "PASS": "x"}
    spec = replace(TOPK1_V2, api_key_env="PASS", env={**V2, "NCCL_ALGO": "Ring"})
    assert environment(spec, base, gpus=["0", "3"]) == {
        "PATH": "/bin",
        "PYTHONPATH": "/p",
        "SGLANG_ENABLE_SPEC_V2": "1",
        "NCCL_ALGO": "Ring",
        "CUDA_VISIBLE_DEVICES": "0,3",
    }


def test_shown_environment() -> None:
    """Shown is what can change a result, inherited or given; a secret's value never."""
    spec = replace(BASELINE, env={"A": "1", "HF_TOKEN": "canary"})
    base = {"NCCL_DEBUG": "INFO", "HOME": "/root", "SGLANG_API_KEY": "canary", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert shown_environment(spec, ["1"], base) == {
        "A": "1",
        "CUDA_VISIBLE_DEVICES": "1",
        "HF_TOKEN": "***",
        "NCCL_DEBUG": "INFO",
    }


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        (BASELINE, []),
        (replace(BASELINE, model_path=None, draft_path=None), ["model.path"]),
        (replace(TOPK1_V2, model_path=None, draft_path=None), ["model.path", "model.draft_path"]),
        (ServerSpec("sim", "eagle_topk1_v2", CHAIN, V2), []),
        (ServerSpec("external", "baseline"), ["engine.url"]),
    ],
)
def test_missing_keys(spec: ServerSpec, keys: list[str]) -> None:
    """A real start names the keys it lacks; the simulator lacks none."""
    assert missing_keys(spec) == keys


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"engine": "tgi"}, "set it to one of sglang, sim, external"),
        ({"args": TREE, "env": V2}, "set variant.env.SGLANG_ENABLE_SPEC_V2='0', or speculative_eagle_topk=1"),
        ({"args": TREE, "env": {"SGLANG_ENABLE_SPEC_V2": "True"}, "version": "0.5.10.post1"}, "up to 0.5.10"),
        ({"args": {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}}, "set that one too"),
        ({"args": {**CHAIN, "speculative_num_draft_tokens": 16}}, "set speculative_num_draft_tokens=4"),
        ({"args": {**CHAIN, "speculative_adaptive": True}}, "set engine.version"),
        ({"args": {**TREE, "speculative_adaptive": True}, "version": "0.5.23"}, "speculative_eagle_topk=1; set both"),
        ({"args": {**CHAIN, "speculative_accept_threshold_acc": 0.5}}, "changes the answers"),
        ({"env": {"SGLANG_SIMULATE_ACC_LEN": "3"}}, "fakes the accept length"),
        ({"args": {"enable_hierarchical_cache": True}}, "set variant.args.disable_radix_cache=false"),
        ({"args": {**TREE, "attention_backend": "trtllm_mha"}}, "verifies chains only"),
        ({"args": {"--page-size": 1}}, "without leading dashes"),
        ({"args": {"port": 1}}, "set by loadgen"),
        ({"args": {"tp": 4}}, "model.tp"),
        ({"args": {"api_key": "canary"}}, "named by engine.api_key_env"),
        ({"args": {"page_size": float("nan")}}, "a finite number"),
        ({"args": {"page_size": {"a": 1}}}, "fits no command line"),
        ({"args": {"chat_template": "a\0b"}}, "NUL"),
        ({"env": {"A=B": "1"}}, "no variable's name"),
        ({"env": {"A": 1}}, "put it into quotes"),
    ],
)
def test_refusals(change: dict[str, Any], words: str) -> None:
    """What would fail after minutes, or run as something else, is refused at once, with what to change."""
    with pytest.raises(SpecError) as caught:
        check(replace(BASELINE, **change))
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("spec", [BASELINE, TOPK4_V1, TOPK1_V2, replace(TOPK4_V1, env=V2, version="0.5.23")])
def test_the_studys_variants_pass(spec: ServerSpec) -> None:
    """The variants that the project is about are not refused."""
    check(spec)


def info_of(spec: ServerSpec, **told: Any) -> dict[str, Any]:
    """What a server tells that runs as asked, with some of it `told` otherwise."""
    speculates = bool(spec.args)
    asked = {name: spec.args.get(name) for name in TREE}
    return {
        **asked,
        "version": "0.5.9",
        "disable_overlap_schedule": speculates and not spec.variant.endswith("v2"),
        "max_running_requests": 256,
        "attention_backend": "flashinfer",
        "enable_flashinfer_allreduce_fusion": False,
        "internal_states": [{"effective_max_running_requests_per_dp": 256}],
        **told,
    }


@pytest.mark.parametrize("spec", [BASELINE, TOPK4_V1, TOPK1_V2], ids=lambda spec: spec.variant)
def test_the_server_asked_for_is_proven(spec: ServerSpec) -> None:
    """A server that tells what was asked contradicts nothing and leaves nothing open."""
    assert contradictions(spec, info_of(spec), 250) == ([], [])


@pytest.mark.parametrize(
    ("spec", "told", "expected"),
    [
        (BASELINE, {"speculative_algorithm": "EAGLE3"}, Contradiction("speculative_algorithm", None, "EAGLE3")),
        (TOPK1_V2, {"speculative_algorithm": None}, Contradiction("speculative_algorithm", "EAGLE3", None)),
        (TOPK1_V2, {"speculative_eagle_topk": 4}, Contradiction("speculative_eagle_topk", 1, 4)),
        (TOPK1_V2, {"speculative_num_steps": 5}, Contradiction("speculative_num_steps", 3, 5)),
        (TOPK4_V1, {"speculative_num_draft_tokens": 8}, Contradiction("speculative_num_draft_tokens", 16, 8)),
        (TOPK1_V2, {"disable_overlap_schedule": True}, Contradiction("disable_overlap_schedule", False, True)),
        (TOPK4_V1, {"disable_overlap_schedule": False}, Contradiction("disable_overlap_schedule", True, False)),
        (TOPK4_V1, {"max_running_requests": 48}, Contradiction("max_running_requests", "at least 100", 48)),
        (
            BASELINE,
            {"internal_states": [{"effective_max_running_requests_per_dp": n} for n in (32, 32)]},
            Contradiction("max_running_requests", "at least 100", 64),
        ),
        (BASELINE, {"attention_backend": "fa3"}, Contradiction("attention_backend", "flashinfer", "fa3")),
        (
            BASELINE,
            {"enable_flashinfer_allreduce_fusion": True},
            Contradiction("enable_flashinfer_allreduce_fusion", False, True),
        ),
        (
            BASELINE,
            {"flashinfer_allreduce_fusion_backend": "trtllm"},
            Contradiction("enable_flashinfer_allreduce_fusion", False, True),
        ),
        (replace(BASELINE, version="0.5.23"), {}, Contradiction("version", "0.5.23", "0.5.9")),
        (replace(BASELINE, engine="sim"), {"version": "0.5.23"}, Contradiction("version", "0.5.9", "0.5.23")),
    ],
)
def test_contradictions(spec: ServerSpec, told: dict[str, Any], expected: Contradiction) -> None:
    """Each flag that decides the comparison is found out when the server runs otherwise."""
    assert contradictions(spec, info_of(spec, **told), 100) == ([expected], [])


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        # NEXTN is SGLang's other name of EAGLE.
        (
            replace(BASELINE, variant="mtp_v2", args={"speculative_algorithm": "NEXTN"}, env=V2),
            {"speculative_algorithm": "EAGLE"},
        ),
        # Fusion that SGLang may turn on by itself is accepted where the variant says null.
        (
            replace(BASELINE, args={"enable_flashinfer_allreduce_fusion": None}),
            {"enable_flashinfer_allreduce_fusion": True, "disable_overlap_schedule": False},
        ),
        # With both halves named, the common backend is not used.
        (
            replace(BASELINE, args={"prefill_attention_backend": "a", "decode_attention_backend": "b"}),
            {
                "attention_backend": "torch_native",
                "prefill_attention_backend": "a",
                "decode_attention_backend": "b",
                "disable_overlap_schedule": False,
            },
        ),
        # What all our own servers share is not asked of somebody else's.
        (replace(BASELINE, engine="external"), {"attention_backend": "fa3"}),
    ],
)
def test_no_false_alarm(spec: ServerSpec, told: dict[str, Any]) -> None:
    """What SGLang shows under another name, or was not asked, is no contradiction."""
    assert contradictions(spec, info_of(spec, **told), 100) == ([], [])


def test_what_is_not_told_is_not_proven() -> None:
    """A server that tells nothing contradicts nothing, and each open flag is named."""
    open_flags = [
        "max_running_requests",
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "disable_overlap_schedule",
        "attention_backend",
        "enable_flashinfer_allreduce_fusion",
    ]
    assert contradictions(TOPK4_V1, None, 100) == ([], open_flags)


def test_each_of_several_servers_is_held_against_the_variant() -> None:
    """A contradiction names its server; what none tells is said once; the requests in flight are shared out."""
    told, silent = info_of(BASELINE), info_of(BASELINE)
    silent.pop("attention_backend")
    assert contradictions_of_all(BASELINE, {"a": told}, 100) == contradictions(BASELINE, told, 100)
    capped = {**told, "max_running_requests": 60}
    assert contradictions_of_all(BASELINE, {"a": capped, "b": told}, 120) == ([], [])
    wrong, quiet = contradictions_of_all(BASELINE, {"a": capped, "b": silent}, 122)
    assert wrong == [Contradiction("a: max_running_requests", "at least 61", 60)]
    assert quiet == ["b: attention_backend"]
    _, quiet = contradictions_of_all(BASELINE, {"a": silent, "b": None}, 1)
    assert "attention_backend" in quiet
    assert "b: speculative_algorithm" in quiet
