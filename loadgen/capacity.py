"""What one worker of this machine can measure exactly, as the last calibration found it, and whether that still holds.

One small file for each host, beside what other programs remember of a user. It must not know how it was measured, nor
what a Point makes of it.
"""

import dataclasses
import os
import platform
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from loadgen import store
from loadgen.dataset import read_json
from loadgen.errors import StorageError
from loadgen.words import figure

AGE_MAX = timedelta(days=30)  # kernels, neighbours and clocks change
CALIBRATE = "python -m loadgen.calibrate"
PACKAGES = ("loadgen", "aiohttp", "uvloop", "orjson", "ray")  # what decides how quick a worker is


@dataclass(frozen=True)
class Capacity:
    """Events a second that one worker drew within the error bound; `at_least`: the null server gave up before it."""

    events_per_s: float
    at_least: bool
    bound_ms: float
    calibrated_at: str  # ISO, UTC
    machine: dict[str, str]

    @property
    def least(self) -> str:
        """What stands before the figure."""
        return "at least " if self.at_least else ""

    def words(self) -> str:
        """The figure, its bound and its day: what stands behind a share of it."""
        day = self.calibrated_at[:10]
        return f"of {self.least}{figure(self.events_per_s)} events/s within {self.bound_ms:.3g} ms, {day}"


def machine() -> dict[str, str]:
    """What a figure holds for: this host, its processor, Python and the packages of the hot path."""
    return {
        "host": socket.gethostname(),
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def version(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"  # a checkout on the path


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def path() -> Path:
    """Where this host's figure lies: below XDG_STATE_HOME (~/.local/state). Homes may be shared between hosts."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "loadgen" / f"capacity-{store.folder_name(socket.gethostname())}.json"


def remember(capacity: Capacity, tries: Iterable[dict[str, Any]]) -> Path:
    """Write the figure and the tries behind it; where. Raises StorageError."""
    store.write_json(path(), {**dataclasses.asdict(capacity), "tries": list(tries)})
    return path()


def recall(hosts: Iterable[str]) -> tuple[Capacity | None, str]:
    """The figure that holds for workers on `hosts`, or None; and what to say of it.

    Nothing is raised: a Point is not refused for a figure that is not there.
    """
    here = machine()
    if any(host != here["host"] for host in hosts):
        return None, "workers on other hosts than the calibrated one"
    try:
        told = read_json(path())
        found = Capacity(**{field.name: told[field.name] for field in dataclasses.fields(Capacity)})
        age = datetime.now(UTC) - datetime.fromisoformat(found.calibrated_at)
        changed = [f"{name} {there}" for name, there in found.machine.items() if here.get(name) != there]
    except (StorageError, LookupError, TypeError, ValueError, AttributeError):
        return None, f"not calibrated, see {CALIBRATE}"
    if changed:
        return None, f"calibrated with {', '.join(changed)}: again by {CALIBRATE}"
    if age > AGE_MAX:
        return None, f"calibrated {age.days} days ago: again by {CALIBRATE}"
    return found, found.words()


def least(told: Mapping[str, tuple[Capacity | None, str]], hosts: Iterable[str]) -> tuple[Capacity | None, str]:
    """What holds for workers on all these hosts, by what each has recalled: the lowest figure; None where one has none.

    Hosts that were not asked are this one, or unknown.
    """
    found = [(host, *(told.get(host) or recall({host}))) for host in hosts]
    for host, able, note in found:
        if able is None:
            return None, f"{note} ({host})" if told else note
    capacities = [able for _, able, _ in found if able]
    if not capacities:
        return None, "no worker said where it ran"
    lowest = min(capacities, key=lambda able: able.events_per_s)
    return lowest, lowest.words()
