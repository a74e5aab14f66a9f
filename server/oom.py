"""How often the kernel killed for want of memory: a process that it ends says nothing of it itself."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def kills() -> dict[str, int]:
    """Processes killed for want of memory so far, by place; places that do not tell are missing."""
    counted = {
        "this control group": next(filter(None, map(_count, _files())), None),
        "this machine": _count(Path("/proc/vmstat")),
    }
    return {place: count for place, count in counted.items() if count is not None}


def since(before: Mapping[str, int]) -> dict[str, int]:
    """How many more there are than `before`."""
    return {place: count - before[place] for place, count in kills().items() if place in before}


def _files() -> Iterator[Path]:
    """Where our own control group counts: version 2, version 1, and both as containers see them."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            inside = path.lstrip("/")
            if not controllers:
                yield from (GROUPS / inside / "memory.events", GROUPS / "memory.events")
            elif "memory" in controllers.split(","):
                yield from (GROUPS / "memory" / inside / "memory.oom_control", GROUPS / "memory" / "memory.oom_control")


def _count(file: Path) -> int | None:
    """The number behind `oom_kill` in a file of names and numbers."""
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text(encoding="utf-8").splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return None
