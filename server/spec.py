"""What a server is asked to be: the ServerSpec, its flags after all defaults, and what they mean by engine version.

Pure. It must not know of load, of processes, or of what a running server tells.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from server.flags import Version, canonical, spelled
from server.tls import VERIFIED, Tls

VERSION_DEFAULT = "0.5.9"

# What every variant shares, so that a comparison measures the variant: topk alone would change SGLang's default
# attention backend, and speculation alone would cap running requests at 48. A variant overrides a flag, or drops it
# with null.
COMMON: dict[str, Any] = {
    "attention_backend": "flashinfer",
    "page_size": 1,
    "max_running_requests": 256,
    "cuda_graph_max_bs": 256,
    "mem_fraction_static": 0.80,
    "disable_radix_cache": True,
    "enable_metrics": True,
    "decode_log_interval": 10,
    "enable_cache_report": True,
    "stream_interval": 1,
}

# SGLang's CUDA-graph grid for decoding: a batch is padded to the next of them, and adaptive speculation goes by that.
GRAPH_BATCHES = (1, 2, 4, *range(8, 513, 8))

MODEL_PLACEHOLDER = "<model.path>"
DRAFT_PLACEHOLDER = "<model.draft_path>"

# Engines that are real and ours to start.
STARTED = ("sglang", "vllm")

# Flags that multiply the devices of tensor parallelism, under either engine's names.
REPLICAS = ("dp_size", "data_parallel_size")  # with attention spread over them they share the devices
COPIES = (*REPLICAS, "pp_size", "pipeline_parallel_size")

ALGORITHM_ALIASES = {"NEXTN": "EAGLE"}
CHAIN_OR_TREE = ("EAGLE", "EAGLE3", "STANDALONE")
# The others find their draft in the target's own weights unless they are told a path.
NEEDS_DRAFT_PATH = ("EAGLE3", "STANDALONE")

SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"
# Until here SPEC_V2 is off unless set, refuses a tree, and beats --disable-overlap-schedule.
SPEC_V2_OPT_IN_LAST: Version = (0, 5, 10)
# Until here a tree always runs on the synchronous worker.
TREE_SYNC_ONLY_LAST: Version = (0, 5, 12)
# From here SPEC_V2 does nothing; only --disable-overlap-schedule selects the synchronous path.
SPEC_V2_GONE_FIRST: Version = (0, 5, 14)


def graph_batch(batch: int) -> int:
    """The batch that a decode step of `batch` requests is padded to; its own size above the grid."""
    return next((size for size in GRAPH_BATCHES if size >= batch), batch)


class SpecError(ValueError):
    """A server that cannot run as asked; the message says what to change."""


@dataclass(frozen=True)
class ServerSpec:
    """Everything that decides one Launch's server. Equal specs may share a server.

    `args` are the engine's flags by name with underscores: true is a bare flag, false and null are not passed, a list
    is several values.
    """

    engine: str  # sglang, vllm, sim or external
    variant: str
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    model_name: str = "default"
    model_path: str | None = None
    draft_path: str | None = None
    tp: int = 1
    moe: bool | None = None  # whether the model has experts; None is not known
    python: tuple[str, ...] = ()  # words that start an interpreter with the engine; none: the one that runs
    version: str | None = None  # engine version; None: see `version_of`; a start reads the installed one
    since: str | None = None  # first engine version that the variant exists on
    sim_speed: float = 10.0
    sim_profile: str | None = None
    api_key_env: str | None = None  # the NAME of an environment variable, never a key
    ready_s_max: float = 3600.0
    hang_s_max: float = 120.0  # seconds without a token while it is asked
    stop_s_max: float = 30.0  # seconds from SIGTERM to SIGKILL
    urls: tuple[str, ...] = ()  # external only
    tls: Tls = VERIFIED  # of an https address
    cores: tuple[int, ...] = ()  # cores that the server may use; none: those of the process that starts it

    @property
    def on_cpu(self) -> bool:
        """Whether it asks for no GPU, on whatever machine."""
        return self.args.get("device") == "cpu"

    @property
    def devices(self) -> int:
        """Devices that it spreads over: of each stage of a pipeline and each replica its own."""
        copies = [name for name in COPIES if not (name in REPLICAS and self.args.get("enable_dp_attention"))]
        return self.tp * math.prod(int(self.args.get(name) or 1) for name in copies)

    @property
    def gpus(self) -> int:
        """GPUs that it takes; none where it is simulated, not ours, or runs on a CPU."""
        return 0 if self.on_cpu or self.engine not in STARTED else self.devices


def parse_version(text: str | None) -> Version:
    """The first three numbers of a version, those of VERSION_DEFAULT where none is given.

    A number that is missing is 0: what cannot be read is no version that is known here, and so never the one asked for.
    """
    found = re.match(r"\D*(\d+)(?:\.(\d+))?(?:\.(\d+))?", text or VERSION_DEFAULT)
    major, minor, patch = found.groups("0") if found else ("0", "0", "0")
    return int(major), int(minor), int(patch)


def version_of(spec: ServerSpec) -> Version:
    """The engine version that the spec means: its own, else the first that has the variant."""
    return parse_version(spec.version or spec.since)


def resolved_args(spec: ServerSpec) -> dict[str, Any]:
    """The server's flags: COMMON, overlaid by the variant's, with model, draft and tensor parallelism filled in.

    Names and forms are those of the spec's version.
    """
    version = version_of(spec)
    model = {
        "model_path": spec.model_path or MODEL_PLACEHOLDER,
        "served_model_name": spec.model_name,
        "tp_size": spec.tp,
    }
    args = {**model, **COMMON, **canonical(_with_draft(spec))}
    if _asks_sync_by_environment(args, spec.env, version):
        args["disable_overlap_schedule"] = True
    return spelled(args, version)


def _with_draft(spec: ServerSpec) -> dict[str, Any]:
    """The variant's own flags, with the path of the draft model behind the algorithm."""
    name = algorithm(spec.args)
    path = spec.draft_path or (DRAFT_PLACEHOLDER if name in NEEDS_DRAFT_PATH else None)
    if name in (None, "NGRAM") or path is None or "speculative_draft_model_path" in canonical(spec.args):
        return dict(spec.args)
    first = {"speculative_algorithm": spec.args["speculative_algorithm"], "speculative_draft_model_path": path}
    return {**first, **spec.args}


def _asks_sync_by_environment(args: Mapping[str, Any], env: Mapping[str, str], version: Version) -> bool:
    """Whether SPEC_V2=0 must be said by flag, because this version no longer reads the variable."""
    reads_no_variable = version >= SPEC_V2_GONE_FIRST and algorithm(args) in CHAIN_OR_TREE
    return reads_no_variable and truth(env.get(SPEC_V2)) is False


def as_words(args: Mapping[str, Any], *, negated: bool = False) -> list[str]:
    """Flags as words of a command line; a switch that is off is left out, or `negated` where every one has a --no-."""
    words: list[str] = []
    for name, value in args.items():
        if value is None or (value is False and not negated):
            continue
        words.append(f"--{'no-' if value is False else ''}{name.replace('_', '-')}")
        if isinstance(value, Mapping):
            words.append(json.dumps(value))
        elif not isinstance(value, bool):
            words.extend(map(str, value if isinstance(value, list | tuple) else [value]))
    return words


def algorithm(args: Mapping[str, Any]) -> str | None:
    """The speculative algorithm under its one name, or None."""
    name = args.get("speculative_algorithm")
    return None if name in (None, False, "") else ALGORITHM_ALIASES.get(str(name).upper(), str(name).upper())


def truth(text: str | None) -> bool | None:
    """An environment switch as SGLang reads it; None where it is not set."""
    return None if text in (None, "") else str(text).strip().lower() in ("1", "true", "yes", "y", "on")


def topk(args: Mapping[str, Any]) -> int:
    """The width of the draft; unset it counts as 1, which SGLang chooses for all but the Llama and Grok families."""
    return int(args.get("speculative_eagle_topk") or 1)


def spec_mode(args: Mapping[str, Any], env: Mapping[str, str], version: str | None) -> str:
    """How the server speculates by its version: none, ngram, adaptive, or chain or tree with _sync or _overlap.

    Any other algorithm is given by its own name in small letters.
    """
    name = algorithm(args)
    if name is None:
        return "none"
    if name not in CHAIN_OR_TREE:
        return name.lower()
    if args.get("speculative_adaptive"):
        return "adaptive"
    shape = "tree" if topk(args) > 1 else "chain"
    overlap = _overlaps(shape, args, truth(env.get(SPEC_V2)), parse_version(version))
    return f"{shape}_{'overlap' if overlap else 'sync'}"


def _overlaps(shape: str, args: Mapping[str, Any], spec_v2: bool | None, version: Version) -> bool:
    disabled = bool(args.get("disable_overlap_schedule"))
    if version <= SPEC_V2_OPT_IN_LAST:
        return spec_v2 is True and shape == "chain"
    if version <= TREE_SYNC_ONLY_LAST:
        return shape == "chain" and spec_v2 is not False and not disabled
    # resolved_args turns a false SPEC_V2 into the flag where the variable is no longer read.
    return not disabled and spec_v2 is not False
