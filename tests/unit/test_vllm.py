"""A variant as vLLM takes it, what is refused by name, and what a vLLM tells of itself."""

import json
from dataclasses import replace
from typing import Any

import pytest
from goldens import spec_of

from loadgen.__main__ import variants
from server import vllm
from server.proof import Contradiction, contradictions
from server.spec import ServerSpec, SpecError
from server.variant import argv, check, environment, missing_keys, notes

CHAIN = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
NGRAM = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4}
# As vLLM 0.32 answered /server_info?config_format=json, less what nobody reads.
INFO = {
    "vllm_config": {
        "model_config": {"seed": 4242, "served_model_name": "m"},
        "cache_config": {"enable_prefix_caching": False},
        "parallel_config": {"tensor_parallel_size": 1},
        "scheduler_config": {"max_num_seqs": 256, "async_scheduling": False},
        "speculative_config": {"method": "ngram", "model": "ngram", "num_speculative_tokens": 3},
    },
    "vllm_env": {},
    "system_env": {},
}


def spec(args: dict[str, Any] | None = None, **more: Any) -> ServerSpec:
    known = {"model_name": "m", "model_path": "/m", "draft_path": "/d", "python": ("/v/python",)}
    return ServerSpec("vllm", "some", args=args or {}, **{**known, **more})


def words(args: dict[str, Any] | None = None, **more: Any) -> list[str]:
    asked = spec(args, **more)
    check(asked)
    return argv(asked, host="127.0.0.1", port=8, seed=7, nccl_port=9)


def value(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def test_the_command_line_of_a_baseline() -> None:
    """vLLM's own entry, the launch's seed, what all variants share, and no speculation."""
    line = words({"device": "cpu", "dtype": "bfloat16", "enforce_eager": True, "async_scheduling": False})
    assert line[:5] == ["/v/python", "-m", "vllm.entrypoints.cli.main", "serve", "/m"]
    told = [value(line, flag) for flag in ("--host", "--port", "--seed", "--served-model-name", "--max-num-seqs")]
    assert told == ["127.0.0.1", "8", "7", "m", "256"]
    assert {"--enforce-eager", "--no-enable-prefix-caching", "--no-async-scheduling"} <= set(line)
    assert not {"--device", "--speculative-config", "--nccl-port", "--random-seed"} & set(line)


@pytest.mark.parametrize(
    ("args", "config", "mode"),
    [
        (NGRAM, {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}, "ngram"),
        (CHAIN, {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}, "chain_overlap"),
        (
            {**CHAIN, "speculative_algorithm": "EAGLE", "async_scheduling": False},
            {"method": "eagle", "model": "/d", "num_speculative_tokens": 3},
            "chain_sync",
        ),
        (
            {"speculative_algorithm": "STANDALONE", "speculative_num_steps": 2, "speculative_eagle_topk": 1},
            {"method": "draft_model", "model": "/d", "num_speculative_tokens": 2},
            "chain_overlap",
        ),
    ],
)
def test_speculation_is_translated(args: dict[str, Any], config: dict[str, Any], mode: str) -> None:
    """SGLang counts verified tokens, vLLM guesses; the words for how it speculates are the same."""
    assert json.loads(value(words(args), "--speculative-config")) == config
    assert vllm.spec_mode(args) == mode


def test_flags_with_one_meaning_are_renamed() -> None:
    """The running cap, the prefix cache and the context are the same thing under other names."""
    line = words({"max_running_requests": 8, "disable_radix_cache": False, "context_length": 99})
    assert (value(line, "--max-num-seqs"), value(line, "--max-model-len")) == ("8", "99")
    assert "--enable-prefix-caching" in line


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({**CHAIN, "speculative_eagle_topk": 4}, "makes a tree, and vLLM verifies chains only"),
        ({"enable_flashinfer_allreduce_fusion": True}, "enable_flashinfer_allreduce_fusion is SGLang's"),
        ({"disable_overlap_schedule": True}, "disable_overlap_schedule is SGLang's"),
        ({"speculative_adaptive": True}, "speculative_adaptive is SGLang's"),
        ({"seed": 1}, "seed is set by loadgen"),
        ({"speculative_config": "{}"}, "speculative_config is set by loadgen"),
        ({"speculative_algorithm": "LOOKAHEAD"}, "it takes NGRAM, EAGLE, EAGLE3, STANDALONE"),
        ({**NGRAM, "speculative_num_draft_tokens": 1}, "set it to 2 or more"),
    ],
)
def test_what_vllm_has_not_is_refused_by_name(args: dict[str, Any], said: str) -> None:
    """Another variant than its label must not start; in a grid one has to know which it was."""
    with pytest.raises(SpecError, match=said) as caught:
        check(spec(args))
    assert str(caught.value).startswith(f"variant {spec(args).variant} on vllm: ")


def test_the_environment_has_the_development_interface_and_nothing_of_sglang() -> None:
    """What only SGLang reads would look in the record as if it did something."""
    shown = environment(spec(env={"SGLANG_ENABLE_SPEC_V2": "1", "VLLM_X": "2"}), {"PATH": "/bin"}, gpus=[])
    assert shown == {"PATH": "/bin", "VLLM_X": "2", "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}


def test_a_synchronous_chain_is_said_to_overlap() -> None:
    """Two variants of SGLang's may be one server of vLLM's: whoever compares them has to know."""
    sync = spec(CHAIN, env={"SGLANG_ENABLE_SPEC_V2": "0"})
    (note,) = notes(sync)
    assert "runs as chain_overlap: SGLANG_ENABLE_SPEC_V2=0 is not read there" in note
    assert notes(replace(sync, args={**CHAIN, "async_scheduling": False})) == []
    assert notes(spec(CHAIN)) == notes(spec(NGRAM, env=sync.env)) == []


def test_missing_weights_are_named() -> None:
    """A model, and a draft where the method has one."""
    assert missing_keys(spec(CHAIN, model_path=None, draft_path=None)) == ["model.path", "model.draft_path"]
    assert missing_keys(spec(NGRAM, draft_path=None)) == []


def test_what_it_tells_is_read_under_sglangs_names() -> None:
    """Seed, cap and speculation of a real answer prove the server that was asked for."""
    told = vllm.server_info("vllm", {vllm.INFO_PATH: INFO, "/version": {"version": "0.32.0"}}.get)
    assert (told["random_seed"], told["version"], told["max_running_requests"]) == (4242, "0.32.0", 256)
    assert (told["speculative_algorithm"], told["speculative_num_draft_tokens"]) == ("NGRAM", 4)
    assert contradictions(spec(NGRAM, version="0.32.0+cpu"), told, 256) == ([], [])


def test_another_server_than_asked_contradicts() -> None:
    """No speculation where some was asked, a cap below the load, a prefix cache that was to be off."""
    config = {
        **INFO["vllm_config"],
        "speculative_config": None,
        "scheduler_config": {"max_num_seqs": 4},
        "cache_config": {"enable_prefix_caching": True},
    }
    told = vllm.told({"vllm_config": config}, {"version": "0.31.0"})
    wrong, quiet = contradictions(spec(NGRAM, version="0.32.0"), told, 8)
    assert {one.flag for one in wrong} >= {
        "max_running_requests",
        "version",
        "speculative_algorithm",
        "enable_prefix_caching",
    }
    assert all(isinstance(one, Contradiction) for one in wrong)
    assert quiet == []


@pytest.mark.parametrize("info", [None, [], "x", {}, {"vllm_config": 1}, {"vllm_config": {"model_config": None}}])
def test_a_server_that_tells_nothing_is_not_proven(info: Any) -> None:
    """Any JSON is taken; silence is no contradiction."""
    wrong, quiet = contradictions(spec(NGRAM), vllm.told(info, None), 8)
    assert wrong == []
    assert set(quiet) >= {"max_running_requests", "speculative_algorithm", "enable_prefix_caching"}


RUNS_ON_VLLM = {
    "baseline", "baseline_again", "baseline_cache", "eagle1_chain", "eagle_topk1_v1", "eagle_topk1_v2", "nccl_tuned",
    "ngram", "no_custom_allreduce",
}  # fmt: skip


@pytest.mark.parametrize("name", variants())
def test_no_shipped_variant_passes_vllm_a_flag_of_sglang(name: str) -> None:
    """Each runs as the same question, or is refused by the flag that vLLM has not."""
    asked, baseline = replace(spec_of(name), engine="vllm"), replace(spec_of("baseline"), engine="vllm")
    if name not in RUNS_ON_VLLM:
        with pytest.raises(SpecError, match="vLLM"):
            check(asked)
        return
    check(asked)
    lines = [argv(one, host="127.0.0.1", port=8, seed=7) for one in (asked, baseline)]
    mine, common = ({word for word in line if word.startswith("--")} for line in lines)
    assert mine - common <= {"--speculative-config", "--enable-prefix-caching", "--disable-custom-all-reduce"}
