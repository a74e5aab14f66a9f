"""Accept length by kind of prompt: a figure and a sentence that says what it was read from.

Pure. A fixed prompt flatters speculation; which kinds do is what this shows.
"""

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from loadgen.comparison import Contest
from loadgen.page import chart, scales
from loadgen.page.chart import Box, Look
from loadgen.page.markup import Child, tag
from loadgen.page.plots import Looks
from loadgen.words import figure

ROW = 26.0
# What a length by kind was read from, in words.
SOURCES = {
    "requests": "requests tell their verify steps",
    "tokens_per_chunk": "tokens an event stand in, for requests do not tell their verify steps",
}


def accepted(contest: Contest) -> dict[str, dict[str, list[float]]]:
    """By variant and kind the accept lengths of all levels; variants that tell none are left out."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in contest.rows.values():
        for kind, value in row.accept_by_kind.items():
            found.setdefault(row.variant, {}).setdefault(kind, []).append(value)
    return {name: found[name] for name in contest.variants if name in found}


def source(contest: Contest) -> str:
    """By what each variant's lengths were told."""
    return (
        "; ".join(f"{', '.join(names)}: {SOURCES.get(name, name)}" for name, names in _sources(contest).items()) + "."
    )


def _sources(contest: Contest) -> dict[str, dict[str, None]]:
    """By source the variants."""
    found: dict[str, dict[str, None]] = {}
    for row in contest.rows.values():
        for point in row.points:
            for told in (point["summary"].get("by_kind") or {}).values():
                if told.get("accept_length") is not None:
                    found.setdefault(str(told.get("accept_source")), {})[row.variant] = None
    return found


def _unit(contest: Contest) -> str:
    stands_in = "tokens_per_chunk" in _sources(contest)
    return "tokens a verify step, or an event" if stands_in else "tokens a verify step"


def drawing(contest: Contest, some: Looks) -> Element | None:
    """A mark at the mean over levels, a line over their range; None where no variant tells a length."""
    values = accepted(contest)
    names = sorted({kind for of in values.values() for kind in of}, reverse=True)
    if not names:
        return None
    x = scales.linear([1.0, *(one for of in values.values() for several in of.values() for one in several)], zero=False)
    y = scales.Scale(-0.5, len(names) - 0.5, False, tuple((float(place), kind) for place, kind in enumerate(names)))
    left = min(150.0, 12 + chart.LETTER * max(map(len, names)))
    box = Box(x, y, height=46.0 + ROW * len(names), left=left, top=6.0)
    marks: list[Child] = [*chart.frame(box, _unit(contest), None)]
    for number, (variant, of) in enumerate(values.items()):
        for place, kind in enumerate(names):
            if several := of.get(kind):
                beside = chart.dodge(number, len(values), ROW * 1.6, 2 * chart.GAP_MAX)
                marks += _kind(box, several, place, beside, f"{variant}, {kind}", some[variant])
    title = f"{contest.workload}: accept length by kind of prompt"
    return chart.svg(box, title, "A mark at the mean over levels. All figures stand in the table below.", marks)


def _kind(box: Box, values: Sequence[float], place: int, beside: float, name: str, look: Look) -> Iterable[Element]:
    y, mean = box.down(place) + beside, sum(values) / len(values)
    low, high = box.across(min(values)), box.across(max(values))
    yield tag("path", d=f"M{low:.1f} {y:.1f}H{high:.1f}", class_=f"whisker {look.colour}")
    told = f"{name}: {figure(mean)}, at its levels {figure(min(values))} to {figure(max(values))}"
    yield chart.mark((box.across(mean), y), look, told)
