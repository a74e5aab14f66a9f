"""The import law: which module may know which package. Read from the source, so no import hides in a function."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted([*ROOT.glob("loadgen/**/*.py"), *ROOT.glob("server/**/*.py")])
PURE = {
    *(
        f"loadgen.{name}"
        for name in ["config", "errors", "plan", "prompts", "sse", "record", "window", "stats", "verdict"]
    ),
    *(
        f"loadgen.{name}"
        for name in [
            "asking",
            "bounds",
            "checks",
            "lengths",
            "texts",
            "secret",
            "overrides",
            "dialects",
            "files",
            "form",
            "framing",
            "series",
            "agreement",
            "facts",
            "summary",
            "margin",
            "arrivals",
            "openloop",
            "loads",
            "replay",
            "acceptance",
            "counters",
            "logged",
            "energy",
            "stack",
            "shares",
            "paired",
            "pairing",
            "comparison",
            "advice",
            "adaptive",
            "spelling",
            "gate",
            "conclusions",
            "history",
            "notebook",
            "notes",
            "page.markup",
            "page.scales",
            "page.chart",
            "curves",
            "page.plots",
            "page.kinds",
            "page.strips",
            "page.sheets",
            "page.origin",
            "page.document",
            "objectives",
            "search",
            "drift",
            "noise",
            "nodes",
            "staffing",
            "clocks",
        ]
    ),
    *(f"server.{name}" for name in ["variant", "spec", "rules", "proof", "effects", "identity", "batches", "vllm"]),
    *(f"server.{name}" for name in ["claims", "failures", "flags", "nearest", "profiling"]),
}
IMPURE = {"ray", "aiohttp", "pyarrow", "hydra", "time", "os"}
ONLY_IN = {
    "ray": {"loadgen.cluster", "loadgen.crew", "server.actor"},
    "hydra": {"loadgen.__main__"},
    "aiohttp": {"loadgen.stream", "loadgen.wire"},
    "pyarrow": {"loadgen.store", "loadgen.dataset", "loadgen.columns", "loadgen.remote"},
    "omegaconf": {"loadgen.config", "loadgen.checks", "loadgen.__main__"},
}
FORBIDDEN = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "torch"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, absolute."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_import_law(path: Path) -> None:
    """Each package is known where design says, the pure layer knows none of them, server/ never knows loadgen/."""
    name, found = name_of(path), set(imports(path))
    tops = {module.split(".")[0] for module in found}
    if name.startswith("server"):
        assert "loadgen" not in tops
    if name in PURE:
        assert not tops & IMPURE
    for package, homes in ONLY_IN.items():
        assert package not in tops or name in homes, f"{name} imports {package}"
    assert not tops & FORBIDDEN


def test_pure_layer_is_there() -> None:
    """A module that was renamed must not leave the pure list by accident."""
    assert {name_of(path) for path in MODULES} >= PURE


# The story of a run, bottom up: nothing in it imports what stands after it.
FLOW = [
    "config",
    "plan",
    "window",
    "board",
    "store",
    "worker",
    "engine",
    "cluster",
    "launched",
    "proven",
    "watch",
    "warm_up",
    "launch",
    "servers",
    "preflight",
    "cell",
    "served",
    "stretch",
    "point",
    "grid",
]


def test_flow_points_down() -> None:
    """Nothing imports what stands above it in the flow, and nothing imports __main__ or the reports' user."""
    for path in ROOT.glob("loadgen/*.py"):
        found = set(imports(path))
        assert "loadgen.__main__" not in found
        if path.stem in FLOW:
            above = {f"loadgen.{name}" for name in FLOW[FLOW.index(path.stem) + 1 :]}
            assert not above & found, path.name


def test_no_cycles() -> None:
    """All modules can be put in one order in which imports point down only."""
    names = {name_of(path) for path in MODULES}
    graph = {name_of(path): names & set(imports(path)) - {name_of(path)} for path in MODULES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(names)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_size(path: Path) -> None:
    """Functions stay within 70 lines and modules within 300: a longer one wants another shape."""
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, f"{path.name}:{node.name}"
