"""All results in order of time: sections of what may be compared, what each prefix concludes, what it overturned.

Pure: a function of the Points and of the variants that are known, in whatever order they come. A Point here is
pairing's; one that was asked for and never came to be is a Point without `point_id`, with the ledger's `reason`.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loadgen import comparison, conclusions, pairing
from loadgen.comparison import Contest, Times
from loadgen.conclusions import Conclusion
from loadgen.config import BASELINE
from loadgen.margin import in_words
from loadgen.pairing import LOAD, Point
from loadgen.verdict import FAILED, INTERRUPTED, INVALID, VALID
from server.spec import parse_version

EARLIEST = datetime.min.replace(tzinfo=UTC)  # for what does not tell its time
KEY_CHARS = 8


@dataclass(frozen=True)
class Known:
    """A variant that can be asked for: whether it speculates, its first engine version, the question it answers."""

    name: str
    speculates: bool
    since: str | None = None
    question: str = ""


@dataclass(frozen=True)
class Result:
    """What one command left, dated by its last Point."""

    root: str
    ended: datetime | None
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Standing:
    """A conclusion, and the result that brought what it claims; its figures may be of later ones."""

    conclusion: Conclusion
    since: Result


@dataclass(frozen=True)
class Superseded:
    """A conclusion with its last figures, and the result that overturned it."""

    old: Standing
    by: Result


@dataclass(frozen=True)
class Section:
    """Points that may be held against each other, of all statuses, and what follows from them.

    `key` names the section for good: more results do not change it.
    """

    key: str
    points: tuple[Point, ...]
    contest: Contest
    standing: tuple[Standing, ...]
    superseded: tuple[Superseded, ...]

    @property
    def about(self) -> Point:
        """The Point that tells what all have in common."""
        return next(point for point in self.points if counts(point))


@dataclass(frozen=True)
class History:
    """Everything that is known. `loose` are the Points that did not become VALID and belong to no section."""

    known: tuple[Known, ...]
    results: tuple[Result, ...]
    sections: tuple[Section, ...]
    loose: tuple[Point, ...]


def history(points: Iterable[Point], known: Sequence[Known], times: Times) -> History:
    """The whole record. `times` gives a Point's latencies, as `comparison.contests` takes them."""
    found = results(_ended(points))
    keys, loose = _keys([point for result in found for point in result.points])
    names = list(dict.fromkeys(keys.values()))
    # What was known with each result: a sentence of then does not miss what nobody had heard of.
    by_then = [_known(known, found[: place + 1]) for place in range(len(found))]
    sections = tuple(_section(name, found, keys, by_then, times) for name in names)
    return History(tuple(_known(known, found)), tuple(found), sections, tuple(loose))


def _ended(points: Iterable[Point]) -> list[Point]:
    """Each Point once, by time, without those that were interrupted."""
    kept = (point for point in pairing.once(points) if point["verdict"]["status"] != INTERRUPTED)
    return sorted(kept, key=lambda point: (when(point) or EARLIEST, pairing.identity(point)))


def when(point: Point) -> datetime | None:
    """When a Point began; None where it never did."""
    try:
        begun = datetime.fromisoformat(str(point.get("started_at")))
    except ValueError:
        return None
    return begun if begun.tzinfo else begun.replace(tzinfo=UTC)


def results(points: Sequence[Point]) -> list[Result]:
    """The commands that left these Points, in order of time."""
    by_root: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_root[point["root"]].append(point)
    found = [
        Result(root, max((moment for point in some if (moment := when(point))), default=None), tuple(some))
        for root, some in by_root.items()
    ]
    return sorted(found, key=lambda result: (result.ended or EARLIEST, result.root))


def _keys(points: Sequence[Point]) -> tuple[dict[str, str], list[Point]]:
    """The section of each Point by its identity, and those that have none.

    A section is there where a Point of it is VALID. One that failed too early to tell its stack joins what its own
    command measured of the same workload.
    """
    valid = {_key(point) for point in points if counts(point)}
    near: dict[tuple[str, Any], str] = {}
    for point in points:
        if _key(point) in valid:
            near.setdefault((point["root"], point.get("workload")), _key(point))
    keys, loose = {}, []
    for point in points:
        key = _key(point) if _key(point) in valid else None
        if key is None and not _agreed(point).get("engine.kind"):
            key = near.get((point["root"], point.get("workload")))
        if key:
            keys[pairing.identity(point)] = key
        else:
            loose.append(point)
    return keys, loose


def counts(point: Point) -> bool:
    """Whether a comparison takes it: VALID, and not one more look at the end of a command."""
    return point["verdict"]["status"] == VALID and not point.get("repeat")


def _agreed(point: Point) -> Mapping[str, Any]:
    return (point.get("must_match") or {}).get("of") or {}


def _key(point: Point) -> str:
    """The name of all Points that agree with this one in what must match in a comparison."""
    load = point["load"]
    shape = [load.get("concurrency") is None, load.get("requests") is None]
    shape += [load.get(name) for name in LOAD if name != "requests"]
    names = ("engine", "engine_version", "simulated", "sim_speed", "model", "workload", "workload_hash")
    whole = [_agreed(point), [point.get(name) for name in names], shape]
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    words = f"{point.get('model')}-{point.get('workload')}".lower()
    plain = "".join(char if (char.isascii() and char.isalnum()) or char == "_" else "-" for char in words)
    return f"{plain}-{digest[:KEY_CHARS]}"


def _known(known: Sequence[Known], found: Sequence[Result]) -> list[Known]:
    """The variants of conf/, and those that only the data has."""
    all_of = {one.name: one for one in known}
    for result in found:
        for point in result.points:
            name = str(point["variant"])
            mine = all_of.get(name, Known(name, False))
            speculates = mine.speculates or point.get("spec_mode") not in (None, "none")
            all_of[name] = Known(name, speculates, mine.since, mine.question)
    return sorted(all_of.values(), key=lambda one: (one.name != BASELINE, one.name))


def _section(
    key: str, found: Sequence[Result], keys: Mapping[str, str], by_then: Sequence[Sequence[Known]], times: Times
) -> Section:
    """One section: the conclusions of each prefix of the results, and which of them a later one overturned."""
    standing: dict[str, Standing] = {}
    superseded: list[Superseded] = []
    points: list[Point] = []
    contest: Contest | None = None
    for result, known in zip(found, by_then, strict=True):
        mine = [point for point in result.points if keys.get(pairing.identity(point)) == key]
        points += mine
        if not mine or not any(map(counts, points)):
            continue
        contest = _contest(points, times)
        told = conclusions.conclude(contest, {one.name for one in known if one.speculates}, _unseen(points, known))
        for new in told:
            old = standing.get(new.topic)
            over = old is not None and conclusions.overturns(new, old.conclusion)
            if old and over:
                superseded.append(Superseded(old, result))
            goes_on = old if old and old.conclusion.claims and not over else None
            standing[new.topic] = Standing(new, goes_on.since if goes_on else result)
    assert contest, f"{key} has no VALID Point"
    return Section(key, tuple(points), contest, tuple(standing.values()), tuple(superseded))


def _contest(points: Sequence[Point], times: Times) -> Contest:
    whole = sorted((point for point in points if point.get("point_id")), key=lambda point: str(point["started_at"]))
    named = {point["point_id"]: str(point["variant"]) for point in whole}
    (contest,) = comparison.contests(whole, times, named, BASELINE)
    return contest


def _unseen(points: Sequence[Point], known: Sequence[Known]) -> list[str]:
    """The speculative variants of which nothing VALID is among these Points, each with why where that is known."""
    seen = {point["variant"] for point in points if point["verdict"]["status"] == VALID}
    versions = (point.get("engine_version") for point in points if point.get("engine") in ("sglang", "sim"))
    version = next(filter(None, versions), None)
    told = []
    for one in known:
        if not one.speculates or one.name in seen:
            continue
        statuses = {point["verdict"]["status"] for point in points if point["variant"] == one.name}
        later = one.since and version and parse_version(one.since) > parse_version(version)
        why = FAILED if FAILED in statuses else INVALID if statuses else f"from {one.since} on" if later else ""
        told.append(f"{one.name} ({why})" if why else one.name)
    return told


def reason_of(point: Point) -> str:
    """Why a Point is not VALID, in one line."""
    told = point.get("reason") or "; ".join(in_words(reason) for reason in point["verdict"].get("reasons", ()))
    return str(told or "no reason was recorded").partition("\n")[0]


def by_variant(points: Iterable[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Points of each variant, the baseline first."""
    found: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        found[str(point["variant"])].append(point)
    yield from sorted(found.items(), key=lambda item: (item[0] != BASELINE, item[0]))
