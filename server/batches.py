"""What an engine's log says of its batches: how many requests ran and waited, whether by graph, what was taken back.

Pure. Reads SGLang's Decode and Prefill lines by their fields, whose order and number differ between versions and ranks,
and vLLM's line every ten seconds. It must not know of files or load.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

CHUNK_BYTES = 1 << 20
# Both ends of a longer part are read: what a log of many gigabytes repeats in between says nothing new.
PART_BYTES_MAX = 64 * CHUNK_BYTES

KIND = re.compile(rb"\b(Decode|Prefill) batch\b|Avg generation throughput")
RANK = re.compile(rb"^\[[^\]]*?\bDP(\d+)")
RUNNING = re.compile(rb"#running-req: (\d+)|Running: (\d+) reqs")
QUEUED = re.compile(rb"#queue-req: (\d+)|Waiting: (\d+) reqs")
GRAPH = re.compile(rb"cuda graph: (True|False)")
USAGE = re.compile(rb"token usage: ([\d.]+)|KV cache usage: ([\d.]+)%")
RETRACTED = re.compile(rb"Retract requests\. #retracted_reqs: (\d+)")


@dataclass
class _Rank:
    """Running and queued of one data-parallel rank; ranks have batches of their own."""

    running_max: int = 0
    queued_max: int = 0


@dataclass
class Batches:
    """Counts over lines of a log; feed them with `add`."""

    decode_lines: int = 0
    prefill_lines: int = 0
    queued_lines: int = 0  # decode lines with requests waiting
    running_sum: int = 0
    graph_lines: int = 0  # decode lines that tell of the graph
    eager_lines: int = 0
    eager_running_min: int | None = None
    usage_max: float | None = None
    retracted: int = 0
    ranks: dict[bytes, _Rank] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Take one line; one that is of no batch is passed by."""
        if found := RETRACTED.search(line):
            self.retracted += int(found[1])
        kind = KIND.search(line)
        if kind is None:
            return
        if kind[1] == b"Prefill":
            self.prefill_lines += 1
            return
        running, queued = _number(RUNNING, line), _number(QUEUED, line)
        if running is None:
            return
        self.decode_lines += 1
        self._count(line, int(running), int(queued or 0))

    def _count(self, line: bytes, running: int, queued: int) -> None:
        named = RANK.search(line)
        rank = self.ranks.setdefault(named[1] if named else b"0", _Rank())
        rank.running_max, rank.queued_max = max(rank.running_max, running), max(rank.queued_max, queued)
        self.running_sum += running
        self.queued_lines += queued > 0
        usage = USAGE.search(line)
        if usage is not None:
            share = float(usage[1]) if usage[1] else float(usage[2]) / 100
            self.usage_max = max(self.usage_max or 0.0, share)
        graph = GRAPH.search(line)
        if graph is None:
            return
        self.graph_lines += 1
        if graph[1] == b"False":
            self.eager_lines += 1
            self.eager_running_min = min(running, self.eager_running_min or running)

    def told(self) -> dict[str, Any] | None:
        """The counts as one record; None where no decode line was read. Shares are of decode lines."""
        if not self.decode_lines:
            return None
        return {
            "decode_lines": self.decode_lines,
            "prefill_lines": self.prefill_lines,
            "running_max": sum(rank.running_max for rank in self.ranks.values()),
            "running_mean": self.running_sum / self.decode_lines * len(self.ranks),
            "queued_max": sum(rank.queued_max for rank in self.ranks.values()),
            "queued_share": self.queued_lines / self.decode_lines,
            "eager_share": self.eager_lines / self.graph_lines if self.graph_lines else None,
            "eager_running_min": self.eager_running_min,
            "token_usage_max": self.usage_max,
            "retracted": self.retracted,
        }


def _number(pattern: re.Pattern[bytes], line: bytes) -> int | None:
    found = pattern.search(line)
    return int(next(group for group in found.groups() if group is not None)) if found else None


def read(log: BinaryIO, start: int, end: int) -> dict[str, Any] | None:
    """The batches between two places of a log, and how many bytes between them were left out; None without any."""
    batches, skipped = Batches(), max(0, end - start - PART_BYTES_MAX)
    half = PART_BYTES_MAX // 2
    parts = [(start, start + half), (end - half, end)] if skipped else [(start, end)]
    for first, last in parts:
        found = lines(_chunks(log, first, last))
        if first > start:
            next(found, None)  # it begins somewhere in the middle
        for line in found:
            batches.add(line)
    told = batches.told()
    return told and {**told, "bytes_read": min(end - start, PART_BYTES_MAX), "bytes_skipped": skipped}


def _chunks(log: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    log.seek(start)
    left = end - start
    while left > 0 and (chunk := log.read(min(left, CHUNK_BYTES))):
        left -= len(chunk)
        yield chunk


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The whole lines of what comes in pieces, not a last one without its end; one longer than a piece is given up."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        rest = rest if len(rest) < CHUNK_BYTES else b""
