"""What is happening now, for a person who waits: a live display on a terminal, else a plain line now and then.

Owns when something is written to stderr; knows nothing of where the numbers come from.
"""

import re
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TextIO

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from loadgen.config import in_words
from loadgen.words import clean, console, duration, figure

PLAIN_EVERY_S = 5.0  # a log of an hour stays below a thousand lines
REFRESH_PER_S = 4  # the board has news once a second
NUMBER = re.compile(r"\d+(\.\d+)?")


class Progress:
    """The display of one run, used as a context manager. On a terminal it removes itself at the end."""

    def __init__(
        self, quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quiet, self._clock = quiet, clock
        self._console = console(stream or sys.stderr)
        self._live: Live | None = None
        self._phase = ""
        self._facts: dict[str, Any] = {}
        self._written_s: float | None = None

    def __enter__(self) -> Self:
        if not self._quiet and self._console.is_terminal and not self._console.is_dumb_terminal:
            # stdout is left alone: where it is a pipe, rich would send the results to stderr.
            self._live = Live(
                self._display(),
                console=self._console,
                refresh_per_second=REFRESH_PER_S,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def line(self, text: str) -> None:
        """Write a text that stays, unless quiet."""
        if not self._quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Write a text that stays, quiet or not."""
        self._console.print(clean(text), soft_wrap=True)

    def phase(self, text: str) -> None:
        """Say what is done while no requests are counted: starting, warm-up, stopping. A change is shown at once."""
        self._facts = {}
        self._enter(text)

    def update(self, facts: Mapping[str, Any]) -> None:
        """Add to what is known of the level under way; None takes a value away.

        Names: phase, variant, level, levels, concurrency, rate, finished, failed, tokens_per_s, in_flight,
        level_left_s, ladder_left_s, command_left_s; or, instead of level_left_s, window (with end_ns), t_ns and
        duration_s.
        """
        self._facts.update(facts)
        self._enter(str(facts.get("phase", self._phase)))

    def _enter(self, phase: str) -> None:
        # "starting, 12 s" after "starting, 11 s" is no news.
        changed = NUMBER.sub("", phase) != NUMBER.sub("", self._phase)
        self._phase = phase
        if self._quiet:
            return
        if self._live:
            self._live.update(self._display())
            return
        now_s = self._clock()
        if changed or self._written_s is None or now_s - self._written_s >= PLAIN_EVERY_S:
            self._written_s = now_s
            self._console.print(" · ".join(self._parts()), soft_wrap=True)

    def _parts(self) -> list[str]:
        return [part for part in (self._head(), self._counts(), self._left()) if part]

    def _display(self) -> Spinner:
        return Spinner("dots", Text("\n".join(self._parts()), overflow="fold"))

    def _head(self) -> str:
        known = self._facts
        level = f"level {known['level']} of {known.get('levels', '?')}" if known.get("level") else ""
        load = (known.get("concurrency"), known.get("rate"), known.get("trace"))
        asked = in_words(*load) if any(load) else ""
        return clean(" · ".join(part for part in (known.get("variant"), level, asked, self._phase) if part))

    def _counts(self) -> str:
        known = self._facts
        shown = {"finished": "done", "failed": "failed", "tokens_per_s": "tok/s", "in_flight": "in flight"}
        return " · ".join(f"{figure(known[key])} {word}" for key, word in shown.items() if known.get(key) is not None)

    def _left(self) -> str:
        known = self._facts
        left = {
            "level": _level_left_s(known),
            "whole ladder": known.get("ladder_left_s"),
            "whole command": known.get("command_left_s"),
        }
        shown = [f"{word} {duration(seconds)}" for word, seconds in left.items() if seconds is not None]
        return f"left: {', '.join(shown)}" if shown else ""


def _level_left_s(known: Mapping[str, Any]) -> float | None:
    """Seconds until the level ends: as told, else the rest of its window and one request to drain."""
    if known.get("level_left_s") is not None or known.get("window") is None:
        return known.get("level_left_s")
    return float(max(0, known["window"].end_ns - known.get("t_ns", 0)) / 1e9 + (known.get("duration_s") or 0))
