"""One figure as inline SVG: frame, lines, marks, whiskers, bands, a legend.

Pure. Colours are classes, so that the page's style can turn them for the dark; every look has a mark and a dash of its
own, so that nothing is told by colour alone. Knows nothing of variants. A figure is drawn 400 wide, the width of a
phone: there its letters have their own size, on a wider page they are larger.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

from loadgen.page.markup import Child, key, tag
from loadgen.page.scales import Scale

WIDTH, HEIGHT = 400.0, 270.0
COLOURS = 7  # classes c0 to c6 in page.css; c0 is the text's own
DASHES = (None, "7 3", "2 3", "9 3 2 3", "14 4")
SIZE = 3.6  # half of a mark
ARM = 0.42  # half the width of a plus's arms
PLUS = ((-ARM, -1.3), (ARM, -1.3), (ARM, -ARM), (1.3, -ARM), (1.3, ARM), (ARM, ARM),
        (ARM, 1.3), (-ARM, 1.3), (-ARM, ARM), (-1.3, ARM), (-1.3, -ARM), (-ARM, -ARM))  # fmt: skip
# Corners of the marks, in halves of a mark.
OUTLINES = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.25), (1.25, 0.9), (-1.25, 0.9)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "cross": tuple((0.71 * (dx - dy), 0.71 * (dx + dy)) for dx, dy in PLUS),
    "down": ((0, 1.25), (1.25, -0.9), (-1.25, -0.9)),
    "plus": PLUS,
}
MARKS = ("circle", *OUTLINES)
GAP_MAX = 3.0  # between the marks of neighbours at the same level
LETTER = 6.6  # mean width of one in the small text, wide ones counted in

Place = tuple[float, float]


@dataclass(frozen=True)
class Look:
    """How one variant is drawn wherever it appears."""

    number: int

    @property
    def colour(self) -> str:
        """Its class; the first one's is nobody else's."""
        return f"c{1 + (self.number - 1) % (COLOURS - 1) if self.number else 0}"

    @property
    def mark(self) -> str:
        """Its shape; when a colour comes again, it is with another shape."""
        return MARKS[self.number % len(MARKS)]

    @property
    def dash(self) -> str | None:
        """Its line."""
        return DASHES[self.number % len(DASHES)]


@dataclass(frozen=True)
class Box:
    """Where a figure's values lie on its paper."""

    x: Scale
    y: Scale
    width: float = WIDTH
    height: float = HEIGHT
    left: float = 42.0
    right: float = 10.0
    top: float = 24.0
    bottom: float = 40.0

    def across(self, value: float) -> float:
        """Pixels from the left."""
        return self.left + self.x.at(value) * (self.width - self.left - self.right)

    def down(self, value: float) -> float:
        """Pixels from the top."""
        return self.height - self.bottom - self.y.at(value) * (self.height - self.top - self.bottom)

    @property
    def floor(self) -> float:
        """The line that x ticks hang from."""
        return self.height - self.bottom


def svg(box: Box, title: str, told: str, marks: Iterable[Child]) -> Element:
    """The drawing. `title` must be the page's only one of its words; `told` is for who cannot see it."""
    name = f"figure-{key(title)}"
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", told, id=f"{name}-desc"),
        *marks,
        viewBox=f"0 0 {box.width:g} {box.height:g}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )


def frame(box: Box, x_label: str, y_label: str | None) -> Iterable[Element]:
    """Grid, ticks and the names of both axes; that of y stands level, above its axis."""
    end = box.width - box.right
    for value, text in box.y.ticks:
        y = box.down(value)
        yield tag("line", x1=box.left, x2=end, y1=y, y2=y, class_="grid")
        yield tag("text", text, x=box.left - 5, y=y + 3.5, class_="tick", text_anchor="end")
    for value, text in box.x.ticks:
        x = box.across(value)
        yield tag("line", x1=x, x2=x, y1=box.floor, y2=box.floor + 4, class_="axis")
        beyond = x + LETTER * len(text) / 2 > box.width
        yield tag("text", text, x=x, y=box.floor + 15, class_="tick", text_anchor="end" if beyond else "middle")
    yield tag("line", x1=box.left, x2=end, y1=box.floor, y2=box.floor, class_="axis")
    if y_label:
        yield tag("text", y_label, x=2.0, y=box.top - 12, class_="name")
    if x_label:
        yield tag("text", x_label, x=end, y=box.floor + 33, class_="name", text_anchor="end")


def line(places: Sequence[Place], look: Look, class_: str = "line") -> Element:
    """Straight from place to place."""
    told = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(places))
    return tag("path", d=told, class_=f"{class_} {look.colour}", stroke_dasharray=look.dash)


def steps(places: Sequence[Place], look: Look) -> Element:
    """From place to place by steps: each height holds until the next place."""
    parts = [f"M{places[0][0]:.1f} {places[0][1]:.1f}", *(f"H{x:.1f}V{y:.1f}" for x, y in places[1:])]
    return tag("path", d="".join(parts), class_=f"strip {look.colour}")


def whisker(box: Box, x: float, interval: Place, look: Look, capped: bool = True) -> Element:
    """An interval, upright at the pixel `x`; an end that leaves the picture is an arrow, not a cap."""
    drawn = f"M{x:.1f} {box.down(interval[0]):.1f}V{box.down(interval[1]):.1f}"
    for limit, way in zip(interval, (-3, 3), strict=True):
        y = box.down(limit)
        if not box.y.low <= limit <= box.y.high:
            drawn += f"M{x - 3:.1f} {y + way:.1f}L{x:.1f} {y:.1f}L{x + 3:.1f} {y + way:.1f}"
        elif capped:
            drawn += f"M{x - 3:.1f} {y:.1f}h6"
    return tag("path", d=drawn, class_=f"whisker {look.colour}")


def mark(place: Place, look: Look, told: str = "") -> Element:
    """A variant's own shape, with what the pointer is told above it."""
    return tag(
        "g",
        tag("title", told) if told else None,
        tag("path", d=_shape(look.mark, *place, SIZE), class_=f"mark {look.colour}"),
    )


def _shape(name: str, x: float, y: float, size: float) -> str:
    if name == "circle":
        return f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size:.1f} 0a{size} {size} 0 1 0 {-2 * size:.1f} 0z"
    return "M" + "L".join(f"{x + size * dx:.1f} {y + size * dy:.1f}" for dx, dy in OUTLINES[name]) + "z"


def shade(box: Box, low: float, high: float, class_: str) -> Element:
    """An upright band from one x to another."""
    left, right = box.across(low), box.across(high)
    return tag("rect", x=left, y=box.top, width=max(right - left, 0.5), height=box.floor - box.top, class_=class_)


def level_band(box: Box, low: float, high: float, class_: str) -> Element:
    """A level band from one y to another."""
    top, bottom = box.down(high), box.down(low)
    return tag("rect", x=box.left, y=top, width=box.width - box.left - box.right, height=bottom - top, class_=class_)


def labels(box: Box, wanted: Iterable[tuple[Place, str, Look]]) -> Iterable[Element]:
    """A short text beside each place, above, below, right or left of it; none where every one would hide another."""
    taken: list[tuple[float, float, float, float]] = []
    for (x, y), text, look in wanted:
        half = LETTER * len(text) / 2 + 1
        for dx, dy in ((0, -8), (0, 15), (half + 8, 3.5), (-half - 8, 3.5)):
            spot = (x + dx - half, y + dy - 9, x + dx + half, y + dy + 1)
            inside = spot[0] >= box.left and spot[2] <= box.width and spot[1] >= 0 and spot[3] <= box.floor
            if inside and not any(_meet(spot, other) for other in taken):
                taken.append(spot)
                place = {"x": x + dx, "y": y + dy}
                yield tag("text", text, class_=f"label {look.colour}", text_anchor="middle", **place)
                break


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def dodge(number: int, count: int, room: float, gap_max: float = GAP_MAX) -> float:
    """How far beside its level's place the one of `count` stands: whiskers must not hide each other.

    `room` is the distance to the nearest other level in pixels, of which half is used.
    """
    return (number - (count - 1) / 2) * min(gap_max, room / 2 / count)


def nearest(places: Iterable[float]) -> float:
    """The smallest distance between two of these places; a wide one where there is no second."""
    ordered = sorted(places)
    return min((after - before for before, after in pairwise(ordered)), default=WIDTH)


def legend(looks: Iterable[tuple[str, Look]]) -> Element:
    """Names beside their lines and marks, as a list."""
    return tag("ul", (tag("li", _sample(look), name) for name, look in looks), class_="legend")


def _sample(look: Look) -> Element:
    marks = (line([(1, 7), (33, 7)], look), mark((17, 7), look))
    return tag("svg", *marks, viewBox="0 0 34 14", width=34, height=14, aria_hidden="true")
