"""One running, proven server as the driver knows it, and what its Points have shown of it so far.

Knows nothing of how it was started or is stopped.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen import cluster
from loadgen.nodes import Places
from loadgen.window import Measured
from server import effects, proof, tls
from server.variant import ServerSpec, mode_of, parse_version

PROFILED = "torch's profiler has run in this server before (engine.profile): it may be slower than a fresh one"


@dataclass
class Launched:
    """A running, proven server, and what its Points have shown of it so far."""

    id: str
    name: str  # the part of the id by which its processes can be found
    spec: ServerSpec
    block: int
    server: cluster.Server
    endpoint: dict[str, Any]
    folder: Path
    places: Places
    stem: str  # "" or "_2": a second launch of the same run has files of its own
    warm_up_s: float = 0.0
    measured: list[Measured] = field(default_factory=list)  # of the workload that `measured_hash` names
    measured_hash: str = ""
    points: list[str] = field(default_factory=list)  # the folders' names of its Points so far
    metrics: list[dict[str, Any]] = field(default_factory=list)
    must_match: dict[str, Any] = field(default_factory=dict)  # of launch.json
    repeat: bool = False  # it measures once more what another launch measured before
    profiled: bool = False  # torch's profiler has run in it
    log_bytes: int = 0  # of its log, fetched so far from a node without the driver's disk
    gone: bool = False  # it ended beside a Point: the next one needs another

    def point_id(self, name: str) -> str:
        """An id for the next Point, whose folder has this name: other workloads of a grid have folders of the same."""
        self.points.append(name)
        return f"{self.id}-{name}{suffix(self.points.count(name))}"

    @property
    def log(self) -> Path:
        """Where the driver finds what the server has written."""
        return self.folder / f"server{self.stem}.log"

    @property
    def simulated(self) -> bool:
        """Whether what answers is a simulation, asked for or not."""
        told = [self.endpoint, *self.endpoint.get("endpoints", [])]
        return self.spec.engine == "sim" or any((one.get("server_info") or {}).get("simulated") for one in told)

    @property
    def sim_speed(self) -> float | None:
        """Times faster than the profile's hardware; None for a real engine."""
        told = (self.endpoint.get("server_info") or {}).get("sim_speed")
        return float(told or self.spec.sim_speed) if self.simulated else None

    @property
    def tells_verify_steps(self) -> bool:
        """Whether chat can be asked for each request's verify steps (SGLang 0.5.19 and later)."""
        known = self.spec.engine in ("sglang", "sim") and self.spec_mode != "none"
        return known and parse_version(self.endpoint.get("version") or self.spec.version) >= (0, 5, 19)

    @property
    def spec_mode(self) -> str:
        """What the variant means on this engine version."""
        return mode_of(self.spec, self.endpoint.get("version"))

    def told_at_start(self, url: str) -> dict[str, Any] | None:
        """What the server at this address told of itself when it was ready."""
        told = {one["url"]: one for one in [self.endpoint, *self.endpoint.get("endpoints", [])]}
        return told[url].get("server_info") if url in told else None

    @property
    def remarks(self) -> list[str]:
        """What is to be known with every result, and speaks against none."""
        decided = proof.remarks(self.spec, self.endpoint.get("server_info"))
        slower = [PROFILED] if self.profiled else []
        unproven = tls.remarks(self.spec.tls, self.spec.urls)
        return [*slower, *decided, *unproven, *effects.remarks(self.endpoint.get("said", []))]


def suffix(count: int) -> str:
    """What the files and folders of the second, third ... of a name carry behind it."""
    return "" if count == 1 else f"_{count}"
