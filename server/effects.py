"""What a server's log says about flags that had no effect: lines by which SGLang drops, or adds, what was asked.

Pure. It must not know of files or processes: the lines are handed in. Read in the released sources of 0.5.9 to 0.5.23.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from server.claims import FUSION_ADVICE, OVERLAP, asked_fusion
from server.flags import FUSION_NEW, FUSION_NEW_FIRST, FUSION_OFF, FUSION_OLD
from server.proof import Contradiction
from server.spec import ServerSpec, parse_version, resolved_args
from server.variant import mode_of

LINE_CHARACTERS_MAX = 240
# In front of every line of SGLang's: the time and the rank.
PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]\s*(?:(?:INFO|WARNING|ERROR)\S*\s+(?:\S+:\d+:\s+)?)?")


@dataclass(frozen=True)
class Effect:
    """A line, the flag that it speaks of, in which servers it contradicts the variant, and what to do then.

    `against` is asked with the server's flags and its speculation mode. `remark` is worth telling where it does not.
    """

    line: str
    flag: str
    against: Callable[[Mapping[str, Any], str], bool]
    advice: str
    remark: str = ""


def _asks(flag: str) -> Callable[[Mapping[str, Any], str], bool]:
    return lambda args, _mode: bool(args.get(flag))


def _no_fusion(args: Mapping[str, Any], _mode: str) -> bool:
    # With the off switch SGLang still says that it turns fusion on, and then turns it off.
    return asked_fusion(args) is False and not args.get(FUSION_OFF)


EFFECTS: tuple[Effect, ...] = (
    Effect(
        r"Custom ?[Aa]ll[Rr]educe(V2)? is disabled|Setup Custom allreduce failed",  # by its class's name from 0.5.10
        "disable_custom_all_reduce",
        lambda args, _mode: args.get("disable_custom_all_reduce") is False,
        "this machine has no custom all-reduce, so the variant cannot have it; see the line's reason",
        "custom all-reduce is off on this machine whatever the flags say: a variant without it is the same server",
    ),
    Effect(
        r"TorchSymmMemCommunicator: .*(not supported|not available)|multicast operations are not supported",
        "enable_torch_symm_mem",
        _asks("enable_torch_symm_mem"),
        "this machine has no torch symmetric memory for so many devices; leave the variant out here",
    ),
    Effect(
        r"PyMscclpp(Communicator)? is disabled",
        "enable_mscclpp",
        _asks("enable_mscclpp"),
        "MSCCL++ does not serve so many devices, or is not installed; leave the variant out here",
    ),
    Effect(
        r"NVLS multicast support is not available|NVLS.* (not supported|disabled)",
        "enable_nccl_nvls",
        _asks("enable_nccl_nvls"),
        "NVLS needs an NVSwitch; leave the variant out here",
    ),
    Effect(
        r"flashinfer\.comm\b.*falling back|flashinfer_comm is not available"
        r"|FlashInfer (comm )?not available|FlashInfer [Aa]ll[Rr]educe fusion (is forcibly )?disabled"
        r"|Disable --(enable-)?flashinfer-allreduce-fusion",
        FUSION_NEW,
        lambda args, _mode: asked_fusion(args) is True,
        "all-reduce fusion was dropped: install the flashinfer that this SGLang needs, or take the flag away that "
        "forbids it",
    ),
    Effect(
        r"Auto-enabling FlashInfer AllReduce Fusion",
        FUSION_NEW,
        _no_fusion,
        FUSION_ADVICE,
    ),
    Effect(
        r"Spec v1 is used for|Overlap scheduler is disabled|Non-overlap \(synchronous\) spec v2 is used",
        "disable_overlap_schedule",
        lambda _args, mode: mode.endswith("_overlap"),
        "speculation runs without overlap, which is another variant; see the line's reason",
    ),
    Effect(
        r"Spec v2 is enabled|Beta spec is enabled",
        "disable_overlap_schedule",
        lambda _args, mode: mode.endswith("_sync"),
        "speculation runs with overlap, which is another variant; see SGLANG_ENABLE_SPEC_V2 and "
        "disable_overlap_schedule",
    ),
    Effect(
        r"speculative_adaptive disabled",
        "speculative_adaptive",
        _asks("speculative_adaptive"),
        "SGLang fell back to a fixed number of steps; mend what the line names",
    ),
    Effect(
        r"[Mm]ixed chunk(ed prefill)? .*disabled",
        "enable_mixed_chunk",
        _asks("enable_mixed_chunk"),
        "speculation excludes mixed chunks; take the flag out",
    ),
    Effect(
        r"Hierarchical cache is disabled",
        "enable_hierarchical_cache",
        _asks("enable_hierarchical_cache"),
        "the cache has no second tier; mend what the line names",
    ),
    Effect(
        r"[Cc]uda graph is disabled because|CUDA graph is disabled because",
        "disable_cuda_graph",
        lambda args, _mode: args.get("disable_cuda_graph") is False,
        "decoding runs without CUDA graphs; mend what the line names",
        "decoding runs without CUDA graphs, which variants with them should not be compared to",
    ),
)

ANY = re.compile("|".join(f"(?:{effect.line})" for effect in EFFECTS))


def telling(lines: Iterable[str]) -> list[str]:
    """The lines that speak of a flag's effect, each once, without time and rank."""
    told = (PREFIX.sub("", line).strip()[:LINE_CHARACTERS_MAX] for line in lines if ANY.search(line))
    return list(dict.fromkeys(told))


def silenced(spec: ServerSpec, lines: Iterable[str], version: str | None = None) -> list[Contradiction]:
    """What the log says against the variant, for a server of this version: one for each flag, with its first line."""
    if spec.engine == "vllm":
        return []  # its lines are others
    version = version or spec.version or spec.since
    args, mode = resolved_args(spec), mode_of(spec, version)
    found: dict[str, Contradiction] = {}
    for effect, line in _spoken(lines):
        if effect.against(args, mode):
            flag = _flag(effect, version)
            asked = mode.endswith("_sync") if flag == OVERLAP else args.get(flag) or False
            found.setdefault(flag, Contradiction(flag, asked, f'"{line}" (server.log)', effect.advice))
    return list(found.values())


def remarks(lines: Iterable[str]) -> list[str]:
    """What the log says that is no contradiction, and yet to be known with every result."""
    return list(dict.fromkeys(f'{effect.remark} ("{line}")' for effect, line in _spoken(lines) if effect.remark))


def watched(spec: ServerSpec) -> list[str]:
    """The flags for which the log will be held against this variant."""
    if spec.engine == "vllm":
        return []
    args, mode = resolved_args(spec), mode_of(spec)
    asked = spec.version or spec.since
    return list(dict.fromkeys(_flag(effect, asked) for effect in EFFECTS if effect.against(args, mode)))


def _flag(effect: Effect, version: str | None) -> str:
    """The flag as this version calls it."""
    old = effect.flag == FUSION_NEW and parse_version(version) < FUSION_NEW_FIRST
    return FUSION_OLD if old else effect.flag


def _spoken(lines: Iterable[str]) -> list[tuple[Effect, str]]:
    return [(effect, line) for line in lines for effect in EFFECTS if re.search(effect.line, line)]
