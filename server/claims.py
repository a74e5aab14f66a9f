"""What a variant says of its server: each flag with the value it must have and where /server_info tells it.

Pure. It must not know what follows from a difference (see server.proof).
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from server import vllm
from server.flags import FIRST, FUSION_NEW, FUSION_NEW_FIRST, FUSION_OFF, FUSION_OLD, in_words
from server.spec import VERSION_DEFAULT, ServerSpec, algorithm, parse_version, resolved_args, spec_mode

Info = Mapping[str, Any]
Args = Mapping[str, Any]

SPECULATION_FLAGS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
BACKENDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
OVERLAP = "disable_overlap_schedule"
CAP = "max_running_requests"

# Modes whose overlap follows from the flags and the version; of the others SGLang decides by itself.
OVERLAP_KNOWN = ("none", "tree_sync", "tree_overlap", "chain_sync", "chain_overlap")
# What must be told by a server of ours: without it nobody knows which variant ran.
DECISIVE = ("version", "speculative_algorithm", *SPECULATION_FLAGS, OVERLAP, CAP, *BACKENDS, FUSION_OLD, FUSION_NEW)
# Of the flags that all variants share, those that change what is measured.
SHARED = ("tp_size", "served_model_name", "page_size", "disable_radix_cache")
# What makes another variant of any: off unless asked for.
OFF: dict[str, Any] = {
    "disable_custom_all_reduce": False,
    "enable_torch_symm_mem": False,
    "enable_symm_mem": False,
    "enable_nccl_nvls": False,
    "enable_mscclpp": False,
    "enable_hierarchical_cache": False,
    "speculative_adaptive": False,
    "moe_a2a_backend": "none",
}
# These spread the experts over all devices, whatever ep_size says.
SPREADING = ("deepep", "deepep_v2", "mooncake", "mori")
ABSENT: Any = object()
FUSION_ADVICE = (
    f"SGLang turns fusion on by itself: from {in_words(FIRST[FUSION_OFF][0])} "
    f"variant.args.{FUSION_OFF}=true forbids it, null is either"
)


@dataclass(frozen=True)
class Claim:
    """What a variant says of its server: a flag, the value asked for, where it is told, and whether a value agrees.

    `advice` is what to do where it does not. `quiet`: an old version may not know the flag, so that its silence says
    nothing. `ours`: false for what a server of ours can only have decided by itself, alike for every variant on that
    machine.
    """

    flag: str
    asked: Any
    told: Callable[[Info], Any]
    holds: Callable[[Any], bool]
    advice: str = ""
    quiet: bool = False
    ours: bool = True


def claims(spec: ServerSpec, max_concurrency: int, version: str | None) -> Iterator[Claim]:
    """Everything that is claimed of a server of this `version`; None is the one that the spec means."""
    yield _running_cap(max_concurrency)
    asked = spec.version or (VERSION_DEFAULT if spec.engine == "sim" else None)
    if asked:
        same = parse_version(asked)
        yield Claim(
            "version", asked, lambda info: info.get("version") or ABSENT, lambda v: parse_version(str(v)) == same
        )
    if spec.engine == "vllm":
        yield from (_plain(flag, asked) for flag, asked in vllm.asked(spec))
        return
    meant = replace(spec, version=spec.version or version or spec.since)
    args = resolved_args(meant)
    for rule in RULES:
        yield from rule(meant, args)


def _plain(flag: str, asked: Any, **more: Any) -> Claim:
    """The flag is told at the top level and must have the value asked for."""
    return Claim(flag, asked, lambda info: info.get(flag, ABSENT), lambda told: _alike(asked, told), **more)


def _alike(asked: Any, told: Any) -> bool:
    """Whether a told value is the one asked for: a switch that is off may read null, numbers may be texts."""
    if asked == "auto":
        return True  # whatever the server makes of it
    if asked == "none" and told is None:
        return True
    if isinstance(asked, bool) or isinstance(told, bool):
        return bool(asked) == bool(told)
    if isinstance(asked, list | tuple) and isinstance(told, list | tuple):
        return len(asked) == len(told) and all(map(_alike, asked, told))
    if isinstance(asked, int | float) and isinstance(told, int | float):
        return abs(asked - told) <= 1e-9 * max(abs(asked), abs(told))
    return str(asked) == str(told)


def _speculation(_spec: ServerSpec, args: Args) -> Iterator[Claim]:
    asked = algorithm(args)
    told = lambda info: info.get("speculative_algorithm", ABSENT)  # noqa: E731
    yield Claim("speculative_algorithm", asked, told, lambda name: algorithm({"speculative_algorithm": name}) == asked)
    # Without speculation the numbers mean nothing, whatever a server shows for them.
    for flag in SPECULATION_FLAGS if asked else ():
        if args.get(flag) is not None:
            yield _plain(flag, args[flag])
    steps = args.get("speculative_num_steps")
    if asked and steps is not None and not args.get("speculative_adaptive"):
        # An adaptive server shows the number of its start at the top level, and the one in force here.
        yield Claim("speculative_num_steps in force", steps, _steps_in_force, lambda told: told == [steps], quiet=True)


def _states(info: Info) -> list[Mapping[str, Any]]:
    return [state for state in info.get("internal_states") or [] if isinstance(state, Mapping)]


def _steps_in_force(info: Info) -> Any:
    told = {state["speculative_num_steps"] for state in _states(info) if state.get("speculative_num_steps") is not None}
    return sorted(told) or ABSENT


def _overlap(spec: ServerSpec, args: Args) -> Iterator[Claim]:
    mode = spec_mode(args, spec.env, spec.version)
    if mode in OVERLAP_KNOWN:
        yield _plain(OVERLAP, bool(args.get(OVERLAP)) if mode == "none" else mode.endswith("_sync"))


def _running_cap(max_concurrency: int) -> Claim:
    advice = (
        f"set variant.args.{CAP} to {max_concurrency} or more, alike for all variants (SGLang runs 48 under "
        "speculation unless told), or lower load.concurrency"
    )
    return Claim(CAP, f"at least {max_concurrency}", _cap_of, lambda told: told >= max_concurrency, advice)


def running_cap(info: Info) -> int | None:
    """The most requests that the server says it runs at once; None where it does not say."""
    cap = _cap_of(info)
    return None if cap is ABSENT else int(cap)


def _cap_of(info: Info) -> Any:
    """The lowest cap told: the flag's, and the one in force, summed over data-parallel ranks."""
    states = _states(info)
    in_force = [state.get("effective_max_running_requests_per_dp") for state in states]
    caps = [info.get(CAP), sum(in_force) if in_force and None not in in_force else None]  # type: ignore[arg-type]
    return min((int(cap) for cap in caps if cap is not None), default=ABSENT)


def _attention(spec: ServerSpec, args: Args) -> Iterator[Claim]:
    # What all our servers share is asked of servers that we start; of another one only what the variant itself says.
    own = spec.args if spec.engine == "external" else args
    split = [flag for flag in BACKENDS[1:] if own.get(flag)]
    # With both halves named the common one is not used, and SGLang may show anything there.
    for flag in (*([] if len(split) == 2 else BACKENDS[:1]), *split):
        if own.get(flag):
            yield _plain(flag, own[flag])


def _fusion(spec: ServerSpec, args: Args) -> Iterator[Claim]:
    asked = asked_fusion(args)
    if asked is None:
        return
    if parse_version(spec.version) < FUSION_NEW_FIRST:
        yield Claim(FUSION_OLD, asked, lambda info: _told_fusion(info, bool), lambda told: told == asked, FUSION_ADVICE)
        return
    backend = args.get(FUSION_NEW) or "auto"
    agrees = lambda told: bool(told) and _alike(backend, told) if asked else not told  # noqa: E731
    yield Claim(FUSION_NEW, backend if asked else None, lambda info: _told_fusion(info, str), agrees, FUSION_ADVICE)


def _told_fusion(info: Info, as_type: type) -> Any:
    """Whether fusion is on, or by which backend (None: off)."""
    if FUSION_OLD not in info and FUSION_NEW not in info:
        return ABSENT
    backend = info.get(FUSION_NEW) or ("auto" if info.get(FUSION_OLD) else None)
    return bool(backend) if as_type is bool else backend


def asked_fusion(args: Args) -> bool | None:
    """Whether fusion was asked for; unset is no, because SGLang turns it on by itself; null is "either"."""
    if args.get(FUSION_OLD) or args.get(FUSION_NEW):
        return True
    dont_care = any(name in args and args[name] is None for name in (FUSION_OLD, FUSION_NEW))
    return None if dont_care and not args.get(FUSION_OFF) else False


def _experts(_spec: ServerSpec, args: Args) -> Iterator[Claim]:
    spread = args.get("moe_a2a_backend") in SPREADING
    if spread or args.get("ep_size") is not None:
        yield _plain("ep_size", args["tp_size"] if spread else args["ep_size"])


def _rest(spec: ServerSpec, args: Args) -> Iterator[Claim]:
    """Every other flag that the variant itself names, and the shared ones that change what is measured."""
    handled = {*DECISIVE, FUSION_OFF, "ep_size", "model_path"}
    for name, asked in _claimed(spec, args).items():
        if name not in handled and asked is not None:
            yield Claim(name, asked, functools.partial(_told, name, asked), functools.partial(_alike, asked))


def _told(name: str, asked: Any, info: Info) -> Any:
    """A flag's value; a number or name that reads null was taken over into something else, and so is not told."""
    graph, _, what = name.removesuffix("_decode").partition("cuda_graph_")
    phase = (info.get("cuda_graph_config") or {}).get("decode") or {}
    told = info.get(name, ABSENT) if graph or not phase else phase.get(what)
    return ABSENT if told is None and not isinstance(asked, bool) else told


def _claimed(spec: ServerSpec, args: Args) -> dict[str, Any]:
    if spec.engine == "external":
        return dict(spec.args)
    bare = resolved_args(replace(spec, args={}))  # a flag may have got another name than the variant gave it
    named = {name: value for name, value in args.items() if name not in bare or bare[name] != value}
    return {**{name: args.get(name) for name in SHARED}, **named}


def _off(spec: ServerSpec, args: Args) -> Iterator[Claim]:
    for flag, off in OFF.items():
        if flag not in args:
            yield _plain(flag, off, quiet=True, ours=spec.engine == "external")


RULES: tuple[Callable[[ServerSpec, Args], Iterator[Claim]], ...] = (
    _speculation,
    _overlap,
    _attention,
    _fusion,
    _experts,
    _rest,
    _off,
)
