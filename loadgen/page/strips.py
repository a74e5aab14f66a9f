"""What happened during one Point, as strips over one axis of time: in flight, queued, tokens a second.

Pure. `timeline` reads what is drawn here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from loadgen.page import chart, scales
from loadgen.page.chart import Box, Look
from loadgen.page.markup import Child, tag
from loadgen.words import figure

Samples = tuple[tuple[float, float], ...]  # (seconds since the Point began, value)
HEIGHT, STRIP, FIRST, APART = 392.0, 84.0, 24.0, 26.0


@dataclass(frozen=True)
class Timeline:
    """One Point over time, seconds since it began; `window_s` is None for a whole run.

    `in_flight` and `tokens_per_s` are of steps of `step_s`; what the server told (`running`, `queued`) and the client's
    longest loop lag (`lag_ms`) are samples, empty where nobody told.
    """

    variant: str
    level: str
    folder: str
    window_s: tuple[float, float] | None
    step_s: float
    in_flight: tuple[float, ...]
    tokens_per_s: tuple[float, ...]
    running: Samples
    queued: Samples
    lag_ms: Samples

    @property
    def end_s(self) -> float:
        """Where its last step ends."""
        return self.step_s * len(self.in_flight)


def drawing(line: Timeline, look: Look, workload: str) -> Element:
    """Three strips: requests in flight with those that run at the server, those queued there, tokens a second."""
    x = scales.linear([0.0, line.end_s])
    x = replace(x, high=max(line.end_s, 1e-9), ticks=tuple(tick for tick in x.ticks if tick[0] <= line.end_s))
    boxes = [_box(x, number, values) for number, values in enumerate(_heights(line))]
    marks: list[Child] = []
    names = ("requests in flight (thin: running at the server)", "queued at the server", "output tokens a second")
    for number, (box, name) in enumerate(zip(boxes, names, strict=True)):
        marks += [*_shades(box, line), *chart.frame(box, "seconds" if number == len(boxes) - 1 else "", name)]
    marks += _parts(boxes[0], line)
    marks += [*_steps(boxes[0], line.in_flight, line, look), *_samples(boxes[0], line.running, look)]
    if line.queued:
        marks += _samples(boxes[1], line.queued, look, "strip")
    else:
        middle = (boxes[1].left + 8, boxes[1].floor - 8)
        marks.append(tag("text", "not told", x=middle[0], y=middle[1], class_="tick"))
    marks += _steps(boxes[2], line.tokens_per_s, line, look)
    title = f"{workload}: {line.variant} at {line.level} over time"
    return chart.svg(boxes[-1], title, in_words(line), marks)


def _box(x: scales.Scale, number: int, values: Sequence[float]) -> Box:
    top = FIRST + number * (STRIP + APART + 8)
    shown = x if number == 2 else replace(x, ticks=tuple((value, "") for value, _ in x.ticks))
    return Box(shown, scales.linear([*values, 2.0], ticks_max=4), height=HEIGHT, top=top, bottom=HEIGHT - top - STRIP)


def _heights(line: Timeline) -> tuple[list[float], list[float], list[float]]:
    told = [value for _, value in line.running]
    return [*line.in_flight, *told], [value for _, value in line.queued], list(line.tokens_per_s)


def _shades(box: Box, line: Timeline) -> Iterable[Element]:
    """What does not count is shaded; the window stays clear."""
    start, end = line.window_s or (0.0, line.end_s)
    for low, high in ((0.0, start), (end, line.end_s)):
        if high > low:
            yield chart.shade(box, low, high, "outside")


def _parts(box: Box, line: Timeline) -> Iterable[Element]:
    """The names of the parts, as far as they have room."""
    if line.window_s is None:
        return
    start, end = line.window_s
    for low, high, name in ((0.0, start, "ramp"), (start, end, "window"), (end, line.end_s, "drain")):
        middle = (box.across(low) + box.across(high)) / 2
        if box.across(high) - box.across(low) > chart.LETTER * len(name):
            yield tag("text", name, x=middle, y=box.floor - 5, class_="part", text_anchor="middle")


def _steps(box: Box, values: Sequence[float], line: Timeline, look: Look) -> Iterable[Element]:
    places = [(box.across(number * line.step_s), box.down(value)) for number, value in enumerate(values)]
    if places:
        last = (box.across(line.end_s), places[-1][1])
        yield chart.steps([*places, last], look)


def _samples(box: Box, samples: Samples, look: Look, class_: str = "thin") -> Iterable[Element]:
    places = [(box.across(moment), box.down(value)) for moment, value in samples]
    if places:
        yield chart.line(places, look, class_)


def in_words(line: Timeline) -> str:
    """A timeline's highest values, and the run that it is of."""
    window = f"window {line.window_s[0]:.1f} to {line.window_s[1]:.1f} s" if line.window_s else "whole run, no window"
    parts = [
        f"{line.end_s:.1f} s, {window}",
        f"at most {figure(max(line.in_flight, default=0.0))} requests in flight",
        f"at most {figure(max(value for _, value in line.queued))} queued" if line.queued else "queue not told",
        f"at most {figure(max(line.tokens_per_s, default=0.0))} tokens a second over {line.step_s:g} s",
        *([f"client's loop lag at most {figure(max(value for _, value in line.lag_ms))} ms"] if line.lag_ms else []),
    ]
    return f"{'; '.join(parts)}; from {line.folder}"
