"""How a number, a duration or a foreign text is written for a person, and on what kind of console.

Owns digits, units and colours; knows nothing of Points.
"""

from typing import Any, TextIO

from rich.console import Console

PIPED_COLUMNS = 200  # a pipe has no width; tables take what they need, sentences are seldom longer
NOTHING = "–"
NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def console(stream: TextIO, width: int | None = None) -> Console:
    """A console on `stream`: colours only on a terminal and without NO_COLOR, nothing in a text taken for markup."""
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    if not encoding.startswith("utf") and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # a "·" must not end a run
    if width is None and not stream.isatty():
        width = PIPED_COLUMNS
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def clean(value: Any) -> str:
    """A text without anything that a terminal would obey; line ends stay."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in str(value))


def figure(value: float | None) -> str:
    """Three digits, or all of the whole part, thousands apart by a space: 6 412, 52.3, 4.81."""
    if value is None:
        return NOTHING
    size = abs(value)
    decimals = 0 if size >= 99.95 or value == int(value) else 1 if size >= 9.995 else 2
    return f"{value:,.{decimals}f}".replace(",", " ")


def percent(share: float | None) -> str:
    """A share as per cent with two digits."""
    if share is None:
        return NOTHING
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"


def duration(seconds: float) -> str:
    """Seconds in words: 12 s, 1 min 40 s, 2 h 05 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def many(count: int, noun: str) -> str:
    """A count with its noun in the right number."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def simulated(speed: float | None) -> str:
    """The heading of every simulated result."""
    speed = speed or 1.0
    if speed == 1:
        return "SIMULATED x1: at the speed of the profile's hardware"
    if speed < 1:
        return f"SIMULATED x{speed:g}: {speed:g} times the speed of the profile's hardware"
    word = NUMBER_WORDS.get(int(speed), f"{speed:g}") if speed == int(speed) else f"{speed:g}"
    return f"SIMULATED x{speed:g}: {word} times faster than the profile's hardware"
