"""SGLang's flags by version: what each is called, and which do not exist everywhere.

Pure. Read in the released argument definitions of 0.5.9 to 0.5.23; tests/real/test_released_flags.py reads them again.
A flag that stands in no table here is called the same in all of these versions.
"""

from collections.abc import Mapping
from typing import Any

Version = tuple[int, int, int]

OLDEST: Version = (0, 5, 9)
NEWEST: Version = (0, 5, 23)  # later ones are taken to be like it, and said to be

# old name -> (new name, first version that has it). The old ones of a graph are refused as ambiguous from 0.5.20 on.
RENAMED: dict[str, tuple[str, Version]] = {
    "cuda_graph_max_bs": ("cuda_graph_max_bs_decode", (0, 5, 14)),
    "cuda_graph_bs": ("cuda_graph_bs_decode", (0, 5, 14)),
    "stream_output": ("incremental_streaming_output", (0, 5, 10)),
}
# Spellings that mean a flag which every version has, and new names, by the name that is used in here.
OLD_NAMES = {
    "enable_hicache": "enable_hierarchical_cache",
    "speculative_draft_model": "speculative_draft_model_path",
    "expert_parallel_size": "ep_size",
    "ep": "ep_size",
    "data_parallel_size": "dp_size",
    "pipeline_parallel_size": "pp_size",
    **{new: old for old, (new, _) in RENAMED.items()},
}

FUSION_OLD = "enable_flashinfer_allreduce_fusion"
FUSION_NEW = "flashinfer_allreduce_fusion_backend"
FUSION_OFF = "enforce_disable_flashinfer_allreduce_fusion"
FUSION_NEW_FIRST: Version = (0, 5, 14)  # from here the old field reads false even where fusion is on

# flag -> (first version that has it as it is meant here, how it is below)
FIRST: dict[str, tuple[Version, str]] = {
    FUSION_OFF: (
        (0, 5, 10),
        "SGLang turns fusion on by itself for DeepSeek, GLM, GptOss, Kimi and Qwen3 MoE models on SM90 and SM100 "
        "and has no switch against it; elsewhere the baseline has none, which the proof reads back",
    ),
    FUSION_NEW: (FUSION_NEW_FIRST, f"below, variant.args.{FUSION_OLD}=true turns fusion on and SGLang picks how"),
    "speculative_adaptive": ((0, 5, 14), "from 0.5.11 to 0.5.13 it knows no batch sizes and no step count of 0"),
    "speculative_adaptive_config": ((0, 5, 14), "from 0.5.11 to 0.5.13 the file's batch sizes would be ignored"),
}


def canonical(args: Mapping[str, Any]) -> dict[str, Any]:
    """The flags under their oldest names, so that a variant's beats the common one whatever it calls it."""
    return {OLD_NAMES.get(name, name): value for name, value in args.items()}


def twice(args: Mapping[str, Any]) -> tuple[str, str] | None:
    """Two names that mean the same flag, of which only one would count; None where each is given once."""
    first: dict[str, str] = {}
    for name in args:
        if (other := first.setdefault(OLD_NAMES.get(name, name), name)) != name:
            return other, name
    return None


def spelled(args: Mapping[str, Any], version: Version) -> dict[str, Any]:
    """Flags with canonical names under the names, and in the form, of one version."""
    return dict(_spelled(name, value, version) for name, value in args.items())


def _spelled(name: str, value: Any, version: Version) -> tuple[str, Any]:
    if name == FUSION_OLD and value and version >= FUSION_NEW_FIRST:
        return FUSION_NEW, "auto"
    if name == FUSION_NEW and value == "auto" and version < FUSION_NEW_FIRST:
        return FUSION_OLD, True
    new, first = RENAMED.get(name, (name, version))
    return (new if version >= first else name), value


def missing_in(args: Mapping[str, Any], version: Version) -> str | None:
    """Why a server of this version would refuse one of these flags, with what to do; None if it takes them all."""
    for name, value in args.items():
        first, below = FIRST.get(name, (version, ""))
        if value not in (None, False) and version < first:
            return (
                f"{name} needs SGLang {in_words(first)} ({below}); "
                "set engine.version to such a one, if it is installed, or remove the flag"
            )
    return None


def in_words(version: Version) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))
