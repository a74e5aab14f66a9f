"""What a start needs and what its machine has, looked at on the server's node before anything is started there.

Rows for a small table. It starts nothing but interpreters that tell a version, and must not know of Ray or of Points.
"""

import functools
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from server import gpu, installed, ports, stop
from server.spec import STARTED, ServerSpec, SpecError, resolved_args

OK, WARN, REFUSED = "ok", "warn", "refused"
CONFIGURATION, MACHINE, STORAGE = 2, 3, 5  # exit codes

GIB = 2**30
LOG_BYTES_MIN = 8 * 2**20  # of a server's log; the results may lie on the disk of another machine
LOG_BYTES_WANTED = GIB
SHM = "/dev/shm"  # noqa: S108
SHM_BYTES_WANTED = GIB  # NCCL and the engines' own processes talk through it
DESCRIPTORS_SPARE = 64  # what a worker, or a server, opens beside its connections
SLACK = gpu.SLACK_BYTES
MEMORY_SLACK = 0.95  # of free memory; the driver, graphs and activations want some too
HICACHE_RATIO = 2.0  # SGLang's own, where none is set
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")  # the first kind that is there counts


@dataclass(frozen=True)
class Row:
    """One thing looked at. `exit` is that of a refusal; `advice` says what to do where it is not ok."""

    check: str
    found: str
    needed: str
    state: str
    advice: str = ""
    exit: int = 0


@dataclass(frozen=True)
class Place:
    """Where servers will run and write, and for how many requests: at once, and at once for one worker."""

    folder: Path
    host: str
    gpus: tuple[str, ...]
    in_flight: int | None  # None: not bounded
    per_worker: int | None
    environment: Mapping[str, str]
    dirty: bool = False  # others may be on it: what was ours has been ended


def look(specs: Sequence[ServerSpec], place: Place) -> list[Row]:
    """The rows for all servers of a command; alike ones once. Takes milliseconds where nothing real is started."""
    rows = [*_interpreters(specs, place)]
    rows += [row for spec in specs for rule in OF_SERVER for row in rule(spec, place)]
    rows += [row for rule in OF_MACHINE for row in rule(specs, place)]
    return list(dict.fromkeys(rows))


def gib(size: float) -> str:
    """Bytes as text."""
    return f"{size / GIB:.1f} GiB" if size >= 0.05 * GIB else f"{size / 2**20:.0f} MiB"


# --- of each interpreter ---


def _interpreters(specs: Sequence[ServerSpec], place: Place) -> Iterator[Row]:
    """Each exists; a real engine's version is read once, for a container takes its time, and held against each spec."""
    by_words: dict[tuple[str, tuple[str, ...]], list[ServerSpec]] = {}
    for spec in specs:
        by_words.setdefault((spec.engine, spec.python), []).append(spec)
    real = {key: some[0] for key, some in by_words.items() if key[0] in installed.PACKAGES}
    with ThreadPoolExecutor(max(1, len(real))) as side_by_side:  # one that hangs takes a minute, several must not more
        versions = dict(zip(real, side_by_side.map(functools.partial(_version, place), real.values()), strict=True))
    for (engine, words), some in by_words.items():
        if (engine, words) in versions:
            yield from _engine(some, versions[engine, words])
        elif words and not shutil.which(words[0]):
            advice = "name an interpreter by variant.python or engine.python"
            yield Row("interpreter", f"{words[0]} cannot be run", "", REFUSED, advice, CONFIGURATION)


def _version(place: Place, spec: ServerSpec) -> str | SpecError:
    try:
        return installed.version(spec, place.environment)
    except SpecError as error:
        return error


def _engine(specs: Sequence[ServerSpec], found: str | SpecError) -> Iterator[Row]:
    """The version of the engine that these have in one interpreter, against what each of them asks for."""
    for spec in specs:
        asked = spec.version or "any version"
        if isinstance(found, SpecError):
            yield Row(f"{spec.engine} of {spec.variant}", "", asked, REFUSED, str(found), CONFIGURATION)
            return  # nor would it tell the others
        try:
            installed.agreed(spec, found)
        except SpecError as error:
            yield Row(f"{spec.engine} of {spec.variant}", found, asked, REFUSED, str(error), CONFIGURATION)
        else:
            yield Row(spec.engine, found, asked, OK)


# --- of each server ---


def _model(spec: ServerSpec, _place: Place) -> Iterator[Row]:
    if spec.engine not in STARTED:
        return
    args = resolved_args(spec)
    draft, dummy = args.get("speculative_draft_model_path"), args.get("load_format") == "dummy"
    for what, name, key in (("model", spec.model_path, "model.path"), ("draft", draft, "model.draft_path")):
        if name:
            yield model_row(what, str(name), key, dummy)


def model_row(what: str, name: str, key: str, dummy: bool = False) -> Row:
    """A folder with a readable config.json and weights, unless they are `dummy`; a hub's name is left alone."""
    needed, path = "a readable config.json", Path(name)
    if not path.exists() and HUB_NAME.fullmatch(name):
        return Row(what, f"{name}: a hub's name, not checked", needed, OK)
    if not path.exists():
        return Row(what, f"{name} does not exist", needed, REFUSED, f"correct {key}", CONFIGURATION)
    config = path / "config.json" if path.is_dir() else path
    if not os.access(config, os.R_OK):
        return Row(what, f"{config} cannot be read", needed, REFUSED, f"correct {key}, or its rights", CONFIGURATION)
    if not (size := weights_bytes(path)) and not dummy:
        return Row(what, f"{name} has no weights", needed, WARN, f"put {WEIGHTS[0]} there, unless load_format=dummy")
    return Row(what, f"{name}, {gib(size)} of weights", needed, OK)


def weights_bytes(path: Path) -> int:
    """How large a model's weights are on disk; 0 where there are none."""
    if path.is_file():
        return path.stat().st_size
    for kind in WEIGHTS:
        if size := sum(file.stat().st_size for file in path.glob(kind)):
            return size
    return 0


def _memory(spec: ServerSpec, place: Place) -> Iterator[Row]:
    """Weights and the host's share of a hierarchical cache against what is free."""
    if spec.engine not in STARTED:
        return
    args = resolved_args(spec)
    draft = args.get("speculative_draft_model_path")
    paths = [Path(str(name)) for name in (spec.model_path, draft) if name and Path(str(name)).exists()]
    weights = 0 if args.get("load_format") == "dummy" else sum(map(weights_bytes, paths))
    devices = gpu.devices(place.gpus[: spec.gpus] or None) if spec.gpus else []
    host = psutil.virtual_memory().available
    if devices:
        yield from gpu_rows(weights, devices, spec.gpus, place.dirty)
    elif weights:
        yield _fits("memory for weights", weights, host, "host", "use a smaller model")
    if args.get("enable_hierarchical_cache") and devices:
        fraction = float(args.get("mem_fraction_static") or 0.8)
        pools = sum(max(0.0, fraction * device.free_bytes - weights / spec.gpus) for device in devices)
        size = args.get("hicache_size")  # GB for each device
        wanted = float(size) * 1e9 * spec.gpus if size else pools * float(args.get("hicache_ratio") or HICACHE_RATIO)
        yield _fits("memory for hicache", wanted, host, "host", "lower variant.args.hicache_ratio or hicache_size")


def gpu_rows(weights: float, devices: Sequence[gpu.Device], count: int, dirty: bool = False) -> Iterator[Row]:
    """Each device's share of the weights against the least free memory, and who else uses the devices."""
    least = min(devices, key=lambda device: device.free_bytes)
    if weights:
        advice = "free the GPUs, set model.tp to more of them, or use a smaller model"
        yield _fits("GPU memory for weights", weights / count, least.free_bytes, f"GPU {least.id}, the fullest", advice)
    used = [
        f"GPU {device.id}: {_process(pid)} {gib(size or 0)}"
        for device in devices
        for pid, size in device.processes
        if size is None or size > SLACK
    ]
    if used:
        advice = "others on a device slow the server down, and may take its memory; end them if they are yours"
        beside = "" if dirty else ", or measure beside them: cluster.clean=true"
        # In a container their memory is often not told: who holds some gigabytes for sure is refused.
        sure = not dirty and any(size for device in devices for _, size in device.processes if (size or 0) > SLACK)
        yield Row(
            "GPU processes", "; ".join(used), "none", *((REFUSED, advice + beside, MACHINE) if sure else (WARN, advice))
        )


def _fits(check: str, wanted: float, free: float, where: str, advice: str) -> Row:
    found, needed = f"{gib(free)} free ({where})", gib(wanted)
    if wanted > free:
        return Row(check, found, needed, REFUSED, advice, MACHINE)
    tight = wanted > MEMORY_SLACK * free
    return Row(check, found, needed, WARN if tight else OK, advice if tight else "")


def _process(pid: int) -> str:
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"


OF_SERVER: tuple[Callable[[ServerSpec, Place], Iterator[Row]], ...] = (_model, _memory)


# --- of the machine ---


def _port(specs: Sequence[ServerSpec], place: Place) -> Iterator[Row]:
    if all(spec.engine == "external" for spec in specs):
        return
    range_text = f"a free one from {ports.PORT_FIRST} to {ports.PORT_LAST - 1}"
    try:
        port = ports.free_port(place.host)
    except OSError as error:
        yield Row("port", str(error), range_text, REFUSED, "end what listens there", MACHINE)
        return
    port.release()
    yield Row("port", f"{port.number} is free", range_text, OK)


def _shared_memory(specs: Sequence[ServerSpec], _place: Place) -> Iterator[Row]:
    if any(spec.engine in STARTED for spec in specs) and os.path.isdir(SHM):
        free = shutil.disk_usage(SHM).free
        advice = "give it more: mount -o remount,size=16G /dev/shm, or docker run --shm-size=16g"
        yield _wanted(SHM, free, SHM_BYTES_WANTED, advice)


def _disk(_specs: Sequence[ServerSpec], place: Place) -> Iterator[Row]:
    free = shutil.disk_usage(_existing(place.folder)).free
    advice = "make room, or choose another folder with hydra.run.dir=... (hydra.sweep.dir=... under -m)"
    check = "disk for the server's log"
    if free < LOG_BYTES_MIN:
        yield Row(check, f"{gib(free)} free", gib(LOG_BYTES_MIN), REFUSED, advice, STORAGE)
    else:
        yield _wanted(check, free, LOG_BYTES_WANTED, advice)


def _existing(folder: Path) -> Path:
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def _wanted(check: str, free: float, wanted: float, advice: str) -> Row:
    state, more = (OK, "") if free >= wanted else (WARN, advice)
    return Row(check, f"{gib(free)} free", gib(wanted), state, more)


def _descriptors(specs: Sequence[ServerSpec], place: Place) -> Iterator[Row]:
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield from descriptor_rows(limit, place, any(spec.engine != "external" for spec in specs))


def descriptor_rows(limit: int, place: Place, ours: bool) -> Iterator[Row]:
    """The limit of open files, which each process has for itself, against the most requests at once."""
    if place.in_flight is None or place.per_worker is None or limit == resource.RLIM_INFINITY:
        return
    worker, server = place.per_worker + DESCRIPTORS_SPARE, place.in_flight + DESCRIPTORS_SPARE
    advice = "raise ulimit -n, or lower load.concurrency or load.max_in_flight"
    needed = f"{worker} for {place.per_worker} requests of one worker"
    if worker > limit:
        more = f"{advice}, or use more workers (cluster.workers)"
        yield Row("open files", f"limit {limit}", needed, REFUSED, more, CONFIGURATION)
    elif ours and server > limit:
        needed = f"{server} for the server's {place.in_flight} connections"
        yield Row("open files", f"limit {limit}", needed, REFUSED, advice, CONFIGURATION)
    else:
        yield Row("open files", f"limit {limit}", needed, OK)


def _earlier(specs: Sequence[ServerSpec], place: Place) -> Iterator[Row]:
    """What is left of earlier runs' servers; beside one that runs elsewhere it may be none of our business."""
    if left := stop.lasting():
        ours = any(spec.engine != "external" for spec in specs) and not place.dirty
        advice = "or have it ended here: cluster.clean=true"
        yield Row("earlier runs", "; ".join(left), "nothing", REFUSED if ours else WARN, advice, MACHINE if ours else 0)


OF_MACHINE: tuple[Callable[[Sequence[ServerSpec], Place], Iterator[Row]], ...] = (
    _earlier,
    _shared_memory,
    _disk,
    _descriptors,
    _port,
)
