"""A vLLM server: its command line from a variant that speaks SGLang, what is refused, and what it tells of itself.

Pure. vLLM has flags of its own for what all servers share; a variant's speculation and running cap are translated, so
that one variant is the same question to both engines; other flags are passed as vLLM's own. What a vLLM in development
mode tells (its whole configuration) is given under SGLang's names, as far as they mean the same.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from server.spec import (
    CHAIN_OR_TREE,
    DRAFT_PLACEHOLDER,
    MODEL_PLACEHOLDER,
    ServerSpec,
    algorithm,
    as_words,
    topk,
)

PROGRAM = ("-m", "vllm.entrypoints.cli.main", "serve")

# /server_info, with the seed of this launch, and /reset_prefix_cache exist in this mode only. It opens more than those
# two, which is why a server of ours listens where nobody else can reach it.
ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
INFO_PATH = "/server_info?config_format=json"
# With it comes what vLLM finds out about its machine by starting programs, once; asked again meanwhile it starts anew.
INFO_S_MAX = 90.0
VERSION_PATH = "/version"
FLUSH_PATH = "/reset_prefix_cache"

# What every variant shares: see server.spec.COMMON. The prefix cache is off, so that all prompts are work.
COMMON: dict[str, Any] = {
    "max_num_seqs": 256,
    "enable_prefix_caching": False,
    "enable_prompt_tokens_details": True,
    "stream_interval": 1,
    "generation_config": "vllm",  # the model's own may hold other defaults of sampling
}

# SGLang's names with the same meaning.
RENAMED = {"max_running_requests": "max_num_seqs", "context_length": "max_model_len"}

# A variant's flags that vLLM has nothing for, or that it has under a name which means something else.
SGLANG_ONLY = (
    "cuda_graph_max_bs",
    "cuda_graph_max_bs_decode",
    "decode_attention_backend",
    "deepep_config",
    "deepep_mode",
    "disable_overlap_schedule",
    "enable_dp_attention",
    "enable_flashinfer_allreduce_fusion",
    "enable_hicache",
    "enable_hierarchical_cache",
    "enable_mscclpp",
    "enable_nccl_nvls",
    "enable_symm_mem",
    "enable_torch_symm_mem",
    "enforce_disable_flashinfer_allreduce_fusion",
    "flashinfer_allreduce_fusion_backend",
    "hicache_ratio",
    "hicache_size",
    "mem_fraction_static",
    "moe_a2a_backend",
    "page_size",
    "prefill_attention_backend",
    "sampling_backend",
    "speculative_adaptive",
    "speculative_adaptive_config",
    "speculative_attention_mode",
    "speculative_token_map",
)
SPECULATIVE = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_draft_model_path",
)
OURS = {
    "served_model_name": "model.name",
    "seed": "a fresh number for each launch, which proves the server's identity",
    "speculative_config": "the variant's speculative_algorithm and its numbers",
}

METHODS = {"NGRAM": "ngram", "EAGLE": "eagle", "EAGLE3": "eagle3", "STANDALONE": "draft_model"}
LOOKUP_MAX = 3  # the longest run of tokens that an n-gram draft is looked up by; longer ones are found less often
NGRAM_TOKENS = 4


def words(spec: ServerSpec, *, host: str, port: int, seed: int) -> list[str]:
    """The command line of the server behind its interpreter; a placeholder stands where the model has no path."""
    place = {"host": host, "port": port, "seed": seed}
    return [*PROGRAM, spec.model_path or MODEL_PLACEHOLDER, *as_words({**place, **arguments(spec)}, negated=True)]


def arguments(spec: ServerSpec) -> dict[str, Any]:
    """vLLM's flags by name: those that all variants share, under the variant's, with the speculation translated."""
    given = {RENAMED.get(name, name): value for name, value in spec.args.items() if name not in SPECULATIVE}
    given.pop("device", None)  # the installed package decides that; here it says that no GPU is taken
    if (cache_off := given.pop("disable_radix_cache", None)) is not None:
        given["enable_prefix_caching"] = not cache_off
    model = {"served_model_name": spec.model_name, "tensor_parallel_size": spec.tp}
    return {**model, **COMMON, **given, "speculative_config": speculation(spec)}


def speculation(spec: ServerSpec) -> dict[str, Any] | None:
    """The variant's speculation as vLLM takes it; None without one.

    SGLang counts the verified tokens, of which the first is no guess; vLLM counts the guesses.
    """
    name = algorithm(spec.args)
    if name is None:
        return None
    tokens = spec.args.get("speculative_num_draft_tokens")
    if name == "NGRAM":
        guesses = int(tokens or NGRAM_TOKENS) - 1
        return {"method": "ngram", "num_speculative_tokens": guesses, "prompt_lookup_max": LOOKUP_MAX}
    guesses = int(spec.args.get("speculative_num_steps") or int(tokens or 2) - 1)
    path = spec.args.get("speculative_draft_model_path") or spec.draft_path or DRAFT_PLACEHOLDER
    return {"method": METHODS[name], "model": path, "num_speculative_tokens": guesses}


def spec_mode(args: Mapping[str, Any]) -> str:
    """How it speculates, in the words of `server.spec.spec_mode`; its scheduler overlaps unless it is told not to."""
    name = algorithm(args)
    if name is None:
        return "none"
    overlaps = args.get("async_scheduling") is not False
    return name.lower() if name not in CHAIN_OR_TREE else f"chain_{'overlap' if overlaps else 'sync'}"


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The server's environment out of a variant's: what only SGLang reads is left out."""
    return {**{name: text for name, text in base.items() if not name.startswith(("SGLANG_", "SGL_"))}, **ENVIRONMENT}


def refusal(spec: ServerSpec) -> str | None:
    """Why vLLM cannot run the variant as it is meant, with what to change; None where it can."""
    for name in spec.args:
        if name in SGLANG_ONLY:
            return f"variant.args.{name} is SGLang's and vLLM has none; remove it, or use engine=sglang"
        if name in OURS:
            return f"variant.args.{name} is set by loadgen ({OURS[name]}); remove it from the variant"
    if algorithm(spec.args) not in (None, *METHODS):
        known = ", ".join(METHODS)
        return f"speculative_algorithm={algorithm(spec.args)} is not offered to vLLM; it takes {known}"
    if algorithm(spec.args) in CHAIN_OR_TREE and topk(spec.args) > 1:
        wide = f"speculative_eagle_topk={topk(spec.args)}"
        return f"{wide} makes a tree, and vLLM verifies chains only; set speculative_eagle_topk=1"
    config = speculation(spec)
    if config and config["num_speculative_tokens"] < 1:
        return "speculative_num_draft_tokens counts the token that is no guess; set it to 2 or more"
    return None


def server_info(engine: str, get: Callable[[str], Any]) -> Any:
    """What a server of this engine tells of itself, under SGLang's names; `get` gives the JSON at a path."""
    if engine != "vllm":
        return get("/server_info")
    info = get(INFO_PATH)
    return None if info is None else told(info, get(VERSION_PATH))


def told(info: Any, version: Any) -> dict[str, Any]:
    """What /server_info and /version tell, under SGLang's names; what is not told is left out. Takes any JSON."""
    config = info.get("vllm_config") if isinstance(info, Mapping) else None
    whole = config if isinstance(config, Mapping) else {}
    found = {name: _at(whole, *path) for name, path in TOLD.items()}
    known = {name: value for name, value in found.items() if value is not None}
    if whole and "speculative_config" in whole:
        known |= _told_speculation(whole["speculative_config"])
    number = version.get("version") if isinstance(version, Mapping) else None
    return {**({"version": str(number)} if number else {}), **known, **({"vllm_config": whole} if whole else {})}


TOLD = {
    "random_seed": ("model_config", "seed"),
    "served_model_name": ("model_config", "served_model_name"),
    "max_running_requests": ("scheduler_config", "max_num_seqs"),
    "async_scheduling": ("scheduler_config", "async_scheduling"),
    "enable_prefix_caching": ("cache_config", "enable_prefix_caching"),
    "tp_size": ("parallel_config", "tensor_parallel_size"),
}


def _at(tree: Any, *path: str) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _told_speculation(config: Any) -> dict[str, Any]:
    method, guesses = _at(config, "method"), _at(config, "num_speculative_tokens")
    names = {method: name for name, method in METHODS.items()}
    return {
        "speculative_algorithm": names.get(method, method),
        "speculative_num_draft_tokens": guesses + 1 if isinstance(guesses, int) else None,
    }


def asked(spec: ServerSpec) -> Iterator[tuple[str, Any]]:
    """What a server must tell to be the one asked for: flag, value."""
    args, config = arguments(spec), speculation(spec)
    yield "speculative_algorithm", algorithm(spec.args)
    if config:
        yield "speculative_num_draft_tokens", config["num_speculative_tokens"] + 1
    yield "enable_prefix_caching", bool(args["enable_prefix_caching"])
    if args.get("async_scheduling") is not None:
        yield "async_scheduling", args["async_scheduling"]
