"""R20 and R19: what our own code may not do, read from the source; and that the linter's rules on it are in force."""

import ast
import importlib.metadata
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("loadgen", "server", "conf", "docs")
MODULES = sorted(path for package in PACKAGES for path in ROOT.glob(f"{package}/**/*.py"))
# Modules that run or build code out of data. Ray has a pickle of its own, inside its cluster only.
IMPORTS = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle", "torch", "pty",
    "xmlrpc", "telnetlib", "imp", "code", "codeop",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
# By their last names, whatever they are called on.
METHODS = {
    "os.system", "os.popen", "os.startfile", "subprocess.getoutput", "subprocess.getstatusoutput", "yaml.load",
    "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all", "yaml.Loader",
    "yaml.UnsafeLoader", "yaml.FullLoader", "np.load", "numpy.load", "torch.load", "pd.read_pickle", "pa.deserialize",
    "pyarrow.deserialize", "hydra.utils.instantiate", "hydra.utils.call", "ssl._create_unverified_context",
    "tempfile.mktemp", "importlib.import_module", "runpy.run_path", "runpy.run_module",
}  # fmt: skip
# A word that may not be true, or not be there at all.
ARGUMENTS = {"shell", "allow_pickle", "trust_remote_code", "weights_only"}
# Rules of ruff that stand between data and code; ignoring one needs a better reason than there is.
RULES = (
    "S102", "S301", "S302", "S306", "S307", "S310", "S312", "S313", "S314", "S315", "S323", "S501", "S502", "S504",
    "S506", "S507", "S602", "S604", "S605", "S609", "S612", "S701", "S702",
)  # fmt: skip


def dotted(node: ast.AST) -> str:
    """The name of a call's function: yaml.load, eval; empty where it is none."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def broken(source: str) -> Iterator[str]:
    """What in the source may not be there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in [*module, *(alias.name for alias in node.names if isinstance(node, ast.Import))]:
                if name.partition(".")[0] in IMPORTS:
                    yield f"{node.lineno}: imports {name}"
            if isinstance(node, ast.ImportFrom):
                yield from (
                    f"{node.lineno}: imports {node.module}.{alias.name}"
                    for alias in node.names
                    if f"{node.module}.{alias.name}" in METHODS
                )
        if isinstance(node, ast.Attribute) and dotted(node) in METHODS:
            yield f"{node.lineno}: {dotted(node)}"
        if isinstance(node, ast.Call):
            if dotted(node.func) in CALLS:
                yield f"{node.lineno}: {dotted(node.func)}()"
            for word in node.keywords:
                off = isinstance(word.value, ast.Constant) and word.value.value is False
                if word.arg in ARGUMENTS and not off:
                    yield f"{node.lineno}: {word.arg}="


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_r20_no_data_becomes_code(path: Path) -> None:
    """No pickle, no eval, no shell, no loader of YAML that builds objects, no import by a name out of data."""
    assert list(broken(path.read_text())) == []


BAD = [
    "import pickle",
    "from pickle import loads",
    "import torch.serialization",
    "import marshal as m",
    "import shelve",
    "eval('1')",
    "exec(text)",
    "__import__(name)",
    "import os; os.system('x')",
    "from os import system",
    "import numpy as np; np.load(path, allow_pickle=True)",
    "numpy.load(path)",
    "torch.load(path)",
    "yaml.load(text, Loader=yaml.UnsafeLoader)",
    "from yaml import unsafe_load",
    "loader = yaml.FullLoader",
    "subprocess.run(words, shell=True)",
    "run(words, shell=maybe)",
    "importlib.import_module(name)",
    "AutoModel.from_pretrained(name, trust_remote_code=True)",
]


@pytest.mark.parametrize("source", BAD)
def test_r20_the_search_finds_what_is_there(source: str) -> None:
    """Each of them alone."""
    assert list(broken(source))


def test_r20_harmless_code_is_let_through() -> None:
    """What looks like it and is not."""
    assert list(broken("yaml.safe_load(t); subprocess.run(w, shell=False); re.compile(p); json.load(f)")) == []


def test_r20_the_linters_rules_are_in_force() -> None:
    """None of the rules on running data is ignored for our packages as a whole."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    for ignored in (
        lint["ignore"],
        *(rules for path, rules in lint["per-file-ignores"].items() if "tests" not in path),
    ):
        assert [rule for rule in RULES if any(rule.startswith(prefix) for prefix in ignored)] == []


def test_r20_no_line_is_excused() -> None:
    """Nor is one of them on a line of its own (a noqa without a rule would excuse them all)."""
    for path in MODULES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            _, found, excused = line.partition("# noqa")
            assert not found or excused.startswith(": "), f"{path}:{number}"
            assert not [rule for rule in RULES if rule in excused], f"{path}:{number}"


def test_r20_pyarrow_reads_no_code_out_of_a_file() -> None:
    """Before 14.0.1 a Parquet file could run some (CVE-2023-47248)."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (lowest,) = (line.partition(">=")[2] for line in asked if line.startswith("pyarrow"))
    for version in (lowest, importlib.metadata.version("pyarrow")):
        assert tuple(int(part) for part in version.split(".")[:3]) >= (14, 0, 1)
