"""Failures on demand: what --sim-fault means. Pure; the process, the engine loop and the front end act on it."""

from collections.abc import Sequence
from dataclasses import dataclass

# kind -> (names and defaults of its numbers, what it does)
KINDS: dict[str, tuple[dict[str, float], str]] = {
    "die_at_start": ({"status": 1}, "exit with this status before being ready"),
    "die_after": ({"s": 5, "request": 0}, "SIGKILL itself this long after being ready, or after this request came"),
    "kill_scheduler": (
        {"s": 5, "request": 0},
        "the scheduler child dies, counted as die_after; the front end lives on",
    ),
    "hang": ({"s": 0, "request": 0}, "from then on, counted as die_after, accept connections and never answer again"),
    "never_ready": ({}, "load for ever and never open the port"),
    "slow_start": ({"s": 5}, "take this much longer to start"),
    "stall": ({"s": 1, "every_s": 5}, "the engine stands still for s in every every_s"),
    "slow_down": ({"share_per_s": 0.1}, "each second decode steps take this share of their length more"),
    "short": ({"share": 0.1}, "this share of the answers has half the tokens that were asked for"),
    "http_429": ({"share": 0.1}, "refuse this share of the requests with status 429"),
    "http_503": ({"share": 0.1}, "refuse this share of the requests with status 503"),
    "error_event": ({"share": 0.1}, "this share of the streams ends with an error event, status 200"),
    "cut_stream": ({"share": 0.1}, "this share of the streams is cut off in the middle"),
    "garbage": ({"share": 0.1}, "this share of the streams carries an event that is no JSON"),
    "huge_event": ({"share": 0.1, "mib": 8}, "this share of the streams carries one event of this many MiB"),
    "wrong_version": ({}, "/server_info names another version"),
    "other_variant": ({}, "run, and show, other speculation than the flags ask for"),
    "orphan": ({}, "leave a grandchild in a session of its own behind"),
    "ignore_sigterm": ({}, "SIGTERM does nothing"),
}
ALIASES = {"429": "http_429", "503": "http_503"}
STREAM_KINDS = ("error_event", "cut_stream", "garbage", "huge_event")
FAULT_AT_TOKEN = 8  # Late enough that a client has begun to trust the stream, early enough for short answers.


class FaultError(ValueError):
    """A --sim-fault that does not exist or cannot be; the message lists what there is."""


@dataclass(frozen=True)
class Fault:
    """One failure with its numbers, in the order that KINDS names them."""

    kind: str
    numbers: tuple[float, ...]


Faults = dict[str, Fault]


def parse(texts: Sequence[str]) -> Faults:
    """Faults by kind from KIND[:NUMBER[:NUMBER]] texts. Raises FaultError."""
    return {fault.kind: fault for fault in map(_parse_one, texts)}


def _parse_one(text: str) -> Fault:
    name, *given = text.strip().lower().replace("-", "_").split(":")
    kind = ALIASES.get(name, name)
    if kind not in KINDS:
        listed = "\n".join(f"  {k}{''.join(f':{n}' for n in ns)}  {does}" for k, (ns, does) in KINDS.items())
        raise FaultError(f"--sim-fault {text!r}: there is no fault {name!r}. There are:\n{listed}")
    defaults = KINDS[kind][0]
    if len(given) > len(defaults):
        raise FaultError(f"--sim-fault {text!r}: {kind} takes at most {len(defaults)} numbers ({', '.join(defaults)}).")
    numbers = list(defaults.values())
    for place, number in enumerate(given):
        numbers[place] = _number(text, number)
    _check(text, dict(zip(defaults, numbers, strict=True)))
    return Fault(kind, tuple(numbers))


def _number(text: str, number: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise FaultError(f"--sim-fault {text!r}: {number!r} is no number.") from None


def _check(text: str, numbers: dict[str, float]) -> None:
    if not all(0 <= value < float("inf") for value in numbers.values()):
        raise FaultError(f"--sim-fault {text!r}: numbers must be finite and not negative.")
    if numbers.get("share", 0) > 1:
        raise FaultError(f"--sim-fault {text!r}: a share lies between 0 and 1.")
    if "every_s" in numbers and numbers["s"] >= numbers["every_s"]:
        raise FaultError(f"--sim-fault {text!r}: it must stand still for less than the period.")


def seconds(faults: Faults, kind: str) -> float | None:
    """The first number of a timed fault, None if it was not asked for."""
    return faults[kind].numbers[0] if kind in faults else None


def hits(fault: Fault | None, ordinal: int) -> bool:
    """Whether the request with this ordinal (0, 1, ...) is struck, so that exactly the share of any long run is."""
    if fault is None:
        return False
    share = fault.numbers[0]
    return int((ordinal + 1) * share) > int(ordinal * share)
