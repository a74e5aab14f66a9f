"""The ledger of a command under way: one line for each Point, on the disk before the next one begins.

What a full disk does not take is kept here, so that it can be printed. Knows nothing of servers and of the order of
things.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen import chaos, resume, store
from loadgen.asked import Run
from loadgen.config import Level
from loadgen.errors import LoadgenError, StorageError
from loadgen.margin import in_words
from loadgen.verdict import FAILED, Verdict, as_json

RULES = {2: "configuration", 3: "server", 4: "cluster", 5: "storage"}  # by exit code


@dataclass
class Ledger:
    """What a command knows of its Points. `codes`: each Point's exit code, the last time it was measured."""

    root: Path
    valid: set[resume.Key]
    codes: dict[resume.Key, int] = field(default_factory=dict)
    unwritten: list[dict[str, Any]] = field(default_factory=list)  # lines that are not on the disk
    points: dict[str, dict[str, Any]] = field(default_factory=dict)  # by id, of this command

    def unmeasured(self, run: Run, asked: Sequence[Level]) -> list[Level]:
        """The levels of a run that are not VALID from an earlier time."""
        return [level for level in asked if resume.key_of(self._of(run, level)) not in self.valid]

    def keep(self, run: Run, level: Level, point: dict[str, Any], code: int) -> None:
        """The line of a Point. Raises StorageError where it cannot be written."""
        self.points[point["point_id"]] = json.loads(store.to_json(point))  # as it will be read
        speed = (point["summary"] or {}).get("output_tokens_per_s")
        self._write(run, level, code, point["verdict"], point["point_id"], speed)

    def interrupted(self, run: Run, level: Level, judged: Verdict) -> None:
        """The line of a Point before whose start a signal came."""
        self._write(run, level, judged.exit_code, as_json(judged))

    def fail(self, run: Run, level: Level, error: LoadgenError) -> None:
        """The line of a Point that could not even be begun; it has no folder."""
        rule, tail = RULES.get(error.exit_code, "bug"), getattr(error, "log_tail", "")
        reasons = [{"rule": rule, "measured": str(error), "log_tail": tail}]
        self._write(run, level, error.exit_code, {"status": FAILED, "reasons": reasons})

    def lines(self) -> list[dict[str, Any]]:
        """The last line of each Point, in the order of first measurement, written or not."""
        return resume.last_of([*resume.newest(self.root), *self.unwritten])

    def measured(self) -> list[dict[str, Any]]:
        """The content of point.json of the Points in `lines`, written or not."""
        found = {**self.points, **{point["point_id"]: point for point in resume.points(self.root)}}
        return [found[line["point_id"]] for line in self.lines() if line.get("point_id") in found]

    def _of(self, run: Run, level: Level) -> dict[str, Any]:
        """What identifies a Point in the ledger."""
        return {
            "folder": str(run.folder.relative_to(self.root)),
            "study": run.config.study,
            "variant": run.config.variant.name,
            "workload": run.config.workload.name,
            "block": run.config.block,
            "repeat": run.repeat,
            "fault": chaos.fault_of(run.config),
            "concurrency": level.concurrency,
            "rate": level.rate,
        }

    def _write(
        self,
        run: Run,
        level: Level,
        code: int,
        judged: dict[str, Any],
        point_id: str | None = None,
        output_tokens_per_s: float | None = None,
    ) -> None:
        reasons = judged["reasons"]
        line = {
            **self._of(run, level),
            "point_id": point_id,
            "status": judged["status"],
            "rules": [reason["rule"] for reason in reasons],
            "reason": "; ".join(map(in_words, reasons)) or None,
            "advice": "; ".join(filter(None, (reason.get("advice") for reason in reasons))) or None,
            "log_tail": "\n".join(filter(None, (reason.get("log_tail") for reason in reasons))) or None,
            "exit_code": code,
            "output_tokens_per_s": output_tokens_per_s,
        }
        self.codes[resume.key_of(line)] = code
        try:
            store.append_line(self.root / store.LEDGER, line)
        except StorageError:
            self.unwritten.append(line)
            raise
