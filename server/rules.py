"""Which servers are refused before they are started, because they would fail, or run as another variant than they say.

Pure. Each rule answers with the reason and what to change, or None.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from server import values, vllm
from server.flags import OLDEST, Version, in_words, missing_in
from server.spec import (
    CHAIN_OR_TREE,
    SPEC_V2,
    SPEC_V2_OPT_IN_LAST,
    TREE_SYNC_ONLY_LAST,
    ServerSpec,
    SpecError,
    algorithm,
    parse_version,
    resolved_args,
    topk,
    truth,
    version_of,
)

ENGINES = ("sglang", "vllm", "sim", "external")

# Flags that are given to the server by us, and where their value comes from.
OURS = {
    "host": "the address of the node that the server is placed on",
    "port": "a port that is free on that node",
    "nccl_port": "a port that is free on that node",
    "random_seed": "a fresh number for each launch, which proves the server's identity",
    "model_path": "model.path",
    "model": "model.path",
    "tp": "model.tp",  # a server's parser takes the start of a flag for the flag
    "tp_size": "model.tp",
    "tensor_parallel_size": "model.tp",
    "api_key": "a secret, which is named by engine.api_key_env and never given",
    "nnodes": "model.nodes",
    "node_rank": "model.nodes",
    "dist_init_addr": "model.nodes",
    "admin_api_key": "a secret, which is named by engine.api_key_env and never given",
}

NUMBERS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
PAGED_TREES = ("flashinfer", "fa3", "triton")

# Variables that are set by us, and how they are meant to be chosen.
OUR_VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "the GPUs that the server is given; export it for loadgen itself to leave some out"
}

Args = Mapping[str, Any]
Env = Mapping[str, str]


def check(spec: ServerSpec) -> None:
    """Raise SpecError for a server that would not start, or would start as another one than its flags say."""
    if spec.engine not in ENGINES:
        raise SpecError(f"engine.kind={spec.engine!r} cannot be started; set it to one of {', '.join(ENGINES)}")
    for name, value in spec.args.items():
        _check_flag(name, value)
    for name, text in spec.env.items():
        _check_variable(name, text)
    if spec.engine == "external":
        return
    if spec.engine == "vllm":
        if reason := vllm.refusal(spec):
            raise SpecError(f"variant {spec.variant} on vllm: {reason}")
        return
    args, version = resolved_args(spec), version_of(spec)
    reasons = (rule(args, spec.env, version) for rule in RULES)
    for reason in (missing_in(args, version), _too_old(spec, version), _dense(spec, args), *reasons):
        if reason:
            raise SpecError(f"variant {spec.variant} on {spec.engine} {in_words(version)}: {reason}")


def _too_old(spec: ServerSpec, version: Version) -> str | None:
    if version < OLDEST:
        return f"flags are known from {in_words(OLDEST)} on; set engine.version to the installed one, or update it"
    if spec.since and version < parse_version(spec.since):
        return f"the variant is one of {spec.since} and later; set engine.version to such a one, if it is installed"
    return None


def _dense(spec: ServerSpec, args: Args) -> str | None:
    backend = args.get("moe_a2a_backend")
    if backend in (None, "none") or spec.moe is not False:
        return None
    return (
        f"moe_a2a_backend={backend} spreads experts, and the model {spec.model_name} has none (model.moe=false); "
        "choose a mixture-of-experts model, or another variant"
    )


def _check_flag(name: str, value: Any) -> None:
    where = f"variant.args.{name}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise SpecError(f"{where} is no flag's name; write the flag without leading dashes and with underscores")
    if name in OURS:
        raise SpecError(f"{where} is set by loadgen ({OURS[name]}); remove it from the variant")
    if reason := values.refused(name, value):
        raise SpecError(f"{where}={value!r} {reason}")


def _check_variable(name: str, text: Any) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SpecError(f"variant.env: {name!r} is no variable's name; use letters, digits and underscores")
    if name in OUR_VARIABLES:
        raise SpecError(f"variant.env.{name} is set by loadgen ({OUR_VARIABLES[name]}); remove it from the variant")
    if not isinstance(text, str) or "\0" in text:
        raise SpecError(f"variant.env.{name} must be a text without NUL characters; put it into quotes")


def _tree_with_v2(args: Args, env: Env, version: Version) -> str | None:
    speculates = algorithm(args) in CHAIN_OR_TREE and version <= TREE_SYNC_ONLY_LAST
    if not (speculates and topk(args) > 1 and truth(env.get(SPEC_V2))):
        return None
    done = "is refused by SGLang up to 0.5.10" if version <= SPEC_V2_OPT_IN_LAST else "runs without it up to 0.5.12"
    return (
        f"speculative_eagle_topk={topk(args)} with {SPEC_V2}={env[SPEC_V2]} {done}; "
        f"set variant.env.{SPEC_V2}='0', or speculative_eagle_topk=1, or run +variant=eagle_topk4_v1"
    )


def _numbers_alone(args: Args, _env: Env, _version: Version) -> str | None:
    alone = [name for name in NUMBERS if args.get(name) is not None]
    if algorithm(args) or not alone:
        return None
    return f"{' and '.join(alone)} without speculative_algorithm does nothing; set that one, or these to null"


def _steps_unset(args: Args, _env: Env, _version: Version) -> str | None:
    dependent = [n for n in ("speculative_eagle_topk", "speculative_num_draft_tokens") if args.get(n) is not None]
    if algorithm(args) not in CHAIN_OR_TREE or args.get("speculative_num_steps") is not None or not dependent:
        return None
    return f"{' and '.join(dependent)} without speculative_num_steps fails an assertion of SGLang; set that one too"


def _chain_tokens(args: Args, _env: Env, _version: Version) -> str | None:
    steps, tokens = args.get("speculative_num_steps"), args.get("speculative_num_draft_tokens")
    is_chain = algorithm(args) in CHAIN_OR_TREE and args.get("speculative_eagle_topk") == 1
    if not is_chain or steps is None or tokens is None or tokens == steps + 1:
        return None
    return f"a chain of {steps} steps has {steps + 1} draft tokens; set speculative_num_draft_tokens={steps + 1}"


def _adaptive(args: Args, _env: Env, _version: Version) -> str | None:
    if not args.get("speculative_adaptive"):
        return None
    if algorithm(args) not in ("EAGLE", "EAGLE3") or topk(args) != 1:
        return "SGLang drops speculative_adaptive without EAGLE or EAGLE3 and speculative_eagle_topk=1; set both"
    return None


def _changed_answers(args: Args, env: Env, _version: Version) -> str | None:
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        if args.get(name) not in (None, 1):
            return f"{name}={args[name]} changes the answers, so nothing could be compared; remove it"
    if env.get("SGLANG_SIMULATE_ACC_LEN"):
        return "SGLANG_SIMULATE_ACC_LEN fakes the accept length; remove it from variant.env"
    return None


def _hierarchical_cache(args: Args, _env: Env, _version: Version) -> str | None:
    if not (args.get("enable_hierarchical_cache") and args.get("disable_radix_cache")):
        return None
    return "a hierarchical cache needs the prefix cache; set variant.args.disable_radix_cache=false"


def _tree_backend(args: Args, _env: Env, _version: Version) -> str | None:
    is_tree = algorithm(args) in CHAIN_OR_TREE and topk(args) > 1
    if not is_tree or args.get("attention_backend") != "trtllm_mha":
        return None
    return "attention_backend=trtllm_mha verifies chains only; set another one, or speculative_eagle_topk=1"


def _tree_pages(args: Args, _env: Env, _version: Version) -> str | None:
    is_tree, size = algorithm(args) in CHAIN_OR_TREE and topk(args) > 1, args.get("page_size")
    if not is_tree or size in (None, 1) or args.get("attention_backend") in (None, *PAGED_TREES):
        return None
    return (
        f"a tree on pages of {size} tokens is verified by {', '.join(PAGED_TREES)} only, not by "
        f"attention_backend={args['attention_backend']}; set variant.args.page_size=1, or one of those"
    )


RULES: tuple[Callable[[Args, Env, Version], str | None], ...] = (
    _tree_with_v2,
    _numbers_alone,
    _steps_unset,
    _chain_tokens,
    _adaptive,
    _changed_answers,
    _hierarchical_cache,
    _tree_backend,
    _tree_pages,
)
