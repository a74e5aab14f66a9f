"""Which Points may be held against each other: what must match and does not, and which start belongs to which block.

Pure. A Point here is the content of its point.json with `folder`, `root` and `flags` added: its own folder, that of the
command that measured it, and what its variant was asked to be (`args.NAME`, `env.NAME`).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.config import Level, in_words
from loadgen.verdict import VALID

Point = Mapping[str, Any]
FOLDERS_SHOWN_MAX = 3
# What must be the same at one level beside its number; the kind is only the name of the file that it came from.
LOAD = ("requests", "arrival", "burstiness", "max_in_flight", "trace", "trace_speed")


@dataclass(frozen=True)
class Unlike:
    """Something that must match and does not: each value with the folders of the commands that have it."""

    name: str
    values: tuple[tuple[Any, tuple[str, ...]], ...]

    @property
    def words(self) -> str:
        """One line for a person."""
        return f"{self.name}: " + "; ".join(f"{_shown(value)} in {_places(roots)}" for value, roots in self.values)


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


def _places(roots: Sequence[str]) -> str:
    more = f" and {len(roots) - FOLDERS_SHOWN_MAX} more" if len(roots) > FOLDERS_SHOWN_MAX else ""
    return ", ".join(roots[:FOLDERS_SHOWN_MAX]) + more


@dataclass(frozen=True)
class Block:
    """One block as a comparison counts it: its number, and the command that measured its baseline."""

    number: int
    root: str


@dataclass(frozen=True)
class TraceLevel(Level):
    """The level of a trace: its `rate` is the mean one, and it is never the same as a process of that rate."""

    @property
    def words(self) -> str:
        """The level for a person."""
        return in_words(None, self.rate, "trace")


def level_of(point: Point) -> Level:
    """The level of a Point; that of a trace has the trace's mean rate."""
    load = point["load"]
    kind = TraceLevel if load.get("trace") else Level
    return kind(load.get("concurrency"), load.get("requests"), load.get("rate"))


def questions(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Points by what they ask: the workload, and where its load came in several ways also how it arrived.

    A number of streams cannot be held against requests a second, nor these against a trace.
    """
    ways = Counter(workload for workload, _ in {_way(point) for point in points if point["verdict"]["status"] == VALID})
    found: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        workload, arrival = _way(point)
        found[f"{workload} by {arrival}" if ways[workload] > 1 else workload].append(point)
    return found


def _way(point: Point) -> tuple[str, str]:
    level = level_of(point)
    arrival = "trace" if isinstance(level, TraceLevel) else "rate" if level.open else "concurrency"
    return str(point.get("workload")), arrival


def place_of(level: Level) -> float:
    """Where a level stands on an axis: its streams, or its requests a second."""
    return float(level.concurrency or level.rate or 0)


def unlike(points: Sequence[Point]) -> list[Unlike]:
    """What must match and differs, by name. Workloads of different names are never held against each other."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    names = sorted({name for point in points for name in _record(point)})  # what only some have differs too
    for point in points:
        for name, value in _must_match(point, names):
            found[name][json.dumps(value, sort_keys=True)].add(point["root"])
    return [_unlike(name, values) for name, values in sorted(found.items()) if len(values) > 1]


def _unlike(name: str, values: Mapping[str, set[str]]) -> Unlike:
    return Unlike(name, tuple((json.loads(value), tuple(sorted(roots))) for value, roots in values.items()))


def _record(point: Point) -> dict[str, Any]:
    """What must match by name, and the variant's own flags: one name stands for one variant."""
    own = {f"variant.{name} of {point['variant']}": value for name, value in (point.get("flags") or {}).items()}
    return {**(point.get("must_match") or {}).get("of", {}), **own}


def _must_match(point: Point, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    workload, record, own = point.get("workload"), _record(point), f" of {point['variant']}"
    for name in names:
        if name.startswith("variant.") and (not name.endswith(own) or "flags" not in point):
            continue
        yield (f"{name} of {workload}" if name == "workload_hash" else name), record.get(name)
    load = point["load"]
    at = in_words(load.get("concurrency"), load.get("rate"), load.get("trace"))
    for name in LOAD:
        yield f"load.{name} at {at} of {workload}", load.get(name)


def allowed(name: str, names: Sequence[str]) -> bool:
    """Whether a difference is named: wholly, or by what stands before a dot or a blank of it (`hardware`)."""
    return any(name == one or name.startswith((f"{one}.", f"{one} ")) for one in names)


def labels(points: Sequence[Point], differing: Sequence[str]) -> dict[str, str]:
    """By point_id what a comparison calls its variant: with the values of what was allowed to differ, where it does."""
    named: dict[str, str] = {}
    names = sorted({name for point in points for name in _record(point)})
    for point in points:
        of = {name: value for name, value in _must_match(point, names) if value is not None}
        told = [f"{_bare_name(name)}={_bare(of[name])}" for name in differing if name in of]
        named[point["point_id"]] = " ".join([point["variant"], *told])
    return named


def _bare_name(name: str) -> str:
    """Without the place that it is of: load.arrival of `load.arrival at rate 2/s of diverse`."""
    return name.removeprefix("variant.").partition(" of ")[0].partition(" at ")[0]


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def identity(point: Point) -> str:
    """What tells a Point from all others, wherever a copy of it lies; of one that never came to be what was asked."""
    if point.get("point_id"):
        return str(point["point_id"])
    told = [point.get(name) for name in ("root", "variant", "workload", "block", "load", "reason")]
    return json.dumps(told, sort_keys=True)


def once(points: Iterable[Point]) -> list[Point]:
    """Each Point once, in their order; of copies the one whose place comes first."""
    found = list(points)
    kept: dict[str, Point] = {}
    for point in sorted(found, key=lambda one: (str(one.get("root")), str(one.get("folder")))):
        kept.setdefault(identity(point), point)
    mine = {id(point) for point in kept.values()}
    return [point for point in found if id(point) in mine]


def newest(points: Sequence[Point], named: Mapping[str, str]) -> list[Point]:
    """One Point for each cell of a command: the last that is VALID; a second measurement took the first one's place."""
    kept: dict[tuple[Any, ...], Point] = {}
    for point in sorted(points, key=lambda one: str(one["started_at"])):
        if point["verdict"]["status"] == VALID and not point.get("repeat"):
            kept[_cell(point, named, point["root"])] = point
    return list(kept.values())


def _cell(point: Point, named: Mapping[str, str], root: str) -> tuple[Any, ...]:
    """The place of a Point in what a command measures."""
    return root, named[point["point_id"]], point.get("workload"), point["block"], level_of(point)


def blocks(points: Sequence[Point], named: Mapping[str, str], baseline: str) -> dict[str, Block]:
    """By point_id the block that a Point counts for.

    A command's block is one where it measured the baseline. A command without one joins, by the block's number, the
    command whose baseline ran last before it: two commands typed one after the other are one block. What that command
    measured itself stays its own: a start beside the baseline is a better pair than one at another time.
    """
    own = {_cell(point, named, point["root"]) for point in points}
    bases: dict[tuple[Any, int], dict[str, str]] = defaultdict(dict)  # (workload, block) -> root -> when
    for point in points:
        if named[point["point_id"]] == baseline:
            bases[point.get("workload"), point["block"]][point["root"]] = str(point["started_at"])
    found = {}
    for point in points:
        roots = bases.get((point.get("workload"), point["block"]), {})
        joined = _nearest(str(point["started_at"]), roots) if roots and point["root"] not in roots else point["root"]
        root = point["root"] if _cell(point, named, joined) in own else joined
        found[point["point_id"]] = Block(point["block"], root)
    return found


def _nearest(moment: str, roots: Mapping[str, str]) -> str:
    """The root whose moment comes last before this one, else the first after it."""
    before = [root for root, begun in roots.items() if begun <= moment]
    return max(before, key=lambda root: roots[root]) if before else min(roots, key=lambda root: roots[root])
