"""Faults as a list: what is refused, what becomes of a run, and which of them has ended as it should."""

from pathlib import Path
from typing import Any

import pytest
from test_config import made

from loadgen import chaos
from loadgen.asked import Run
from loadgen.config import Fault
from loadgen.errors import ConfigError

STUDY = "+study=chaos"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("chaos=[{fault: kill_wroker}]", "there is no fault 'kill_wroker'"),
        ("chaos=[{fault: 'die_after:soon'}]", "'soon' is no number"),
        ("chaos=[{fault: 'kill_worker:3'}]", "only what is frozen takes a number"),
        ("chaos=[{fault: 'freeze_board:x'}]", "only what is frozen takes a number"),
        ("chaos=[{fault: none, expect: valid}]", "give one of VALID, INVALID, FAILED, any"),
        ("chaos=[{fault: kill_worker, when: soon}]", "give one of ramp, window, drain"),
        ("chaos=[{fault: none, within_s: 0}]", "give seconds above 0"),
        ("chaos=[{fault: none, wihtin_s: 1}]", "no key wihtin_s"),
        ("load.concurrency=[1,2]", "give one level"),
        ("engine=sglang", "add engine=sim"),
        ("cluster.address=127.0.0.1:1", "leave cluster.address out"),
    ],
)
def test_what_cannot_be_is_refused(asked: str, said: str) -> None:
    """Each mistake is one sentence that says what to change."""
    with pytest.raises(ConfigError) as told:
        made(STUDY, asked)
    assert said in str(told.value)


def test_a_run_becomes_one_for_each_fault() -> None:
    """In folders of their own, with one fault and one server each; the simulator's are its flags, the others' not."""
    config = made(STUDY, "chaos=[{fault: none, expect: VALID}, {fault: 'hang:0:9'}, {fault: kill_board}]")
    runs = chaos.spread([Run(config, Path("/x"))])
    assert [run.folder.name for run in runs] == ["01_none", "02_hang_0_9", "03_kill_board"]
    assert [chaos.fault_of(run.config) for run in runs] == ["none", "hang:0:9", "kill_board"]
    assert [run.config.engine.args for run in runs] == [{}, {"sim_fault": "hang:0:9"}, {}]
    assert len({run.config.engine.env[chaos.MARK] for run in runs}) == 3
    plain = Run(made("+variant=baseline"), Path("/x"))
    assert (chaos.spread([plain]), chaos.fault_of(plain.config)) == ([plain], None)


def outcome(took_s: float = 1.0, line: dict[str, Any] | None = None, **fault: Any) -> chaos.Outcome:
    ended = {"status": "FAILED", "rules": ["server_died"], "reason": "killed"}
    return chaos.Outcome(Fault("kill_server", **fault), ended if line is None else line or None, took_s)


@pytest.mark.parametrize(
    ("one", "passed"),
    [
        (outcome(), True),
        (outcome(rule="server_died"), True),
        (outcome(rule="server_hung"), False),
        (outcome(expect="INVALID"), False),
        (outcome(expect="any"), True),
        (outcome(61.0), False),
        (outcome(61.0, expect="any", within_s=90.0), True),
        (outcome(line={}), False),
    ],
)
def test_what_passes(one: chaos.Outcome, passed: bool) -> None:
    """Status, rule and time are what was expected, or it is a FAIL; what did not run has not passed."""
    assert one.passed == passed
    text, code = chaos.told([one], [])
    assert (code, text.splitlines()[1][:4]) == ((0, "PASS") if passed else (6, "FAIL"))


def test_what_is_left_behind_fails_all() -> None:
    """However well the faults themselves ended."""
    text, code = chaos.told([outcome()], ["port 1 is held"])
    assert code == 6
    assert "FAIL  left behind: port 1 is held" in text
