"""A stretch of an SGLang server's steps under torch's profiler: begun, awaited, ended, and its trace read.

Owns the bounds of time and memory. Nothing raises: a profile that did not come is told with the reason, since no
measurement depends on it. It must not know of load; somebody else keeps the server busy meanwhile.
"""

import contextlib
import gzip
import json
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from server.ask import Access, ask
from server.profiling import TraceError, shares
from server.spec import ServerSpec, parse_version

SPANS_SINCE = (0, 5, 14)  # older ones do not say which forward is whose: their Python stack has to be traced
START_S = 60.0  # answered between two steps, after the profiler's own start
TRACE_S_MAX = 300.0  # for the steps; a server that is not kept busy never makes them
SIMULATED_S_MAX = 1.0  # the simulator answers and writes nothing
STOP_S = 180.0  # answered when the trace is written
WRITTEN_S_MAX = 20.0  # other ranks are written at the same time
READ_S_MAX = 60.0  # a file that is still being written when it seems at rest
REST_S = 1.0
POLL_S = 0.25
CHUNK = 1 << 20  # characters
EVENT_CHARACTERS_MAX = 64 << 20
TRACE_CHARACTERS_MAX = 8 << 30
FIRST_RANK = re.compile(r"TP-0(?!\d)")


def take(url: str, access: Access, spec: ServerSpec, folder: Path, steps: int) -> dict[str, Any]:
    """Profile `steps` steps into `folder`: `trace`, a path, `traces`, their number, `profiling.shares` of the first.

    Where none came `trace` is None and `why` says why.
    """
    body = {
        "output_dir": str(folder),
        "num_steps": steps,
        "activities": ["CPU"] if spec.on_cpu else ["CPU", "GPU"],
        "with_stack": parse_version(spec.version) < SPANS_SINCE,
        "record_shapes": False,
    }
    came, why = [], ""
    try:
        status = ask(url, "/start_profile", body=body, timeout_s=START_S, access=access).status
        if status != 200:
            return _none(f"/start_profile answers {status}")
        came = _await(folder, spec.tp, SIMULATED_S_MAX if spec.engine == "sim" else TRACE_S_MAX)
    except OSError as error:
        why = f"/start_profile: {error or type(error).__name__}"
    if not came:
        # Its steps were not all made. One that ends by itself meanwhile refuses this, and has written.
        with contextlib.suppress(OSError):
            ask(url, "/stop_profile", post=True, timeout_s=STOP_S, access=access)
        came = _await(folder, spec.tp, SIMULATED_S_MAX if spec.engine == "sim" else WRITTEN_S_MAX)
    if not came:
        return _none(why or f"the server answers, and writes nothing to {folder}")
    first = next((path for path in came if FIRST_RANK.search(path.name)), came[0])
    try:
        return {"trace": str(first), "traces": len(came), **_read(first)}
    except (TraceError, OSError, zlib.error) as error:
        return _none(f"{first}: {error}")


def _none(why: str) -> dict[str, Any]:
    return {"trace": None, "why": why}


def _await(folder: Path, ranks: int, wait_s: float) -> list[Path]:
    """The traces that are there and grow no more, of all ranks; of fewer when time is over."""
    deadline_s = time.monotonic() + wait_s
    sizes, since_s = dict[Path, int](), time.monotonic()
    while True:
        now_s, found = time.monotonic(), {path: path.stat().st_size for path in sorted(folder.glob("*.trace.json.gz"))}
        if found != sizes:
            sizes, since_s = found, now_s
        rests = bool(sizes) and now_s - since_s >= REST_S
        if (rests and len(sizes) >= ranks) or (now_s > deadline_s and (rests or not sizes)):
            return list(sizes)
        if now_s > deadline_s + READ_S_MAX:
            return list(sizes)
        time.sleep(POLL_S)


def _read(path: Path) -> dict[str, Any]:
    """The shares of one trace, once it is whole."""
    deadline_s = time.monotonic() + READ_S_MAX
    while True:
        try:
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
                return shares(events(file))
        except EOFError as error:
            if time.monotonic() > deadline_s:
                raise TraceError("the file is cut off") from error
            time.sleep(POLL_S)


def events(file: TextIO) -> Iterator[dict[str, Any]]:
    """The events of a trace one by one, so that no more than one is held. Raises TraceError where it is none."""
    decoder, place = json.JSONDecoder(strict=False), 0
    buffer, read = _until_events(file)
    while True:
        place = _skip(buffer, place)
        if buffer.startswith("]", place):
            return
        try:
            event, place = decoder.raw_decode(buffer, place)
        except json.JSONDecodeError:
            chunk = file.read(CHUNK)
            read += len(chunk)
            if not chunk or len(buffer) - place > EVENT_CHARACTERS_MAX:
                raise TraceError(f"no trace after {read} characters") from None
            if read > TRACE_CHARACTERS_MAX:
                raise TraceError("the trace is too long to read; ask for fewer steps (engine.profile_steps)") from None
            buffer, place = buffer[place:] + chunk, 0
            continue
        if isinstance(event, dict):
            yield event


def _until_events(file: TextIO) -> tuple[str, int]:
    """What follows the begin of the list of events, as far as it was read, and how many characters that were."""
    buffer = ""
    while chunk := file.read(CHUNK):
        buffer += chunk
        if found := re.search(r'"traceEvents"\s*:\s*\[', buffer):
            return buffer[found.end() :], len(buffer)
        if len(buffer) > EVENT_CHARACTERS_MAX:
            break
    raise TraceError("no list of traceEvents in it")


def _skip(buffer: str, place: int) -> int:
    while place < len(buffer) and buffer[place] in " \t\r\n,":
        place += 1
    return place
