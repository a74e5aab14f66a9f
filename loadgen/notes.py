"""People's own notes in a file that we write: between marks they are kept word for word, all else is ours.

Pure. Marks are HTML comments, each alone on its line. What stands outside them has a fingerprint in the file's first
line, so that a sentence that somebody wrote there is refused, never lost.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadgen.errors import ConfigError

BEGIN = re.compile(r"\s*<!-- notes: begin(?: (?P<name>[A-Za-z0-9_.-]+))? -->\s*")
END = re.compile(r"\s*<!-- notes: end -->\s*")
LIKE_A_MARK = re.compile(r"<!--\s*notes\s*:", re.IGNORECASE)
MARKS = "<!-- notes: begin NAME --> and <!-- notes: end -->"
HEAD = re.compile(r"<!-- loadgen journal, all but the notes: sha256 (?P<hash>[0-9a-f]{64}) -->\s*")
HEADING = re.compile(r"#{1,6} ")
ELSEWHERE = "## Other notes"


@dataclass(frozen=True)
class Area:
    """One pair of marks: its name ("" for none), the lines between them, and our heading that it stands below."""

    name: str
    lines: tuple[str, ...]
    below: str


@dataclass(frozen=True)
class Kept:
    """What a file holds: its areas in order, the fingerprint that it says and the one that its other text has."""

    areas: tuple[Area, ...]
    told: str
    found: str

    @property
    def untouched(self) -> bool:
        """Nobody wrote outside the marks."""
        return self.told == self.found


@dataclass(frozen=True)
class Part:
    """A heading of ours, unique in the file, what stands below it, and the name of its area for notes, or None."""

    heading: str
    lines: tuple[str, ...]
    area: str | None = None


def read(text: str, file: str) -> Kept:
    """The areas of a file that we wrote. Raises ConfigError for broken marks, with the line, and for others' files."""
    told, below, ours, areas = None, "", list[str](), list[Area]()
    opened: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        begins = BEGIN.fullmatch(line)
        if (begins and opened) or (END.fullmatch(line) and not opened) or _broken(line):
            raise ConfigError(f"{file}, line {number}: {_wrong(line, opened[0] if opened else None)}")
        if begins:
            opened = (number, begins["name"] or "", [])
        elif opened and END.fullmatch(line):
            areas.append(Area(opened[1], tuple(opened[2]), below))
            opened = None
        elif opened:
            opened[2].append(line)
        elif told is None and (head := HEAD.fullmatch(line)):
            told = head["hash"]
        else:
            ours.append(line)
            below = line.rstrip() if HEADING.match(line) else below
    if opened:
        raise ConfigError(f"{file}, line {opened[0]}: these notes have no end; add <!-- notes: end --> below them")
    if told is None:
        raise ConfigError(f"{file} was not written by this command; give another --file, or move this one away")
    _refuse_twice(areas, file)
    return Kept(tuple(areas), told, fingerprint(ours))


def _broken(line: str) -> bool:
    return bool(LIKE_A_MARK.search(line)) and not BEGIN.fullmatch(line) and not END.fullmatch(line)


def _wrong(line: str, opened: int | None) -> str:
    if _broken(line):
        return f"this is no mark as it stands; marks are {MARKS}, each alone on its line"
    if opened is None:
        return "these notes end and never began; add <!-- notes: begin NAME --> above them, or remove this mark"
    return f"notes begin inside those that begin in line {opened}; end those first with <!-- notes: end -->"


def _refuse_twice(areas: Sequence[Area], file: str) -> None:
    names = [area.name for area in areas if area.name]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{file} has two notes called {name}; put both texts between one pair of marks")


def fingerprint(lines: Iterable[str]) -> str:
    """Of text outside the marks; blank lines and blanks at a line's end do not count, since editors change them."""
    kept = [line.rstrip() for line in lines if line.strip()]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def compose(parts: Sequence[Part], areas: Sequence[Area]) -> str:
    """The whole file: our parts with the notes in their places.

    Notes with a name of ours stand in its part; others below the heading where they were, before the next one; those
    whose heading is gone at the end. None is left out, but for pairs of marks of others with nothing between them.
    """
    named, headings = {part.area for part in parts if part.area}, {part.heading for part in parts}
    own = {area.name: area for area in areas if area.name in named}
    others = [area for area in areas if area.name not in named and any(line.strip() for line in area.lines)]
    homeless = [area for area in others if area.below not in headings]
    ours: list[str] = []
    blocks: list[Sequence[str]] = []
    for part in [*parts, *([Part(ELSEWHERE, ())] if homeless else [])]:
        ours += [part.heading, *part.lines]
        blocks += [[part.heading], part.lines]
        blocks += [_marked(own.get(part.area, Area(part.area, (), "")))] if part.area else []
        blocks += [_marked(area) for area in others if area.below == part.heading]
    blocks += [_marked(area) for area in homeless if area.below != ELSEWHERE]
    head = f"<!-- loadgen journal, all but the notes: sha256 {fingerprint(ours)} -->"
    return "\n\n".join("\n".join(block) for block in [[head], *blocks] if block) + "\n"


def _marked(area: Area) -> list[str]:
    return [f"<!-- notes: begin{f' {area.name}' if area.name else ''} -->", *area.lines, "<!-- notes: end -->"]
