"""Where the numbers come from: every start of a server, and in what the variants' servers differ.

Pure. A start is the content of a launch.json, whose secrets were taken out before it was written.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from loadgen.formats import PER_LAUNCH
from loadgen.page.markup import Child, tag
from loadgen.page.sheets import table
from loadgen.words import NOTHING, many

VALUE_CHARS_MAX = 300  # of a resolved argument in a table of differences
TOLD_MAX = 200  # starts whose command lines are shown: half a megabyte
# What a server tells of one start, of its own clock or of all that is in it; the rest is how it was set up.
OF_ONE_START = ("port", "nccl_port", "random_seed", "launch_command", "internal_states", "startup_time", "status")


@dataclass(frozen=True)
class Start:
    """One life of one server: what a comparison calls its variant, the folder it is kept in, its launch.json."""

    variant: str
    folder: str
    launch: Mapping[str, Any]


def flags(argv: Sequence[str]) -> dict[str, str]:
    """A command line as flags and their values, without what is of one start alone."""
    found: dict[str, str] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
    return {name: value for name, value in found.items() if name not in PER_LAUNCH}


def differences(starts: Sequence[Start], order: Iterable[str]) -> Iterable[Element]:
    """Flags, environment and what the servers resolved these to, as far as variants differ in them."""
    first = {start.variant: start.launch for start in reversed(starts)}
    names = [name for name in order if name in first]
    launches = [first[name] for name in names]
    asked = [{**flags(one.get("argv") or ()), **(one.get("env") or {})} for one in launches]
    resolved = [_resolved(one) for one in launches]
    unsteady = _unsteady(starts)
    for caption, told, given in (
        ("Flags and environment in which the variants' servers differ", asked, "given"),
        ("What the servers say they run with, where they differ", resolved, ""),
    ):
        rows = list(_unlike(told, unsteady, given))
        if len(names) > 1 and rows:
            yield table(caption, ["name", *names], rows, named=1)


def _resolved(launch: Mapping[str, Any]) -> dict[str, Any]:
    info = launch.get("server_info")
    return {name: value for name, value in info.items() if name not in OF_ONE_START} if isinstance(info, dict) else {}


def _unsteady(starts: Sequence[Start]) -> set[str]:
    """What differs between starts of the same variant says nothing of variants."""
    found: set[str] = set()
    seen: dict[str, Mapping[str, Any]] = {}
    for start in starts:
        mine = _resolved(start.launch)
        other = seen.setdefault(start.variant, mine)
        found |= {name for name in {*mine, *other} if mine.get(name) != other.get(name)}
    return found


def _unlike(told: Sequence[Mapping[str, Any]], unsteady: set[str], bare: str) -> Iterable[list[Child]]:
    """A row for each name with more than one value; `bare` is said of a flag without one."""
    for name in sorted({name for one in told for name in one} - unsteady):
        values = [_shown(one[name], bare) if name in one else NOTHING for one in told]
        if len(set(values)) > 1:
            yield [tag("code", name), *values]


def _shown(value: Any, bare: str = "") -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return (text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]} …") or bare


def summary(starts: Sequence[Start]) -> str:
    """Machine, time and our version in one line."""
    machines = dict.fromkeys(hardware(start.launch) for start in starts)
    times = sorted(
        str(start.launch["started_at"])[:16].replace("T", " ") for start in starts if "started_at" in start.launch
    )
    commits = dict.fromkeys(str(start.launch["git_commit"])[:12] for start in starts if start.launch.get("git_commit"))
    parts = [
        f"{many(len(starts), 'server start')} on {'; '.join(machines)}",
        *([f"from {times[0]} to {times[-1]} UTC"] if times else []),
        *([f"loadgen at {', '.join(commits)}"] if commits else []),
    ]
    return f"{', '.join(parts)}."


def starts_table(starts: Sequence[Start]) -> Element:
    """Every start, one a row."""
    heads = ("variant", "block", "engine", "hardware", "started", "ready after", "our commit", "kept in")
    rows = ([start.variant, *_start(start.launch), tag("code", start.folder)] for start in starts)
    return table(f"{many(len(starts), 'server start')} behind these numbers", heads, rows, named=1)


def _start(launch: Mapping[str, Any]) -> list[Child]:
    ready = launch.get("ready_s")
    engine = f"{launch.get('engine') or NOTHING} {launch.get('engine_version') or ''}".strip()
    if launch.get("simulated"):
        engine += f", SIMULATED x{launch.get('sim_speed') or 1:g}"
    commit = launch.get("git_commit")
    started = f"{str(launch['started_at'])[:19].replace('T', ' ')} UTC" if launch.get("started_at") else NOTHING
    return [
        *(launch.get("block"), engine, hardware(launch), started),
        f"{ready:.1f} s" if isinstance(ready, int | float) else NOTHING,
        tag("code", str(commit)[:12]) if commit else NOTHING,
    ]


def hardware(launch: Mapping[str, Any]) -> str:
    """The machine in a few words: GPUs where there are any, else processor and cores."""
    told = launch.get("provenance") or {}
    names = [str(gpu.get("name")) for gpu in told.get("gpus") or []]
    if names:
        driver = f", driver {told['driver']}" if told.get("driver") else ""
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) + driver
    cores = told.get("cpu_cores")
    return f"{told.get('cpu_model') or 'an unknown machine'}" + (f", {many(cores, 'core')}" if cores else "")


def details(starts: Sequence[Start]) -> Iterable[Element]:
    """Each start's whole command line, environment and machine; the same machine is told once."""
    seen: dict[str, str] = {}
    for start in starts[:TOLD_MAX]:
        launch = start.launch
        env = [f"{name}={value}" for name, value in (launch.get("env") or {}).items()]
        told = {name: launch.get(name) for name in ("launch_id", "host", "cores", "gpus", "seed", "model_id")}
        machine = _json({name: launch.get(name) for name in ("provenance", "must_match")})
        if (same := seen.setdefault(machine, start.folder)) != start.folder:
            machine = f"machine, packages and what must match: as in {same}"
        yield tag(
            "details",
            tag("summary", f"{start.variant}, block {launch.get('block')}: {start.folder}"),
            tag("p", "argv as started, ports and seed of this start included:"),
            tag("pre", "\n".join([*env, *_lines(launch.get("argv") or ())]), tabindex="0"),
            tag("pre", _json(told), tabindex="0"),
            tag("pre", machine, tabindex="0"),
        )
    if len(starts) > TOLD_MAX:
        yield tag("p", f"The other {many(len(starts) - TOLD_MAX, 'start')}: their launch.json in the folders above.")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str, ensure_ascii=False)


def _lines(argv: Sequence[str]) -> list[str]:
    """A flag and its values a line."""
    lines: list[str] = []
    for word in argv:
        if lines and not word.startswith("--") and lines[-1].startswith("--"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
