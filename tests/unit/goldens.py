"""What every variant is started with on the versions of SGLang that matter, as text; run it to write the files anew.

python tests/unit/goldens.py        then read `git diff tests/unit/golden`: each change is one of somebody's server
"""

import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from loadgen.__main__ import variants
from loadgen.checks import parse
from loadgen.config import Config, Variant
from loadgen.engine import VARIANTS, server_spec
from loadgen.overrides import prepare
from server.variant import ServerSpec, SpecError, argv, check, notes, resolved_args, shown_environment, spec_mode

VERSIONS = ("0.5.9", "0.5.12", "0.5.14", "0.5.20", "0.5.23")
FOLDER = Path(__file__).with_name("golden")
WIDTH = 110


def file_of(version: str) -> Path:
    return FOLDER / f"sglang-{version}.txt"


@cache
def composed() -> Config:
    with initialize_config_module("conf", version_base="1.3"):
        made = compose("config", overrides=prepare(["+variant=baseline", "engine=sglang"]))
    return parse(OmegaConf.to_container(made, resolve=True), [])  # type: ignore[arg-type]


@cache
def spec_of(variant: str) -> ServerSpec:
    """The variant's spec, with a model's places filled in. Its file has nothing that Hydra would have to resolve."""
    chosen = OmegaConf.to_object(OmegaConf.merge(Variant, OmegaConf.load(VARIANTS / f"{variant}.yaml")))
    spec = server_spec(replace(composed(), variant=chosen), "sglang")
    args = {name: _placeless(value) for name, value in spec.args.items()}
    return replace(spec, args=args, model_path="MODEL", draft_path="DRAFT", python=("python",))


def _placeless(value: Any) -> Any:
    """A file that stands beside the variants, wherever this checkout is."""
    return value.replace(str(VARIANTS), "VARIANTS") if isinstance(value, str) else value


def golden(version: str) -> str:
    """All variants on one version: how each speculates, what is said of it, its variables, its command line."""
    return "\n\n".join("\n".join(_variant(replace(spec_of(name), version=version))) for name in variants()) + "\n"


def _variant(spec: ServerSpec) -> Iterator[str]:
    try:
        check(spec)
    except SpecError as error:
        yield f"{spec.variant}: refused"
        yield from _wrapped(str(error))
        return
    yield f"{spec.variant}: {spec_mode(resolved_args(spec), spec.env, spec.version)}"
    for note in notes(spec):
        yield from _wrapped(f"note: {note}")
    for name, text in shown_environment(spec, []).items():
        yield f"  {name}={text}"
    yield from _wrapped(shlex.join(argv(spec, host="HOST", port=30000, seed=7, nccl_port=30001)))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for known in VERSIONS:
        file_of(known).write_text(golden(known))
