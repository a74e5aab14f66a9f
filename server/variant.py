"""The argv and the environment of one server, by engine and version.

Pure: it starts nothing and reads no clock, file or socket. It must not know of load. The spec itself, the refusals and
the proof of identity stand in modules of their own and are offered from here.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from server import vllm
from server.nearest import notes
from server.proof import Contradiction, contradictions, contradictions_of_all
from server.rules import check
from server.spec import (
    COMMON,
    DRAFT_PLACEHOLDER,
    SPEC_V2,
    SPEC_V2_GONE_FIRST,
    STARTED,
    ServerSpec,
    SpecError,
    as_words,
    parse_version,
    resolved_args,
    spec_mode,
    version_of,
)

__all__ = [
    "COMMON",
    "Contradiction",
    "ServerSpec",
    "SpecError",
    "argv",
    "check",
    "contradictions",
    "contradictions_of_all",
    "environment",
    "interpreter",
    "is_secret",
    "missing_keys",
    "mode_of",
    "notes",
    "parse_version",
    "resolved_args",
    "shown_environment",
    "spec_mode",
]

PROGRAMS = {"sglang": "sglang.launch_server", "sim": "server.sim"}

CONTAINERS = ("docker", "podman", "nerdctl")
DEVICES = "CUDA_VISIBLE_DEVICES"
# Variables that change what a variant is.
VARIANT_ONLY = (SPEC_V2, "SGLANG_SIMULATE_ACC_LEN", "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
# Inherited settings that can change a result, so they belong into the record of a launch.
SHOWN_PREFIXES = ("SGLANG_", "SGL_", "NCCL_", "CUDA_", "FLASHINFER_", "TORCH_", "VLLM_", "OMP_", "LD_PRELOAD")


def argv(spec: ServerSpec, *, host: str, port: int, seed: int, nccl_port: int | None = None) -> list[str]:
    """The command line of the server; placeholders stand where the model has no path.

    SpecError for an engine that is not ours to start.
    """
    if spec.engine == "vllm":
        return [*interpreter(spec), *vllm.words(spec, host=host, port=port, seed=seed)]
    if spec.engine not in PROGRAMS:
        raise SpecError(f"engine.kind={spec.engine} is not started by loadgen, so it has no command line")
    args = resolved_args(spec)
    model = {name: args.pop(name) for name in ("model_path", "served_model_name", "tp_size")}
    place = {"host": host, "port": port, "nccl_port": nccl_port, "random_seed": seed}
    own = _sim_args(spec) if spec.engine == "sim" else {}
    return [*interpreter(spec), "-m", PROGRAMS[spec.engine], *as_words({**model, **place, **args, **own})]


def interpreter(spec: ServerSpec) -> list[str]:
    """The words that start the Python which has the engine: an interpreter, or a container with one.

    A container is told to take over the variant's variables and the devices, which it does not inherit.
    """
    words = list(spec.python) or [sys.executable]
    if words[0].rsplit("/", 1)[-1] not in CONTAINERS or "run" not in words:
        return words
    after = words.index("run") + 1
    passed = [word for name in sorted({*_own_variables(spec), DEVICES}) for word in ("--env", name)]
    return [*words[:after], *passed, *words[after:]]


def mode_of(spec: ServerSpec, version: str | None = None) -> str:
    """How a server of that `version` speculates (see spec_mode); without one as `version_of` means it."""
    if spec.engine == "vllm":
        return vllm.spec_mode(spec.args)
    return spec_mode(spec.args, spec.env, version or spec.version or spec.since)


def _own_variables(spec: ServerSpec) -> dict[str, str]:
    """The variant's environment as its version reads it: one that is gone would only be warned of."""
    if spec.engine == "vllm":
        return vllm.environment(spec.env)
    gone = spec.engine in PROGRAMS and version_of(spec) >= SPEC_V2_GONE_FIRST
    return {name: text for name, text in spec.env.items() if not (gone and name == SPEC_V2)}


def _sim_args(spec: ServerSpec) -> dict[str, Any]:
    return {"sim_version": spec.version, "sim_speed": f"{spec.sim_speed:g}", "sim_profile": spec.sim_profile}


def is_secret(name: str) -> bool:
    """Whether the name of an environment variable says that its value is a secret."""
    return any(word in name.upper() for word in SECRET_WORDS)


def environment(spec: ServerSpec, base: Mapping[str, str], *, gpus: Sequence[str]) -> dict[str, str]:
    """The server's environment: `base` without secrets, the variant's own on top, and the devices it may see.

    What decides the variant is never inherited: a variable left in somebody's shell would make it another one.
    """
    hidden = (spec.api_key_env, *VARIANT_ONLY)
    kept = {name: value for name, value in base.items() if not is_secret(name) and name not in hidden}
    devices = {DEVICES: ",".join(gpus)} if gpus else {}
    return {**kept, **_own_variables(spec), **devices}


def shown_environment(spec: ServerSpec, gpus: Sequence[str], base: Mapping[str, str] | None = None) -> dict[str, str]:
    """What may be shown of it: the variant's variables, the devices, and what of `base` can change a result."""
    inherited = {name: value for name, value in (base or {}).items() if name.startswith(SHOWN_PREFIXES)}
    shown = environment(spec, inherited, gpus=gpus)
    return {name: "***" if is_secret(name) else value for name, value in sorted(shown.items())}


def missing_keys(spec: ServerSpec) -> list[str]:
    """Configuration keys that a real start of this server needs and does not have."""
    if spec.engine == "external":
        return [] if spec.urls else ["engine.url"]
    if spec.engine not in STARTED:
        return []
    args = vllm.speculation(spec) or {} if spec.engine == "vllm" else resolved_args(spec)
    needs_draft = DRAFT_PLACEHOLDER in args.values()
    wanted = [("model.path", spec.model_path is None), ("model.draft_path", needs_draft)]
    return [key for key, missing in wanted if missing]
