"""server.proof and server.effects: is the server the one asked for, by what it tells and by what its log says.

The answers of /server_info are the simulator's, made from the very argv that a launch would use.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from specs import BASELINE, CHAIN, TOPK1_V2, TOPK4_V1, TREE, V2

from server.effects import EFFECTS, remarks, silenced, telling, watched
from server.proof import Contradiction, checks, contradictions, contradictions_of_all
from server.proof import remarks as decided
from server.sim import faults, flags, profile, settings
from server.sim.front import Front
from server.spec import ServerSpec, SpecError, resolved_args
from server.variant import argv, check

ROOT = Path(__file__).parents[2]
VARIANTS = sorted(path.stem for path in (ROOT / "conf/variant").glob("*.yaml"))


@cache
def hardware() -> profile.Profile:
    return profile.parse(Path(profile.SHIPPED).read_text(encoding="utf-8"))


def of_conf(name: str, version: str) -> ServerSpec:
    """A shipped variant on this version."""
    content = yaml.safe_load((ROOT / f"conf/variant/{name}.yaml").read_text())
    args = content["args"]
    if file := args.get("speculative_adaptive_config"):
        args["speculative_adaptive_config"] = str(ROOT / "conf/variant" / file)
    return ServerSpec("sim", name, args, content["env"], tp=8, version=version, since=content.get("since"))


def told_by(spec: ServerSpec, seed: int = 7) -> dict[str, Any]:
    """/server_info of a simulator started with the argv and environment of `spec`."""
    words = argv(spec, host="127.0.0.1", port=30000, seed=seed)[3:]
    given = flags.build_parser(flags.version_of(words)).parse_args(words)
    resolved = settings.resolve(given, spec.env, hardware(), faults.parse([]))
    return Front(resolved).server_info()


def speed_flags(spec: ServerSpec) -> dict[str, Any]:
    """Which flags decide how fast it is: two names may be one server, and fusion forbidden is fusion not on."""
    aside = ("model_path", "speculative_draft_model_path", "enforce_disable_flashinfer_allreduce_fusion")
    overlaps = {"overlaps": spec.env.get("SGLANG_ENABLE_SPEC_V2") == "1"} if spec.version == "0.5.9" else {}
    return {**{name: value for name, value in resolved_args(spec).items() if name not in aside}, **overlaps}


@pytest.mark.parametrize("version", flags.VERSIONS)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_shipped_variant_proves_itself_and_no_other(name: str, version: str) -> None:
    """A server started by its own argv contradicts nothing and leaves nothing open; one of another variant does."""
    spec = of_conf(name, version)
    try:
        check(spec)
        info = told_by(spec)
    except (SpecError, SystemExit, OSError, settings.SettingsError) as refusal:
        pytest.skip(f"not on {version}: {refusal}")
    assert contradictions(spec, info, 250) == ([], [])
    assert decided(spec, info) == []
    for other in (BASELINE, TOPK4_V1, TOPK1_V2):
        stranger = replace(other, engine="sim", version=version, model_name=spec.model_name)
        if speed_flags(stranger) != speed_flags(spec):
            assert contradictions(replace(spec, engine="external"), told_by(stranger), 250)[0], other.variant


def info_of(spec: ServerSpec, **told: Any) -> dict[str, Any]:
    """What a server tells that runs as asked, with some of it `told` otherwise."""
    speculates = bool(spec.args)
    asked = {name: spec.args.get(name) for name in TREE}
    return {
        **asked,
        "version": "0.5.9",
        "disable_overlap_schedule": speculates and not spec.variant.endswith("v2"),
        "max_running_requests": 256,
        "attention_backend": "flashinfer",
        "enable_flashinfer_allreduce_fusion": False,
        "served_model_name": "kimi_k25",
        "tp_size": 8,
        "page_size": 1,
        "disable_radix_cache": True,
        "speculative_draft_model_path": "/d" if speculates else None,
        "internal_states": [{"effective_max_running_requests_per_dp": 256}],
        **told,
    }


@pytest.mark.parametrize("spec", [BASELINE, TOPK4_V1, TOPK1_V2], ids=lambda spec: spec.variant)
def test_the_server_asked_for_is_proven(spec: ServerSpec) -> None:
    """A server that tells what was asked contradicts nothing and leaves nothing open."""
    assert contradictions(spec, info_of(spec), 250) == ([], [])


@pytest.mark.parametrize(
    ("spec", "told", "expected"),
    [
        (BASELINE, {"speculative_algorithm": "EAGLE3"}, Contradiction("speculative_algorithm", None, "EAGLE3")),
        (TOPK1_V2, {"speculative_algorithm": None}, Contradiction("speculative_algorithm", "EAGLE3", None)),
        (TOPK1_V2, {"speculative_eagle_topk": 4}, Contradiction("speculative_eagle_topk", 1, 4)),
        (TOPK1_V2, {"speculative_num_steps": 5}, Contradiction("speculative_num_steps", 3, 5)),
        (TOPK4_V1, {"speculative_num_draft_tokens": 8}, Contradiction("speculative_num_draft_tokens", 16, 8)),
        (TOPK1_V2, {"disable_overlap_schedule": True}, Contradiction("disable_overlap_schedule", False, True)),
        (TOPK4_V1, {"disable_overlap_schedule": False}, Contradiction("disable_overlap_schedule", True, False)),
        (TOPK4_V1, {"max_running_requests": 48}, Contradiction("max_running_requests", "at least 100", 48)),
        (
            BASELINE,
            {"internal_states": [{"effective_max_running_requests_per_dp": n} for n in (32, 32)]},
            Contradiction("max_running_requests", "at least 100", 64),
        ),
        (BASELINE, {"attention_backend": "fa3"}, Contradiction("attention_backend", "flashinfer", "fa3")),
        (
            BASELINE,
            {"enable_flashinfer_allreduce_fusion": True},
            Contradiction("enable_flashinfer_allreduce_fusion", False, True),
        ),
        (
            BASELINE,
            {"flashinfer_allreduce_fusion_backend": "trtllm"},
            Contradiction("enable_flashinfer_allreduce_fusion", False, True),
        ),
        (
            replace(BASELINE, version="0.5.23"),
            {"version": "0.5.23", "flashinfer_allreduce_fusion_backend": "auto"},
            Contradiction("flashinfer_allreduce_fusion_backend", None, "auto"),
        ),
        (TOPK4_V1, {"speculative_draft_model_path": "/m"}, Contradiction("speculative_draft_model_path", "/d", "/m")),
        (BASELINE, {"tp_size": 4}, Contradiction("tp_size", 8, 4)),
        (BASELINE, {"page_size": 64}, Contradiction("page_size", 1, 64)),
        (BASELINE, {"disable_radix_cache": False}, Contradiction("disable_radix_cache", True, False)),
        (BASELINE, {"served_model_name": "other"}, Contradiction("served_model_name", "kimi_k25", "other")),
        (
            TOPK1_V2,
            {"internal_states": [{"effective_max_running_requests_per_dp": 256, "speculative_num_steps": 0}]},
            Contradiction("speculative_num_steps in force", 3, [0]),
        ),
        (replace(BASELINE, version="0.5.23"), {}, Contradiction("version", "0.5.23", "0.5.9")),
        (replace(BASELINE, engine="sim"), {"version": "0.5.23"}, Contradiction("version", "0.5.9", "0.5.23")),
    ],
)
def test_contradictions(spec: ServerSpec, told: dict[str, Any], expected: Contradiction) -> None:
    """Each flag that decides the comparison is found out when the server runs otherwise."""
    (wrong,), quiet = contradictions(spec, info_of(spec, **told), 100)
    assert (replace(wrong, advice=""), quiet) == (expected, [])


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        # NEXTN is SGLang's other name of EAGLE.
        (
            replace(BASELINE, variant="mtp_v2", args={"speculative_algorithm": "NEXTN"}, env=V2),
            {"speculative_algorithm": "EAGLE"},
        ),
        # Fusion that SGLang may turn on by itself is accepted where the variant says null.
        (
            replace(BASELINE, args={"enable_flashinfer_allreduce_fusion": None}),
            {"enable_flashinfer_allreduce_fusion": True, "disable_overlap_schedule": False},
        ),
        # With both halves named, the common backend is not used.
        (
            replace(BASELINE, args={"prefill_attention_backend": "a", "decode_attention_backend": "b"}),
            {
                "attention_backend": "torch_native",
                "prefill_attention_backend": "a",
                "decode_attention_backend": "b",
                "disable_overlap_schedule": False,
            },
        ),
        # What all our own servers share is not asked of somebody else's.
        (replace(BASELINE, engine="external"), {"attention_backend": "fa3"}),
    ],
)
def test_no_false_alarm(spec: ServerSpec, told: dict[str, Any]) -> None:
    """What SGLang shows under another name, or was not asked, is no contradiction."""
    assert contradictions(spec, info_of(spec, **told), 100) == ([], [])


def test_what_is_not_told_is_not_proven() -> None:
    """A server that tells nothing contradicts nothing, and each open flag is named."""
    open_flags = [
        "max_running_requests",
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "disable_overlap_schedule",
        "attention_backend",
        "enable_flashinfer_allreduce_fusion",
        "tp_size",
        "served_model_name",
        "page_size",
        "disable_radix_cache",
        "speculative_draft_model_path",
    ]
    assert contradictions(TOPK4_V1, None, 100) == ([], open_flags)


def test_each_of_several_servers_is_held_against_the_variant() -> None:
    """A contradiction names its server; what none tells is said once; the requests in flight are shared out."""
    told, silent = info_of(BASELINE), info_of(BASELINE)
    silent.pop("attention_backend")
    assert contradictions_of_all(BASELINE, {"a": told}, 100) == contradictions(BASELINE, told, 100)
    capped = {**told, "max_running_requests": 60}
    assert contradictions_of_all(BASELINE, {"a": capped, "b": told}, 120) == ([], [])
    wrong, quiet = contradictions_of_all(BASELINE, {"a": capped, "b": silent}, 122)
    assert [(one.flag, one.asked, one.told) for one in wrong] == [("a: max_running_requests", "at least 61", 60)]
    assert "max_running_requests to 61 or more" in wrong[0].advice
    assert quiet == ["b: attention_backend"]
    _, quiet = contradictions_of_all(BASELINE, {"a": silent, "b": None}, 1)
    assert "attention_backend" in quiet
    assert "b: speculative_algorithm" in quiet


SWITCHES = {
    "enable_torch_symm_mem": True,
    "disable_custom_all_reduce": True,
    "enable_nccl_nvls": True,
    "enable_mscclpp": True,
    "enable_hierarchical_cache": True,
    "speculative_adaptive": True,
    "moe_a2a_backend": "deepep",
}


@pytest.mark.parametrize("flag", SWITCHES)
def test_a_switch_that_had_no_effect_is_a_contradiction(flag: str) -> None:
    """What makes a variant is read back; a version that does not know the flag has not proven it."""
    spec = replace(BASELINE, args={flag: SWITCHES[flag]})
    off = "none" if flag == "moe_a2a_backend" else False
    told = {**info_of(BASELINE), flag: SWITCHES[flag], "ep_size": 8}
    assert contradictions(spec, told, 1) == ([], [])
    assert contradictions(spec, {**told, flag: off}, 1) == ([Contradiction(flag, SWITCHES[flag], off)], [])
    told.pop(flag)
    assert contradictions(spec, told, 1) == ([], [flag])


@pytest.mark.parametrize("flag", SWITCHES)
def test_a_switch_that_nobody_asked_for(flag: str) -> None:
    """A server of ours can only have set it by itself, for every variant: a remark. Somebody else's is another one."""
    told = info_of(BASELINE, **{flag: SWITCHES[flag]})
    assert contradictions(BASELINE, told, 1) == ([], [])
    assert flag in decided(BASELINE, told)[0]
    off = "none" if flag == "moe_a2a_backend" else False
    outside = replace(BASELINE, engine="external")
    assert contradictions(outside, told, 1)[0] == [Contradiction(flag, off, SWITCHES[flag])]


# What a real 0.5.23 resolved on a CPU, as its log and /server_info gave it, cut to what matters here.
CPU_ARGS = {
    "device": "cpu",
    "dtype": "float32",
    "sampling_backend": "pytorch",
    "disable_overlap_schedule": True,
    "attention_backend": None,
    "prefill_attention_backend": "intel_amx",
    "decode_attention_backend": "intel_amx",
    "cuda_graph_max_bs": 32,
    "max_total_tokens": 32768,
    "mem_fraction_static": 0.3,
}
CPU_TOLD = {
    "version": "0.5.23",
    "served_model_name": "tiny",
    "device": "cpu",
    "dtype": "float32",
    "sampling_backend": "pytorch",
    "mem_fraction_static": 0.3,
    "max_running_requests": 256,
    "max_total_tokens": 32768,
    "page_size": 1,
    "disable_radix_cache": True,
    "disable_overlap_schedule": True,
    "tp_size": 1,
    "attention_backend": "torch_native",
    "decode_attention_backend": "intel_amx",
    "prefill_attention_backend": "intel_amx",
    "cuda_graph_config": {"decode": {"backend": "full", "max_bs": 32}, "prefill": {"backend": "disabled"}},
    "cuda_graph_max_bs_decode": None,
    "disable_custom_all_reduce": False,
    "enable_torch_symm_mem": False,
    "enable_flashinfer_allreduce_fusion": False,
    "flashinfer_allreduce_fusion_backend": None,
    "speculative_algorithm": "EAGLE",
    "speculative_draft_model_path": "/m/eagle",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "speculative_adaptive": False,
    "moe_a2a_backend": "none",
    "internal_states": [{"effective_max_running_requests_per_dp": 256, "speculative_num_steps": 3}],
}


def test_a_real_server_proves_itself() -> None:
    """What SGLang itself made of our flags contradicts nothing; moved into a structure, a flag is read there."""
    chain = {**CHAIN, "speculative_algorithm": "EAGLE"}
    spec = ServerSpec(
        "sglang", "v", {**CPU_ARGS, **chain}, model_name="tiny", draft_path="/m/eagle", version="0.5.23", tp=1
    )
    assert contradictions(spec, CPU_TOLD, 8) == ([], [])
    larger = replace(spec, args={**spec.args, "cuda_graph_max_bs": 64})
    assert contradictions(larger, CPU_TOLD, 8)[0] == [Contradiction("cuda_graph_max_bs_decode", 64, 32)]
    assert contradictions(spec, {**CPU_TOLD, "cuda_graph_config": None}, 8) == ([], ["cuda_graph_max_bs_decode"])


def test_none_is_none_however_it_is_spelled() -> None:
    """No all-to-all for experts reads "none" or null by version."""
    for spelled in ("none", None):
        assert decided(BASELINE, info_of(BASELINE, moe_a2a_backend=spelled)) == []


def test_experts_are_spread_over_all_devices() -> None:
    """deepep forces ep_size to the number of devices, which is what must be told."""
    spec = replace(BASELINE, args={"moe_a2a_backend": "deepep", "deepep_mode": "auto"})
    told = info_of(BASELINE, moe_a2a_backend="deepep", deepep_mode="auto", ep_size=8)
    assert contradictions(spec, told, 1) == ([], [])
    assert contradictions(spec, {**told, "ep_size": 1}, 1)[0] == [Contradiction("ep_size", 8, 1)]


def test_checks_name_what_will_be_read_back() -> None:
    """The list of a dry run: each flag with its value, from the same table as the check itself."""
    listed = dict(checks(replace(TOPK1_V2, version="0.5.23"), 100))
    assert listed["max_running_requests"] == "at least 100"
    assert (listed["version"], listed["speculative_algorithm"], listed["speculative_eagle_topk"]) == (
        "0.5.23",
        "EAGLE3",
        1,
    )
    assert listed["flashinfer_allreduce_fusion_backend"] is None
    assert listed["disable_overlap_schedule"] is False
    wrong, quiet = contradictions(replace(TOPK1_V2, version="0.5.23"), {}, 100)
    assert (wrong, set(quiet) - set(listed)) == ([], set())


PREFIX = "[2026-02-20 10:00:00 TP0] "
SYMMETRIC = replace(BASELINE, args={"enable_torch_symm_mem": True, "disable_custom_all_reduce": True})
FUSED = replace(BASELINE, args={"enable_flashinfer_allreduce_fusion": True})
FORBIDDEN = replace(BASELINE, version="0.5.23", args={"enforce_disable_flashinfer_allreduce_fusion": True})
ADAPTIVE = replace(TOPK1_V2, version="0.5.23", args={**CHAIN, "speculative_adaptive": True})
CUSTOM = "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs."
CUSTOM_NOW = CUSTOM.replace("Custom allreduce", "CustomAllReduceV2")  # from 0.5.10 on it is the class's name
NO_CLIQUE = (
    "FlashInfer AllReduce fusion disabled: the 8 ranks of this group are not confirmed to share one NVLink clique"
)
SPEC_V1 = "Spec v1 is used for eagle/eagle3/standalone speculative decoding because SGLANG_ENABLE_SPEC_V2=False."
AUTO = "Auto-enabling FlashInfer AllReduce Fusion on SM90/SM10X for GlmMoeDsaForCausalLM"
V2_ON = "Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is turned on."
SILENCED = [
    (
        SYMMETRIC,
        "TorchSymmMemCommunicator: Device capability 12 not supported, communicator is not available.",
        "enable_torch_symm_mem",
    ),
    (SYMMETRIC, "TorchSymmMemCommunicator: multicast operations are not supported.", "enable_torch_symm_mem"),
    (
        replace(BASELINE, args={"enable_mscclpp": True}),
        "PyMscclpp is disabled due to an unsupported world size: 4. Supported world sizes: [8, 16].",
        "enable_mscclpp",
    ),
    (replace(BASELINE, args={"disable_custom_all_reduce": False}), CUSTOM, "disable_custom_all_reduce"),
    (replace(BASELINE, args={"disable_custom_all_reduce": False}), CUSTOM_NOW, "disable_custom_all_reduce"),
    (replace(FUSED, version="0.5.23"), NO_CLIQUE, "flashinfer_allreduce_fusion_backend"),
    (
        replace(FUSED, version="0.5.12"),
        "FlashInfer allreduce fusion disabled globally because workspace initialization failed on at least one rank.",
        "enable_flashinfer_allreduce_fusion",
    ),
    (
        replace(BASELINE, version="0.5.23", args={"enable_mixed_chunk": True}),
        "The mixed chunked prefill are disabled because of using ngram speculative decoding.",
        "enable_mixed_chunk",
    ),
    (
        replace(BASELINE, args={"enable_hierarchical_cache": True, "disable_radix_cache": False}),
        "Hierarchical cache is disabled because of using diffusion LLM inference",
        "enable_hierarchical_cache",
    ),
    (TOPK1_V2, SPEC_V1, "disable_overlap_schedule"),
    (TOPK4_V1, V2_ON, "disable_overlap_schedule"),
    (ADAPTIVE, "speculative_adaptive disabled: topk=4. Falling back to static.", "speculative_adaptive"),
    (BASELINE, AUTO, "enable_flashinfer_allreduce_fusion"),
    (replace(BASELINE, version="0.5.23"), AUTO, "flashinfer_allreduce_fusion_backend"),
    (
        FUSED,
        "flashinfer.comm is not available, falling back to standard implementation",
        "enable_flashinfer_allreduce_fusion",
    ),
]


@pytest.mark.parametrize(("spec", "line", "flag"), SILENCED, ids=[line[:30] for _, line, _ in SILENCED])
def test_a_line_that_silences_a_flag(spec: ServerSpec, line: str, flag: str) -> None:
    """The flag is named with the log's own words and what to do, once, however many ranks say it."""
    log = [f"{PREFIX}Load weight begin.", PREFIX + line, PREFIX.replace("TP0", "TP1") + line, "x"]
    (one,) = silenced(spec, telling(log))
    assert one.flag == flag
    assert one.told == f'"{line}" (server.log)'
    assert one.advice
    assert one.asked is not None, "what was asked for is said too"
    assert watched(spec)


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (BASELINE, CUSTOM),
        (BASELINE, CUSTOM_NOW),
        (BASELINE, NO_CLIQUE),
        (SYMMETRIC, CUSTOM),
        (TOPK4_V1, SPEC_V1),
        (TOPK1_V2, V2_ON),
        (BASELINE, SPEC_V1),
        (BASELINE, "TorchSymmMemCommunicator: World size 2 not supported, communicator is not available."),
        (FUSED, AUTO),
        (FORBIDDEN, AUTO),
        (FORBIDDEN, "FlashInfer allreduce fusion is forcibly disabled via --enforce-disable-..."),
        (replace(BASELINE, args={"enable_flashinfer_allreduce_fusion": None}), AUTO),
        (replace(TOPK1_V2, args={**CHAIN, "disable_overlap_schedule": True}, version="0.5.23"), SPEC_V1),
    ],
)
def test_a_line_that_says_what_was_asked(spec: ServerSpec, line: str) -> None:
    """The same words are no contradiction where they tell of the variant itself, or of the machine."""
    assert silenced(spec, telling([PREFIX + line])) == []


@pytest.mark.parametrize("line", [CUSTOM, CUSTOM_NOW, CUSTOM.replace("Custom allreduce", "CustomAllreduce")])
def test_what_holds_for_a_machine_is_a_remark(line: str) -> None:
    """No custom all-reduce on this machine speaks against no variant, and against a comparison with one without it."""
    (told,) = remarks(telling([PREFIX + line, PREFIX + line]))
    assert "the same server" in told
    assert "PCIe-only" in told


def test_only_lines_of_a_known_kind_are_kept() -> None:
    """A log of a day must not be carried about, nor one long line of it."""
    noise = [f"{PREFIX}Decode batch, #running-req: {n}, cuda graph: True" for n in range(1000)]
    kept = telling([*noise, PREFIX + CUSTOM + "x" * 10_000])
    assert len(kept) == 1
    assert len(kept[0]) < 300
    assert len({effect.line for effect in EFFECTS}) == len(EFFECTS)
