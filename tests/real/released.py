"""The flags of a released SGLang, read from its wheel: the source of its argument definitions, nothing is imported."""

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Wheels stay between runs, up to 40 MB each.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "loadgen" / "released-sglang"
DOWNLOAD_S_MAX = 240
DEFINED_IN = ("sglang/srt/server_args.py", "sglang/srt/arg_groups/")
VARIABLES_IN = "sglang/srt/environ.py"
CLASS = "CustomAllreduce"  # what "{cls_name} is disabled" is printed by
BARE_ACTIONS = ("store_true", "store_false", "store_const", "DeprecatedStoreTrueAction", "DeprecatedStoreConstAction")


class NotThere(Exception):
    """The wheel cannot be had here; why."""


@dataclass(frozen=True)
class Flag:
    """One flag: whether a value follows it, and which ones it takes (None: any)."""

    bare: bool
    choices: tuple[str, ...] | None


def wheel(version: str) -> Path:
    """The released wheel of this version, without its dependencies. NotThere with the reason."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (have := sorted(CACHE.glob(f"sglang-{version}-*.whl"))):
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        anywhere = ["--platform=manylinux_2_34_x86_64", "--platform=any", f"--python-version={python}"]
        words = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *anywhere, "-d", str(CACHE)]
        try:
            ended = subprocess.run(
                [sys.executable, *words, f"sglang=={version}"],
                capture_output=True, text=True, timeout=DOWNLOAD_S_MAX, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotThere(f"pip did not bring sglang {version} within {DOWNLOAD_S_MAX} s") from None
        if not (have := sorted(CACHE.glob(f"sglang-{version}-*.whl"))):
            raise NotThere(f"pip cannot bring sglang {version}: {ended.stderr.strip()[-300:]}")
    return have[0]


def flags(version: str) -> dict[str, Flag]:
    """Every flag that the released server knows, with its dashes."""
    trees = [ast.parse(text) for name, text in _sources(wheel(version)) if name.startswith(DEFINED_IN)]
    lists = {name: values for tree in trees for name, values in _lists(tree)}
    return {flag: kind for tree in trees for flag, kind in _flags(tree, lists)}


def variables(version: str) -> set[str]:
    """Every variable that the released server declares for itself."""
    (text,) = [text for name, text in _sources(wheel(version)) if name == VARIABLES_IN]
    targets = [node.targets[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign)]
    return {target.id for target in targets if isinstance(target, ast.Name) and target.id.startswith("SGLANG_")}


def said(version: str, *modules: str) -> set[str]:
    """Every text that these modules of the released server could print, names filled in where they stand for one."""
    trees = [ast.parse(text) for name, text in _sources(wheel(version), modules) if name.endswith(modules)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    filled = {ast.unparse(node): _filled(node) for node in nodes if isinstance(node, ast.JoinedStr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    plain = {node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in parts}
    return {*filled.values(), *(text for text in plain if isinstance(text, str))}


def _filled(node: ast.JoinedStr) -> str:
    """The text with what is filled in: a class's name where one is, else its own expression."""
    words = [str(part.value) if isinstance(part, ast.Constant) else ast.unparse(part.value) for part in node.values]  # type: ignore[attr-defined]
    return "".join(CLASS if word == "cls_name" else word for word in words)


def _sources(path: Path, more: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            ours = name.startswith((*DEFINED_IN, VARIABLES_IN)) or (more and name.endswith(more))
            if ours and name.endswith(".py"):
                yield name, archive.read(name).decode()


def _lists(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Module-level lists of texts, which choices are named by."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (texts := _texts(node.value)):
            yield node.targets[0].id, texts


def _texts(node: ast.expr | None) -> tuple[str, ...]:
    if not isinstance(node, ast.List | ast.Tuple):
        return ()
    return tuple(str(item.value) for item in node.elts if isinstance(item, ast.Constant))


def _flags(tree: ast.Module, lists: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, Flag]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            yield from _of_call(node, lists)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from _of_field(node.target.id, node.annotation, lists)


def _of_call(call: ast.Call, lists: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, Flag]]:
    """parser.add_argument("--flag", "--alias", action=..., choices=...)"""
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    action = given.get("action")
    name = str(action.value) if isinstance(action, ast.Constant) else getattr(action, "id", "")
    for word in call.args:
        if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
            yield str(word.value), Flag(name in BARE_ACTIONS, _choices(given, lists))


def _of_field(name: str, annotation: ast.expr, lists: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, Flag]]:
    """name: A[type, "help"] or A[type, Arg(aliases=..., choices=...), ...]"""
    if not (isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") in ("A", "Annotated")):
        return
    kind, *meta = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    calls = [node for node in meta if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Arg"]
    given = {keyword.arg: keyword.value for call in calls for keyword in call.keywords if keyword.arg}
    if isinstance(hidden := given.get("no_cli"), ast.Constant) and hidden.value:
        return
    own = given.get("cli_name")
    first = str(own.value) if isinstance(own, ast.Constant) else "--" + name.replace("_", "-")
    literal = [node for node in ast.walk(kind) if isinstance(node, ast.Subscript) and "Literal" in ast.dump(node.value)]
    choices = _choices(given, lists) or (_texts(literal[0].slice) if literal else None)
    bare = getattr(kind, "id", "") == "bool" and "action" not in given
    for word in (first, *_texts(given.get("aliases"))):
        yield word, Flag(bare, choices)


def _choices(given: dict[str, ast.expr], lists: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    node = given.get("choices")
    return (lists.get(node.id) if isinstance(node, ast.Name) else _texts(node)) or None
