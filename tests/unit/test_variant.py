"""server.variant: command line, environment and refusals by engine and version."""

import sys
from dataclasses import replace
from typing import Any

import pytest
from specs import BASELINE, CHAIN, TOPK1_V2, TOPK4_V1, TREE, V1, V2

from server.variant import (
    ServerSpec,
    SpecError,
    argv,
    check,
    environment,
    missing_keys,
    mode_of,
    notes,
    parse_version,
    shown_environment,
    spec_mode,
)


def line(spec: ServerSpec) -> str:
    return " ".join(argv(spec, host="127.0.0.1", port=30000, seed=7))


@pytest.mark.parametrize("spec", [BASELINE, TOPK4_V1, TOPK1_V2], ids=lambda spec: spec.variant)
def test_the_simulator_takes_the_same_flags(spec: ServerSpec) -> None:
    """Word for word those of the real server (which golden/ holds), with its own speed behind them."""
    real = line(spec).replace("-m sglang.launch_server", "-m server.sim")
    assert line(replace(spec, engine="sim", sim_speed=30.0)) == f"{real} --sim-speed 30"


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
        ("0.5.14", "--cuda-graph-max-bs-decode 256", True),
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


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (None, (0, 5, 9)),
        ("", (0, 5, 9)),
        ("v0.5.12.post1", (0, 5, 12)),
        ("0.32.0+cpu", (0, 32, 0)),
        ("0.5.23rc2", (0, 5, 23)),
        ("0.1.dev11", (0, 1, 0)),
        ("0.6", (0, 6, 0)),
        ("unknown", (0, 0, 0)),
    ],
)
def test_versions(text: str | None, version: tuple[int, int, int]) -> None:
    """Only where no version is given the default is meant: one that cannot be read is not taken for it."""
    assert parse_version(text) == version


def test_a_late_variant_s_mode_where_no_version_is_told() -> None:
    """A server that does not tell its version is taken for the first that has the variant, as everywhere else."""
    late = ServerSpec("external", "eagle_tree_overlap", TREE, {"SGLANG_ENABLE_SPEC_V2": "1"}, since="0.5.13")
    assert mode_of(late) == "tree_overlap"
    assert mode_of(late, "0.5.9") == "tree_sync"


@pytest.mark.parametrize(
    ("args", "version", "present"),
    [
        ({"cuda_graph_max_bs_decode": 64}, "0.5.9", "--cuda-graph-max-bs 64"),
        ({"cuda_graph_max_bs": 64}, "0.5.23", "--cuda-graph-max-bs-decode 64"),
        ({"enable_flashinfer_allreduce_fusion": True}, "0.5.13", "--enable-flashinfer-allreduce-fusion"),
        ({"enable_flashinfer_allreduce_fusion": True}, "0.5.14", "--flashinfer-allreduce-fusion-backend auto"),
        ({"flashinfer_allreduce_fusion_backend": "auto"}, "0.5.9", "--enable-flashinfer-allreduce-fusion"),
        ({"enable_hicache": True, "disable_radix_cache": False}, "0.5.9", "--enable-hierarchical-cache"),
    ],
)
def test_either_name_of_a_flag_is_passed_under_the_version_s_own(
    args: dict[str, Any], version: str, present: str
) -> None:
    """A flag of the variant replaces the common one whatever it was called, and is there once."""
    spec = replace(BASELINE, args=args, version=version)
    check(spec)
    assert f" {present} " in f"{line(spec)} "
    assert line(spec).count("--cuda-graph-max-bs") == 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (BASELINE, []),
        (replace(TOPK4_V1, version="0.5.12.post1"), []),
        (replace(TOPK1_V2, version="0.5.13"), []),
        (replace(TOPK4_V1, version="0.5.13"), ["runs as tree_sync, its nearest"]),
        (replace(TOPK4_V1, version="0.5.23"), ["--disable-overlap-schedule"]),
        (replace(TOPK1_V2, version="0.5.23"), ["runs as chain_overlap without SGLANG_ENABLE_SPEC_V2"]),
        (replace(TOPK4_V1, version="0.5.23", since="0.5.13"), []),
        (replace(BASELINE, version="0.6.0"), ["is started with the flags of 0.5.23, the newest"]),
        (ServerSpec("external", "eagle_topk4_v1", TREE, V1, version="0.5.23"), []),
    ],
)
def test_what_runs_instead_is_said(spec: ServerSpec, said: list[str]) -> None:
    """A name whose worker is gone says what runs in its place, in one line; others say nothing."""
    lines = notes(spec)
    assert len(lines) == len(said)
    assert all(words in text for words, text in zip(said, lines, strict=True))


def test_a_container_is_told_the_variant_s_variables() -> None:
    """A container inherits nothing, so the client is told which variables to hand over; any other command does."""
    docker = replace(TOPK1_V2, python=("/usr/bin/docker", "run", "--rm", "IMAGE", "python3"))
    handed = "--env CUDA_VISIBLE_DEVICES --env SGLANG_ENABLE_SPEC_V2"
    assert line(docker).startswith(f"/usr/bin/docker run {handed} --rm IMAGE python3 -m sglang.launch_server ")
    assert line(replace(TOPK1_V2, python=("env", "A=1", "py"))).startswith("env A=1 py -m sglang.launch_server ")


def test_what_decides_a_variant_is_not_inherited() -> None:
    """A variable that somebody's shell still has makes no other variant of it, and one that is gone is not passed."""
    base = {"SGLANG_ENABLE_SPEC_V2": "1", "SGLANG_SIMULATE_ACC_LEN": "3", "SGLANG_LOG_MS": "1"}
    assert environment(BASELINE, base, gpus=()) == {"SGLANG_LOG_MS": "1"}
    assert environment(replace(TOPK4_V1, version="0.5.13"), base, gpus=())["SGLANG_ENABLE_SPEC_V2"] == "0"
    assert environment(replace(TOPK4_V1, version="0.5.14"), base, gpus=()) == {"SGLANG_LOG_MS": "1"}


def test_r13_r19_environment_keeps_no_secret() -> None:
    """Names that say secret, and the one named as the key's, stay out; the variant's own and the devices go in."""
    base = {"PATH": "/bin", "PYTHONPATH": "/p", "HF_TOKEN": "x", "my_api_key": "x", "DB_PASSWORD": "x", "PASS": "x"}
    base |= {"MYSQL_PASSWD": "x", "AWS_SECRET_ACCESS_KEY": "x", "GOOGLE_APPLICATION_CREDENTIALS": "x", "secret": "x"}
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
        ({"engine": "tgi"}, "set it to one of sglang, vllm, sim, external"),
        ({"args": TREE, "env": V2}, "set variant.env.SGLANG_ENABLE_SPEC_V2='0', or speculative_eagle_topk=1"),
        ({"args": TREE, "env": {"SGLANG_ENABLE_SPEC_V2": "True"}, "version": "0.5.10.post1"}, "up to 0.5.10"),
        ({"args": {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}}, "set that one too"),
        ({"args": {**CHAIN, "speculative_num_draft_tokens": 16}}, "set speculative_num_draft_tokens=4"),
        ({"args": {**CHAIN, "speculative_adaptive": True}}, "set engine.version"),
        ({"args": {**CHAIN, "speculative_adaptive_config": "f"}, "version": "0.5.13"}, "sizes would be ignored"),
        ({"args": {"enforce_disable_flashinfer_allreduce_fusion": True}}, "has no switch against it"),
        ({"args": {"flashinfer_allreduce_fusion_backend": "trtllm"}, "version": "0.5.13"}, "SGLang picks how"),
        ({"args": TREE, "env": V2, "version": "0.5.12"}, "runs without it up to 0.5.12; set variant.env"),
        ({"since": "0.5.13", "version": "0.5.12.post1"}, "one of 0.5.13 and later; set engine.version"),
        ({"version": "0.5.8"}, "flags are known from 0.5.9 on"),
        ({"args": {"moe_a2a_backend": "deepep"}, "moe": False}, "the model kimi_k25 has none (model.moe=false)"),
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
        (
            {"args": {**CHAIN, "speculative_num_steps": "abc"}},
            "num_steps='abc' is no value for it; give a whole number",
        ),
        ({"args": {**CHAIN, "speculative_num_steps": -1}}, "a whole number of 0 or more"),
        ({"args": {**CHAIN, "speculative_num_steps": True}}, "a whole number of 0 or more"),
        ({"args": {**CHAIN, "speculative_eagle_topk": [1, 2]}}, "a whole number of 1 or more, or null"),
        ({"args": {**CHAIN, "speculative_eagle_topk": 1.5}}, "a whole number of 1 or more"),
        ({"args": {**CHAIN, "speculative_algorithm": ["EAGLE3"]}}, "give a text"),
        ({"args": {**CHAIN, "speculative_algorithm": None}}, "without speculative_algorithm does nothing"),
        ({"engine": "vllm", "args": {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": "x"}}, "whole"),
        ({"args": {"max_running_requests": "many"}}, "a whole number of 1 or more"),
        ({"args": {"mem_fraction_static": 80}}, "a number above 0 and up to 1"),
        ({"args": {"attention_backend": ""}}, "is empty; give a value, or null"),
        ({"args": {"cuda_graph_bs": []}}, "is empty; give a value, or null"),
        ({"args": {"nnodes": 2}}, "set by loadgen (model.nodes)"),
        ({"args": {**TREE, "page_size": 64, "attention_backend": "aiter"}}, "set variant.args.page_size=1"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "3"}}, "export it for loadgen itself"),
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


@pytest.mark.parametrize(
    ("engine", "args", "gpus"),
    [
        ("sglang", {"pp_size": 2}, 16),
        ("sglang", {"dp_size": 2}, 16),
        ("sglang", {"dp_size": 8, "enable_dp_attention": True}, 8),
        ("sglang", {"device": "cpu", "dp_size": 2}, 0),
        ("vllm", {"pipeline_parallel_size": 2}, 16),
        ("sim", {"dp_size": 2}, 0),
    ],
)
def test_replicas_and_stages_have_gpus_of_their_own(engine: str, args: dict[str, Any], gpus: int) -> None:
    """A server that is given too few would fail after its weights were read."""
    assert replace(BASELINE, engine=engine, args=args).gpus == gpus


@pytest.mark.parametrize("spec", [BASELINE, TOPK4_V1, TOPK1_V2, replace(TOPK4_V1, env=V2, version="0.5.23")])
def test_the_studys_variants_pass(spec: ServerSpec) -> None:
    """The variants that the project is about are not refused."""
    check(spec)
