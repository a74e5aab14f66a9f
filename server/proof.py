"""Whether a server is the one that was asked for, judged by what it tells about itself in /server_info.

Pure. One table of claims (server.claims) serves the check and the list of what will be checked. What a server does not
tell is "not proven", which is another thing than a contradiction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

<<<<<<< HEAD
from server import vllm
from server.spec import VERSION_DEFAULT, ServerSpec, algorithm, parse_version, resolved_args, spec_mode

Info = Mapping[str, Any]
Args = Mapping[str, Any]

SPECULATION_FLAGS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
FUSION_OLD = "enable_flashinfer_allreduce_fusion"
FUSION_NEW = "flashinfer_allreduce_fusion_backend"
FUSION_OFF = "enforce_disable_flashinfer_allreduce_fusion"
FUSION_NEW_FIRST = (0, 5, 14)  # from here the old field reads false even where fusion is on
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
=======
from server.claims import ABSENT, DECISIVE, Info, claims
from server.spec import ServerSpec
>>>>>>> b77d393 (What a variant claims is a module of its own; flags that a real 0.5.23 moves into a structure are read there, and its resolved arguments are a test)


@dataclass(frozen=True)
class Contradiction:
    """One flag for which the server tells something else than was asked, and what to do if that is not the usual."""

    flag: str
    asked: Any
    told: Any
    advice: str = ""


def contradictions(
    spec: ServerSpec, server_info: Info | None, max_concurrency: int
) -> tuple[list[Contradiction], list[str]]:
    """Flags that the server contradicts, and flags of which it tells nothing; both empty for the server asked for.

    `max_concurrency` is the highest number of requests that will be in flight at once.
    """
    wrong, _, quiet = _held(spec, server_info or {}, max_concurrency)
    return wrong, quiet


def remarks(spec: ServerSpec, server_info: Info | None) -> list[str]:
    """What a server of ours has decided by itself, in words: no contradiction, since each variant gets the same."""
    _, noted, _ = _held(spec, server_info or {}, 1)
    return [f"the server set {one.flag} = {one.told} by itself; the variant did not ask for it" for one in noted]


def contradictions_of_all(
    spec: ServerSpec, infos: Mapping[str, Info | None], max_concurrency: int
) -> tuple[list[Contradiction], list[str]]:
    """The same for several servers by their addresses, which take turns: each is named with what only it tells.

    `max_concurrency` is that of all of them together.
    """
    share = -(-max_concurrency // len(infos))
    found = {url: contradictions(spec, info, share) for url, info in infos.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    wrong = [replace(one, flag=f"{url}: {one.flag}") for url, (some, _) in found.items() for one in some]
    quiet = [set(flags) for _, flags in found.values()]
    everywhere = set.intersection(*quiet)
    partly = [f"{url}: {flag}" for url, (_, flags) in found.items() for flag in flags if flag not in everywhere]
    return wrong, [*sorted(everywhere), *partly]


def checks(spec: ServerSpec, max_concurrency: int) -> list[tuple[str, Any]]:
    """What will be read back: each flag with the value that it must have."""
    return [(claim.flag, claim.asked) for claim in claims(spec, max_concurrency, None) if claim.ours]


def decisive(flag: str) -> bool:
    """Whether a server of ours that does not tell this flag may not be believed."""
    return flag in DECISIVE


def _held(
    spec: ServerSpec, info: Info, max_concurrency: int
) -> tuple[list[Contradiction], list[Contradiction], list[str]]:
    """Contradictions, what a server of ours decided by itself, and flags that are not told."""
    wrong: list[Contradiction] = []
    noted: list[Contradiction] = []
    quiet: list[str] = []
    for claim in claims(spec, max_concurrency, info.get("version")):
        told = claim.told(info)
        if told is ABSENT:
            quiet += [] if claim.quiet else [claim.flag]
        elif not claim.holds(told):
            (wrong if claim.ours else noted).append(Contradiction(claim.flag, claim.asked, told, claim.advice))
    return wrong, noted, quiet
<<<<<<< HEAD


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
    advice = f"SGLang turns fusion on by itself: from 0.5.14 variant.args.{FUSION_OFF}=true forbids it, null is either"
    if parse_version(spec.version) < FUSION_NEW_FIRST:
        yield Claim(FUSION_OLD, asked, lambda info: _told_fusion(info, bool), lambda told: told == asked, advice)
        return
    backend = args.get(FUSION_NEW) or "auto"
    agrees = lambda told: bool(told) and _alike(backend, told) if asked else not told  # noqa: E731
    yield Claim(FUSION_NEW, backend if asked else None, lambda info: _told_fusion(info, str), agrees, advice)


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
            yield _plain(name, asked)


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
=======
>>>>>>> b77d393 (What a variant claims is a module of its own; flags that a real 0.5.23 moves into a structure are read there, and its resolved arguments are a test)
