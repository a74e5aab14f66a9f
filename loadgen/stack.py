"""What must match in a comparison, by name, and one hash of it.

Pure. Two Points may be compared where their records agree in everything that is not what the comparison is about:
never in flags, ports, seeds or times, which variants and blocks differ in by purpose.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Named = Mapping[str, Any]
# Packages of the engine's interpreter that decide its speed beside its own version.
ENGINE_PACKAGES = ("torch", "sgl-kernel", "sglang-kernel", "flashinfer-python")
CLOCK_FIELDS = ("power_limit_mw", "sm_clock_max_mhz")


@dataclass(frozen=True)
class Difference:
    """One thing in which two records differ; None where one does not have it."""

    name: str
    one: Any
    other: Any


def must_match(of: Named) -> dict[str, Any]:
    """The record: the `hash` (SHA-256 of the canonical JSON) and what it is `of`."""
    return {"hash": hash_of(of), "of": dict(of)}


def hash_of(of: Named) -> str:
    """SHA-256 over JSON with sorted keys and no spaces; the same for whatever order the keys came in."""
    text = json.dumps(of, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(one: Named, other: Named) -> list[Difference]:
    """In what two records of `must_match` differ, by name; empty where they may be compared."""
    a, b = one["of"], other["of"]
    names = sorted({*a, *b})
    return [Difference(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]


def ingredients(launch: Named) -> dict[str, Any]:
    """What must match of a Launch, in plain values, out of what launch.json has.

    The workload's hash comes with each Point. Of a server that is not ours the hardware is not known.
    """
    ours, provenance = launch["engine"] != "external", launch["provenance"]
    engine, model = launch["config"]["engine"], launch["config"]["model"]
    return {
        "loadgen": (provenance.get("packages") or {}).get("loadgen"),
        "schema_version": launch["schema_version"],
        "api": engine.get("api"),
        **{f"model.{name}": model.get(name) for name in ("name", "path", "draft_path", "tp", "nodes")},
        "engine.kind": launch["engine"],
        "engine.version": launch.get("engine_version"),
        "engine.simulated": launch["simulated"],
        "engine.sim_speed": launch.get("sim_speed"),
        "engine.sim_profile": engine.get("sim_profile"),
        "engine.args": engine.get("args") or {},
        "engine.env": engine.get("env") or {},
        **_packages(launch, provenance.get("engine_packages") or {}),
        **{f"hardware.{name}": value if ours else None for name, value in _hardware(launch, provenance).items()},
    }


def _packages(launch: Named, told: Named) -> dict[str, Any]:
    """A simulation depends on none of them."""
    known = {} if launch["simulated"] else told.get("packages") or {}
    return {f"engine.{name}": known.get(name) for name in ENGINE_PACKAGES}


def _hardware(launch: Named, provenance: Named) -> dict[str, Any]:
    """Devices by name and number, their limits and links; the processor and how much of it there is."""
    gpus: Sequence[Named] = provenance.get("gpus") or []
    return {
        "gpus": [f"{count} x {name}" for name, count in sorted(Counter(str(gpu.get("name")) for gpu in gpus).items())],
        **{f"gpu_{field}": sorted({gpu.get(field) for gpu in gpus}, key=str) for field in CLOCK_FIELDS},
        "gpu_links": sorted({str(link.get("link")) for link in provenance.get("links") or []}),
        "driver": provenance.get("driver") if gpus else None,
        "cpu_model": provenance.get("cpu_model"),
        "cpu_cores": provenance.get("cpu_cores"),
        "cpu_limit": (provenance.get("limits") or {}).get("cpus"),
        "server_cores": len(launch.get("cores") or []) or None,
    }
