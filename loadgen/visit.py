"""What a node of a joined cluster tells of itself before anything starts there, and what of that refuses a run.

`tell` runs on the node. It must not know of Ray.
"""

import os
import platform
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadgen import capacity
from loadgen.errors import ClusterError

# What rows, stamps and messages between hosts depend on.
PACKAGES = ("ray", "aiohttp", "pyarrow", "uvloop", "orjson", "numpy")
Told = Mapping[str, Any]


def tell(files: Sequence[str], variable: str | None) -> dict[str, Any]:
    """This node's versions and capacity, which of `files` it lacks, and whether the key's variable is set here."""
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        **{name: capacity.version(name) for name in PACKAGES},
        "missing": [name for name in files if not Path(name).is_file()],
        "key": variable is None or bool(os.environ.get(variable)),
        "niceness": os.nice(0),
        "capacity": capacity.recall({socket.gethostname()}),
    }


def require_alike(here: Told, others: Iterable[Told], variable: str | None) -> None:
    """Refuse nodes that are not as the driver's. Raises ClusterError, one sentence with every difference."""
    wrong: list[str] = []
    for told in others:
        differ = [name for name in ("python", *PACKAGES) if told[name] != here[name]]
        wrong += [f"{told['host']} has {name} {told[name]}, {here['host']} has {here[name]}" for name in differ]
        wrong += [f"{told['host']} has no file {name}" for name in told["missing"]]
        if not told["key"]:
            wrong.append(f"{variable} is not set on {told['host']} where its Ray was started")
    if wrong:
        raise ClusterError(f"the nodes of the cluster differ: {'; '.join(wrong)}; make them alike, then run again")


def require_apart(told: Iterable[Told]) -> None:
    """Refuse hosts of one name: rows, clocks and calibrations are told apart by it. Raises ClusterError."""
    names = [one["host"] for one in told]
    if same := sorted({name for name in names if names.count(name) > 1}):
        raise ClusterError(f"several nodes call themselves {', '.join(same)}; give each host a name of its own")


def warnings(told: Iterable[Told]) -> list[str]:
    """What a person should know of nodes that can be used."""
    nice = sorted(f"{one['host']} ({one['niceness']})" for one in told if one["niceness"] > 0)
    words = "every other program goes before the clocks there; start its Ray with RAY_worker_niceness=0"
    return [f"Ray runs its workers with a niceness on {', '.join(nice)}: {words}"] if nice else []
