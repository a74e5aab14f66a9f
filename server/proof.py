"""Whether a server is the one that was asked for, judged by what it tells about itself in /server_info.

Pure. What a server does not tell is "not proven", which is another thing than a contradiction.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from server.spec import VERSION_DEFAULT, ServerSpec, algorithm, parse_version, resolved_args, spec_mode

SPECULATION_FLAGS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
FUSION_OLD = "enable_flashinfer_allreduce_fusion"
FUSION_NEW = "flashinfer_allreduce_fusion_backend"
FUSION_OFF = "enforce_disable_flashinfer_allreduce_fusion"

# Modes whose overlap follows from the flags and the version; of the others SGLang decides by itself.
OVERLAP_KNOWN = ("none", "tree_sync", "tree_overlap", "chain_sync", "chain_overlap")


@dataclass(frozen=True)
class Contradiction:
    """One flag for which the server tells something else than was asked."""

    flag: str
    asked: Any
    told: Any


@dataclass(frozen=True)
class _Unproven:
    flag: str


Finding = Contradiction | _Unproven


def contradictions(
    spec: ServerSpec, server_info: Mapping[str, Any] | None, max_concurrency: int
) -> tuple[list[Contradiction], list[str]]:
    """Flags that the server contradicts, and flags of which it tells nothing; both empty for the server asked for.

    `max_concurrency` is the highest number of requests that will be in flight at once.
    """
    info = server_info or {}
    findings = [*_running_cap(info, max_concurrency)]
    for rule in RULES:
        findings.extend(rule(spec, info))
    wrong = [finding for finding in findings if isinstance(finding, Contradiction)]
    return wrong, [finding.flag for finding in findings if isinstance(finding, _Unproven)]


def contradictions_of_all(
    spec: ServerSpec, infos: Mapping[str, Mapping[str, Any] | None], max_concurrency: int
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


def _compare(flag: str, asked: Any, info: Mapping[str, Any]) -> Iterator[Finding]:
    if flag not in info:
        yield _Unproven(flag)
    elif info[flag] != asked:
        yield Contradiction(flag, asked, info[flag])


def _version(spec: ServerSpec, info: Mapping[str, Any]) -> Iterator[Finding]:
    asked = spec.version or (VERSION_DEFAULT if spec.engine == "sim" else None)
    if asked is None:
        return
    if not info.get("version"):
        yield _Unproven("version")
    elif parse_version(str(info["version"])) != parse_version(asked):
        yield Contradiction("version", asked, info["version"])


def _speculation(spec: ServerSpec, info: Mapping[str, Any]) -> Iterator[Finding]:
    args = resolved_args(spec)
    asked = algorithm(args)
    if "speculative_algorithm" not in info:
        yield _Unproven("speculative_algorithm")
    elif algorithm(info) != asked:
        yield Contradiction("speculative_algorithm", asked, info["speculative_algorithm"])
    # Without speculation the three numbers mean nothing, whatever a server shows for them.
    for flag in SPECULATION_FLAGS if asked else ():
        if args.get(flag) is not None:
            yield from _compare(flag, args[flag], info)


def _overlap(spec: ServerSpec, info: Mapping[str, Any]) -> Iterator[Finding]:
    args = resolved_args(spec)
    mode = spec_mode(args, spec.env, info.get("version") or spec.version)
    if mode not in OVERLAP_KNOWN:
        return
    disabled = bool(args.get("disable_overlap_schedule")) if mode == "none" else mode.endswith("_sync")
    yield from _compare("disable_overlap_schedule", disabled, info)


def _running_cap(info: Mapping[str, Any], max_concurrency: int) -> Iterator[Finding]:
    caps = [cap for cap in (info.get("max_running_requests"), _effective_cap(info)) if cap is not None]
    if not caps:
        yield _Unproven("max_running_requests")
    elif min(caps) < max_concurrency:
        yield Contradiction("max_running_requests", f"at least {max_concurrency}", min(caps))


def _effective_cap(info: Mapping[str, Any]) -> int | None:
    """The running-request cap that is in force, summed over data-parallel ranks."""
    states = [state for state in info.get("internal_states") or [] if isinstance(state, Mapping)]
    caps = [state.get("effective_max_running_requests_per_dp") for state in states]
    told = [int(cap) for cap in caps if cap is not None]
    return sum(told) if told and len(told) == len(caps) else None


def _attention(spec: ServerSpec, info: Mapping[str, Any]) -> Iterator[Finding]:
    # What all our servers share is asked of servers that we start; of another one only what the variant itself says.
    args = spec.args if spec.engine == "external" else resolved_args(spec)
    split = [flag for flag in ("prefill_attention_backend", "decode_attention_backend") if args.get(flag)]
    # With both halves named the common one is not used, and SGLang may show anything there.
    whole = [] if len(split) == 2 else ["attention_backend"]
    for flag in (*whole, *split):
        if args.get(flag):
            yield from _compare(flag, args[flag], info)


def _fusion(spec: ServerSpec, info: Mapping[str, Any]) -> Iterator[Finding]:
    asked = _asked_fusion(resolved_args(spec))
    if asked is None:
        return
    if FUSION_OLD not in info and FUSION_NEW not in info:
        yield _Unproven(FUSION_OLD)
        return
    # From 0.5.14 the old field reads false even where fusion is on.
    told = bool(info.get(FUSION_OLD)) or info.get(FUSION_NEW) is not None
    if told != asked:
        yield Contradiction(FUSION_OLD, asked, told)


def _asked_fusion(args: Mapping[str, Any]) -> bool | None:
    """Whether fusion was asked for; unset is no, because SGLang turns it on by itself; null is "either"."""
    if args.get(FUSION_OLD) or args.get(FUSION_NEW):
        return True
    dont_care = FUSION_OLD in args and args[FUSION_OLD] is None and not args.get(FUSION_OFF)
    return None if dont_care else False


RULES: tuple[Callable[[ServerSpec, Mapping[str, Any]], Iterator[Finding]], ...] = (
    _version,
    _speculation,
    _overlap,
    _attention,
    _fusion,
)
