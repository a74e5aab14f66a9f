"""What a variant becomes on an engine version for which it was not named, in sentences.

Pure. A name stays in use when its worker is gone; whoever reads its rows must be told what ran.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from server import vllm
from server.flags import NEWEST, Version, in_words
from server.spec import (
    CHAIN_OR_TREE,
    SPEC_V2,
    SPEC_V2_GONE_FIRST,
    TREE_SYNC_ONLY_LAST,
    ServerSpec,
    algorithm,
    parse_version,
    resolved_args,
    spec_mode,
    truth,
    version_of,
)

OWN_OFF = "disable_custom_all_reduce"
# flag -> the first version known to ask it before SGLang's own all-reduce; None: none does
BEHIND_OWN: dict[str, Version | None] = {
    "enable_torch_symm_mem": None,
    "enable_nccl_nvls": None,
    "enable_mscclpp": (0, 5, 23),
}


def notes(spec: ServerSpec) -> list[str]:
    """One sentence for each way in which this version runs the variant as its nearest; none where it runs as named."""
    if spec.engine == "vllm":
        return [f"{spec.variant} on vllm {note}" for note in _notes_on_vllm(spec)]
    if spec.engine not in ("sglang", "sim"):
        return []
    return [f"{spec.variant} on {spec.engine} {in_words(version_of(spec))} {note}" for note in _notes(spec)]


def _notes_on_vllm(spec: ServerSpec) -> Iterator[str]:
    mode = vllm.spec_mode(spec.args)
    if truth(spec.env.get(SPEC_V2)) is False and mode.endswith("_overlap"):
        yield f"runs as {mode}: {SPEC_V2}=0 is not read there; without overlap by ++variant.args.async_scheduling=false"


def _notes(spec: ServerSpec) -> Iterator[str]:
    version, asked = version_of(spec), truth(spec.env.get(SPEC_V2))
    mode = spec_mode(spec.args, spec.env, spec.version or spec.since)
    if version > NEWEST:
        yield f"is started with the flags of {in_words(NEWEST)}, the newest known here"
    yield from _idle(resolved_args(spec), version)
    named_for_it = spec.since is not None and parse_version(spec.since) > TREE_SYNC_ONLY_LAST
    if algorithm(spec.args) not in CHAIN_OR_TREE or named_for_it:
        return
    read = version < SPEC_V2_GONE_FIRST
    if asked is False and version > TREE_SYNC_ONLY_LAST:
        how = f"{SPEC_V2}=0" if read else f"--disable-overlap-schedule, which {SPEC_V2}=0 became"
        yield f"runs as {mode}, its nearest: the v1 worker ended with 0.5.12, this is the v2 worker with {how}"
    elif asked and not read:
        yield f"runs as {mode} without {SPEC_V2}, which is no longer read"


def _idle(args: Mapping[str, Any], version: Version) -> Iterator[str]:
    """Ways of adding up that wait behind SGLang's own all-reduce, which takes every message of up to 8 MiB first."""
    for flag, first_before in BEHIND_OWN.items():
        if args.get(flag) and not args.get(OWN_OFF) and (first_before is None or version < first_before):
            yield (
                f"has {flag} behind SGLang's own all-reduce, which takes all messages of decoding: it does next to "
                f"nothing without variant.args.{OWN_OFF}=true"
            )
