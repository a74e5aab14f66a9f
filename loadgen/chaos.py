"""Whether faults end as they should: a list of them, one Point each, held against what was expected of it.

Pure: it makes runs out of a run, and lines of a table out of the ledger's. The faults themselves are the simulator's
(`server.sim --sim-fault`) or come from outside (see `strike`).
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from loadgen.asked import Run
from loadgen.bounds import value_of
from loadgen.config import Config, Fault, levels
from loadgen.errors import INVALID_POINTS, ConfigError
from server.sim.faults import KINDS, FaultError, parse

NONE = "none"  # the control: nothing is done, and the Point must be VALID
# What is done from outside to the processes of the run; a number behind it is seconds until they may go on.
OUTSIDE = {
    "kill_server": "SIGKILL to the server's first process",
    "freeze_server": "SIGSTOP to all its processes",
    "kill_actor": "SIGKILL to the process that watches the server",
    "kill_worker": "SIGKILL to a worker",
    "freeze_worker": "SIGSTOP to it",
    "kill_board": "SIGKILL to the process that the workers report to",
    "freeze_board": "SIGSTOP to it",
}
MOMENTS = ("ramp", "window", "drain")
ANY = "any"  # what is meant then is that it ends in time and leaves nothing
STATUSES = ("VALID", "INVALID", "FAILED", ANY)
# In the server's environment, so that no two faults share a server.
MARK = "LOADGEN_FAULT"
REASON_CHARS_MAX = 110


def outside(fault: str) -> tuple[str, float | None] | None:
    """What is done from outside, and after how many seconds it is undone; None for a fault of the simulator, or none.

    Raises ConfigError for a number that is none.
    """
    kind, _, number = fault.partition(":")
    if kind not in OUTSIDE:
        return None
    try:
        seconds = float(number) if number else None
    except ValueError:
        seconds = -1.0
    if seconds is not None and (not kind.startswith("freeze_") or not 0 < seconds < float("inf")):
        raise ConfigError(f"chaos: {fault}: only what is frozen takes a number, of seconds, as in freeze_server:2")
    return kind, seconds


def check_chaos(config: Config) -> None:
    """Refuse faults that there are not, and runs that cannot have them. Raises ConfigError."""
    if not config.chaos:
        return
    for fault in config.chaos:
        _check_fault(fault)
    if len(levels(config.load)) != 1 or config.load.search or config.drift or config.audit:
        raise ConfigError(
            "chaos measures each fault once: give one level (load.concurrency=4), no search, drift, audit"
        )
    for key, wanted in (("engine.kind", "sim"), ("cluster.address", None)):
        if value_of(config, key) != wanted:
            raise ConfigError(
                f"chaos with {key}={value_of(config, key)}: faults are the simulator's, and strike processes of this "
                "machine; add engine=sim, and leave cluster.address out"
            )


def _check_fault(fault: Fault) -> None:
    if fault.fault != NONE and outside(fault.fault) is None:
        try:
            parse([fault.fault])
        except FaultError as error:
            there = ", ".join((NONE, *OUTSIDE, *KINDS))
            raise ConfigError(f"chaos: {str(error).splitlines()[0]} Faults are {there}") from None
    for name, choices in (("expect", STATUSES), ("when", MOMENTS)):
        if getattr(fault, name) not in choices:
            raise ConfigError(f"chaos: {fault.fault}: {name}={getattr(fault, name)}: give one of {', '.join(choices)}")
    if not 0 < fault.within_s < float("inf"):
        raise ConfigError(f"chaos: {fault.fault}: within_s={fault.within_s}: give seconds above 0")


def spread(runs: Sequence[Run]) -> list[Run]:
    """The runs, each that has faults as so many runs in folders below its own, with one fault and one server each."""
    return [one for run in runs for one in (_trials(run) if run.config.chaos else [run])]


def _trials(run: Run) -> list[Run]:
    return [
        Run(_with(run.config, fault), run.folder / f"{number:02}_{re.sub('[^a-z0-9]+', '_', fault.fault)}")
        for number, fault in enumerate(run.config.chaos, start=1)
    ]


def _with(config: Config, fault: Fault) -> Config:
    engine = dataclasses.replace(config.engine, env={**config.engine.env, MARK: fault.fault})
    if fault.fault != NONE and outside(fault.fault) is None:
        engine = dataclasses.replace(engine, args={**engine.args, "sim_fault": fault.fault})
    return dataclasses.replace(config, engine=engine, chaos=[fault])


def fault_of(config: Config) -> str | None:
    """The fault that a run suffers; None for a run that is no trial."""
    return config.chaos[0].fault if config.chaos else None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one fault: how its Point ended, in how many seconds, its server's start included."""

    fault: Fault
    line: Mapping[str, Any] | None  # of the ledger; None where it was not begun
    took_s: float

    @property
    def passed(self) -> bool:
        """Whether status, rule and time are what was expected."""
        line, fault = self.line, self.fault
        if line is None or fault.expect not in (line["status"], ANY) or self.took_s > fault.within_s:
            return False
        return fault.rule is None or fault.rule in line["rules"]

    @property
    def words(self) -> tuple[str, ...]:
        """PASS or FAIL, the fault, what was expected, what came, the time, the reason."""
        fault, line = self.fault, self.line or {"status": "not run", "rules": [], "reason": None}
        late = f" of {fault.within_s:g} s" if self.took_s > fault.within_s else " s"
        reason = " ".join(str(line["reason"] or "").split())
        return (
            "PASS" if self.passed else "FAIL",
            fault.fault,
            f"{fault.expect} {fault.rule or ''}".rstrip(),
            f"{line['status']} {', '.join(dict.fromkeys(line['rules']))}".rstrip(),
            f"{self.took_s:.1f}{late}",
            reason if len(reason) <= REASON_CHARS_MAX else f"{reason[: REASON_CHARS_MAX - 3]}...",
        )


HEAD = ("", "fault", "expected", "got", "time", "reason")


def told(found: Sequence[Outcome], left: Sequence[str]) -> tuple[str, int]:
    """The table, one line a fault, what is `left` of all servers, and the exit code: 0 where all passed, else 6."""
    rows = [HEAD, *(one.words for one in found)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    clean = f"FAIL  left behind: {', '.join(left)}" if left else "PASS  nothing is left behind"
    passed = sum(one.passed for one in found)
    good = passed == len(found) and not left
    total = f"chaos: {passed} of {len(found)} faults ended as expected, in {sum(one.took_s for one in found):.0f} s"
    return "\n".join([*table, clean, total]), 0 if good else INVALID_POINTS
