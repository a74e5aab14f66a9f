"""What the flags and the environment resolve to, as SGLang resolves them: curve, cap, overlap, fusion.

Environment and profile are handed in; only the adaptive-speculation file is read here. It must not know of sockets,
processes or clocks.
"""

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from server.sim.faults import Faults
from server.sim.profile import Profile
from server.spec import graph_batch

MAX_RUNNING_UNDER_SPECULATION = 48  # SGLang's own silent cap, in every version.
MAX_RUNNING_DEFAULT = 4096
KV_TOKENS_DEFAULT = 1_000_000  # Plausible for the study's node; token usage is shown, never enforced.
CONTEXT_TOKENS_DEFAULT = 131_072
ON = ("1", "true", "yes", "y", "on")
DRAFT_DEFAULTS = (3, 1, 4)  # steps, topk, draft tokens of SGLang's automatic choice for this family of models
LOOKUP_BREADTH, LOOKUP_TOKENS = 10, 12  # NGRAM's own defaults
# Flags that change how fast a server is and that the study gives no curve for: it runs at the nearest known speed.
UNMEASURED = (
    "disable_custom_all_reduce",
    "enable_torch_symm_mem",
    "enable_symm_mem",
    "enable_nccl_nvls",
    "enable_mscclpp",
    "enable_hierarchical_cache",
    "disable_cuda_graph",
    "enable_torch_compile",
)
ADAPTIVE_DEFAULT = ((1, 3), (32, 1), (64, 0))  # SGLang's start values at a launch with 3 steps
WRONG_VERSION = "0.4.0"


class SettingsError(ValueError):
    """Flags that SGLang refuses at start; the message is SGLang's own line."""


@dataclass(frozen=True)
class Settings:
    """Everything a launch was resolved to. `flags` are what /server_info shows."""

    flags: Mapping[str, Any]
    version: str
    shown_version: str
    curve: str
    curve_measured: bool
    draft_steps: int
    adaptive: tuple[tuple[int, int], ...]
    draft_rests: bool  # the draft model does nothing at zero steps
    notes: tuple[str, ...]
    speed: float
    launch_factor: float
    stamp: bool
    faults: Faults
    profile: Profile

    @property
    def speculates(self) -> bool:
        """Whether a decode step may yield more than one token."""
        return self.profile.modes[self.curve].accept is not None


def resolve(given: argparse.Namespace, environ: Mapping[str, str], profile: Profile, faults: Faults) -> Settings:
    """Settings from parsed flags. Raises SettingsError where SGLang would not start."""
    flags = {name: value for name, value in vars(given).items() if not name.startswith("sim_")}
    if "other_variant" in faults:
        flags |= _another_variant(flags)
    version = given.sim_version
    notes: list[str] = []
    if flags["random_seed"] is None:
        flags["random_seed"] = Random().randrange(2**30)
    flags["served_model_name"] = flags["served_model_name"] or flags["model_path"]
    flags["attention_backend"] = flags["attention_backend"] or "flashinfer"
    spec_v2 = environ.get("SGLANG_ENABLE_SPEC_V2", "").lower() in ON
    _resolve_speculation(flags, version, spec_v2, notes)
    if version != "0.5.9":
        _resolve_fusion(flags)
    if flags["moe_a2a_backend"] == "deepep":
        flags["ep_size"] = flags["tp_size"]
    if flags["max_running_requests"] is None:
        speculates = flags["speculative_algorithm"] is not None
        flags["max_running_requests"] = MAX_RUNNING_UNDER_SPECULATION if speculates else MAX_RUNNING_DEFAULT
    curve, measured = _curve(flags, version)
    return Settings(
        flags=flags,
        version=version,
        shown_version=WRONG_VERSION if "wrong_version" in faults else version,
        curve=curve,
        curve_measured=measured,
        draft_steps=flags["speculative_num_steps"] or 0,
        adaptive=_adaptive(flags),
        draft_rests=environ.get("SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND", "").lower() in ON,
        notes=tuple(notes),
        speed=given.sim_speed,
        launch_factor=math.exp(Random(flags["random_seed"]).gauss(0.0, given.sim_noise)),
        stamp=given.sim_stamp,
        faults=faults,
        profile=profile,
    )


def _another_variant(flags: Mapping[str, Any]) -> dict[str, Any]:
    steps, topk, tokens = (None, None, None) if flags["speculative_algorithm"] else DRAFT_DEFAULTS
    return {
        "speculative_algorithm": None if flags["speculative_algorithm"] else "EAGLE3",
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }


def _resolve_speculation(flags: dict[str, Any], version: str, spec_v2: bool, notes: list[str]) -> None:
    if flags["speculative_algorithm"] is None:
        return
    if flags["speculative_algorithm"] == "NEXTN":
        flags["speculative_algorithm"] = "EAGLE"
    if flags["speculative_algorithm"] == "NGRAM":
        _resolve_lookup(flags, version, notes)
        return
    _resolve_drafts(flags, notes)
    topk = flags["speculative_eagle_topk"]
    if version != "0.5.9":
        if flags["disable_overlap_schedule"]:
            notes.append("Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative decoding.")
        return
    if spec_v2 and topk > 1:
        raise SettingsError("Spec v2 currently only supports topk = 1 for speculative decoding.")
    # 0.5.9 lets the environment decide, whatever --disable-overlap-schedule says.
    flags["disable_overlap_schedule"] = not spec_v2
    if spec_v2:
        notes.append("Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is turned on.")
    else:
        notes.append(
            "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm. "
            "You can set env SGLANG_ENABLE_SPEC_V2=True to enable the experimental overlap scheduler."
        )


def _resolve_lookup(flags: dict[str, Any], version: str, notes: list[str]) -> None:
    flags["speculative_eagle_topk"] = LOOKUP_BREADTH
    flags["speculative_num_draft_tokens"] = flags["speculative_num_draft_tokens"] or LOOKUP_TOKENS
    if version == "0.5.9":
        flags["disable_overlap_schedule"] = True
        notes.append(
            "The overlap scheduler and mixed chunked prefill are disabled because of using ngram speculative decoding."
        )
    elif flags["speculative_num_steps"] is None:
        flags["speculative_num_steps"] = flags["speculative_num_draft_tokens"] // LOOKUP_BREADTH


def _resolve_drafts(flags: dict[str, Any], notes: list[str]) -> None:
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    if flags["speculative_num_steps"] is None:
        if any(flags[name] is not None for name in names):
            raise SettingsError(
                "AssertionError: set --speculative-num-steps or leave topk and num-draft-tokens unset too."
            )
        flags |= dict(zip(names, DRAFT_DEFAULTS, strict=True))
    steps = flags["speculative_num_steps"]
    topk = flags["speculative_eagle_topk"] = flags["speculative_eagle_topk"] or 1
    wanted = flags["speculative_num_draft_tokens"]
    if topk == 1 and wanted != steps + 1:
        notes.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
        )
        wanted = steps + 1
    flags["speculative_num_draft_tokens"] = wanted or 1 + topk + topk * topk * (steps - 1)


def _resolve_fusion(flags: dict[str, Any]) -> None:
    # From 0.5.14 on the old flag is an alias that reads back as False even when fusion is on.
    if flags["enable_flashinfer_allreduce_fusion"] and flags["flashinfer_allreduce_fusion_backend"] is None:
        flags["flashinfer_allreduce_fusion_backend"] = "auto"
    flags["enable_flashinfer_allreduce_fusion"] = False
    if flags["enforce_disable_flashinfer_allreduce_fusion"]:
        flags["flashinfer_allreduce_fusion_backend"] = None


def _fusion(flags: Mapping[str, Any]) -> bool:
    return bool(flags["enable_flashinfer_allreduce_fusion"] or flags.get("flashinfer_allreduce_fusion_backend"))


def _curve(flags: Mapping[str, Any], version: str) -> tuple[str, bool]:
    """The profile's curve nearest to these flags, and whether it was measured with them."""
    as_measured = version == "0.5.9" and not _fusion(flags) and not any(flags[name] for name in UNMEASURED)
    as_measured &= flags["moe_a2a_backend"] == "none"
    if flags["speculative_algorithm"] == "NGRAM":
        return "baseline", False  # nobody has measured what looking up yields: one token a step claims nothing
    if flags["speculative_algorithm"] is None:
        return "baseline", as_measured and not flags["disable_overlap_schedule"]
    as_measured &= flags["speculative_algorithm"] == "EAGLE3" and flags["speculative_num_steps"] == 3
    if flags["speculative_eagle_topk"] >= 2:
        if _fusion(flags):
            return "tree_sync_fusion", False
        return "tree_sync", as_measured and flags["speculative_eagle_topk"] == 4 and flags["disable_overlap_schedule"]
    if flags["disable_overlap_schedule"]:
        return "chain_sync", False
    return "chain_overlap", as_measured and not flags.get("speculative_adaptive")


def _adaptive(flags: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Adaptive speculation as (lowest batch, steps) by rising batch; empty when it is off."""
    if not flags.get("speculative_adaptive") or flags["speculative_algorithm"] is None:
        return ()
    if not flags["speculative_adaptive_config"]:
        return ADAPTIVE_DEFAULT
    try:
        with open(flags["speculative_adaptive_config"], encoding="utf-8") as file:
            table = json.load(file)
        return tuple(sorted((int(low), max(entry["candidate_steps"])) for low, entry in table.items()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"--speculative-adaptive-config cannot be used: {error}") from error


def steps_at(settings: Settings, batch: int) -> int:
    """Draft steps at this batch size: the flags' number, or what adaptive speculation picks for the padded batch."""
    if not settings.adaptive:
        return settings.draft_steps
    padded = graph_batch(batch)
    return next((steps for low, steps in reversed(settings.adaptive) if low <= padded), settings.draft_steps)
