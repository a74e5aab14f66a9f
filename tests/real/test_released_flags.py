"""Every flag that we would pass exists in the SGLang that it would be passed to, as that release defines it."""

import re
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from goldens import VERSIONS, spec_of
from released import Flag, NotThere, flags, said, variables

from loadgen.__main__ import variants
from server.effects import telling
from server.flags import FIRST, RENAMED, in_words
from server.sim.flags import VERSIONS as SIMULATED
from server.sim.flags import build_parser
from server.variant import ServerSpec, SpecError, argv, check, environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
PLACED = {"host": "127.0.0.1", "port": 30000, "seed": 7, "nccl_port": 30001}
# Releases right before and at the version from which a flag is said to exist. 0.5.13 itself was never built for all.
BORDERS = {(0, 5, 10): ("0.5.9", "0.5.10"), (0, 5, 14): ("0.5.13.post1", "0.5.14")}


@pytest.fixture
def released(version: str) -> dict[str, Flag]:
    return known(version)


def known(version: str) -> dict[str, Flag]:
    try:
        return flags(version)
    except NotThere as reason:
        pytest.skip(str(reason))


def wrong(words: list[str], released: dict[str, Flag]) -> list[str]:
    """What this release's parser would say against a command line."""
    found, at = [], 0
    while at < len(words):
        flag, values = words[at], []
        at += 1
        while at < len(words) and not words[at].startswith("--"):
            values.append(words[at])
            at += 1
        if flag not in released:
            found.append(f"{flag} does not exist")
        elif released[flag].bare != (not values):
            found.append(f"{flag} takes {'no' if released[flag].bare else 'a'} value")
        elif (choices := released[flag].choices) and not set(values) <= set(choices):
            found.append(f"{flag} takes one of {choices}, not {values}")
    return found


def runnable(version: str) -> list[ServerSpec]:
    """Every variant that is not refused on this version."""
    found = []
    for name in variants():
        spec = ServerSpec(**{**vars(spec_of(name)), "version": version})
        try:
            check(spec)
        except SpecError:
            continue
        found.append(spec)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_flag_that_we_pass_exists(version: str, released: dict[str, Flag]) -> None:
    """Name, whether a value follows, and the value where only some are taken."""
    assert len(released) > 300, "the release defines its flags in another way: teach released.py"
    bad = {}
    for spec in runnable(version):
        words = argv(spec, **PLACED)  # type: ignore[arg-type]
        bad[spec.variant] = wrong(words[words.index("--model-path") :], released)
    assert len(bad) >= 10
    assert not {name: words for name, words in bad.items() if words}


def test_every_flag_of_the_cpu_engine_exists() -> None:
    """What all variants share there."""
    shared = yaml.safe_load((ROOT / "conf/engine/sglang_cpu.yaml").read_text())
    spec = ServerSpec("sglang", "baseline", shared["args"], model_path="/m", version=shared["version"])
    words = argv(spec, **PLACED)  # type: ignore[arg-type]
    assert wrong(words[words.index("--model-path") :], known(shared["version"])) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_variable_that_we_set_is_read(version: str, released: dict[str, Flag]) -> None:
    """A variable that a release no longer declares would change nothing."""
    ours = {name for spec in runnable(version) for name in environment(spec, {}, gpus=()) if name.startswith("SGLANG_")}
    assert released
    assert ours <= variables(version)


DROPS = re.compile(r"(is|are|fusion) disabled|(not supported|not available), ")  # a way of adding up is given up
ADDING_UP = ("/custom_all_reduce.py", "/custom_all_reduce_utils.py", "/torch_symm_mem.py", "/pymscclpp.py")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_line_that_drops_a_way_of_adding_up_is_heard(version: str, released: dict[str, Flag]) -> None:
    """A release that says it in other words would let a variant pass that does not run."""
    assert released
    lines = {text for text in said(version, *ADDING_UP, "/flashinfer_comm_fusion.py") if DROPS.search(text)}
    assert len(lines) >= 8
    unheard = {line for line in lines if len(line) < 400 and not telling([line])}  # longer ones are docstrings
    assert not [line for line in unheard if "will use the default process group" not in line]


@pytest.mark.parametrize("version", SIMULATED)
def test_the_simulator_takes_no_flag_that_the_release_lacks(version: str, released: dict[str, Flag]) -> None:
    """A flag that only the simulator knows would pass every trial and fail on the real machine."""
    taken = {word for action in build_parser(version)._actions for word in action.option_strings}
    ours = re.compile(r"-h|--help|--sim-.*")
    assert released
    for word in taken:
        # The start of one flag only is taken for it: --tp is --tp-size.
        meant = [flag for flag in released if flag.startswith(word)]
        assert ours.fullmatch(word) or word in released or len(meant) == 1, (word, meant)


@pytest.mark.parametrize("border", BORDERS.values(), ids=" to ".join)
def test_flags_begin_where_the_tables_say(border: tuple[str, str]) -> None:
    """The tables of server/flags.py against the releases on both sides of each border."""
    before, after = map(known, border)
    at = next(version for version, sides in BORDERS.items() if sides == border)
    begun = [new for new, first in RENAMED.values() if first == at]
    begun += [name for name, (first, _) in FIRST.items() if first == at and not name.startswith("speculative_adaptive")]
    assert begun, in_words(at)
    for name in begun:
        word = "--" + name.replace("_", "-")
        assert word not in before
        assert word in after
