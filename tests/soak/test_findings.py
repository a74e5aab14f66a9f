"""From series to the last line and exit code: each word is said where it has to be, and the control has to be found."""

from dataclasses import replace

import numpy as np
import pytest
from figures import Told
from findings import control_found, of_figures, of_processes, without_control
from judging import BLOCKS
from sampling import Held
from soak import Soak, say

MIB = 1024 * 1024
SECONDS = 300


def held(role: str, a_minute: float = 0.0, files: float = 0.0, busier: float = 0.0) -> Held:
    """A process that grows by so many MiB and descriptors a minute, and uses so much more CPU at the end."""
    times = [float(second) for second in range(SECONDS)]
    memory = [int(MIB * (100 + a_minute * second / 60)) for second in times]
    rng = np.random.default_rng(5)
    used = np.cumsum(0.2 + busier * np.arange(SECONDS) / SECONDS + rng.normal(0, 0.005, SECONDS))
    return Held(role, times, memory, [int(50 + files * second / 60) for second in times], [9] * SECONDS, list(used))


def told(**changed: np.ndarray) -> Told:
    """The figures of a Point that stays as it is."""
    rng = np.random.default_rng(6)
    names = ("TTFT p50, ms", "TTFT p90, ms", "chunk gap p50, ms", "chunk gap p99, ms")
    more = ("events/s", "loop lag p50, ms", "loop lag p99, ms", "worker CPU, cores")
    figures = {name: 10 + rng.normal(0, 0.02, BLOCKS) for name in (*names, *more)}
    return Told(0.0, float(SECONDS), 24_000, 12_000_000, 80.0, {**figures, **changed})


CONTROL = held("control", 1.0)


@pytest.mark.parametrize(
    ("seen", "figures", "words"),
    [
        (held("driver"), {}, []),
        (held("driver", a_minute=0.5), {}, ["driver: memory, MiB grows"]),
        (held("board", files=1.0), {}, ["board: descriptors grows"]),
        (held("worker", busier=0.1), {}, ["worker: CPU, cores drifts"]),
        (held("driver"), {"events/s": np.linspace(40_000, 38_000, BLOCKS)}, ["events/s drifts"]),
        (held("driver"), {"events/s": np.linspace(38_000, 40_000, BLOCKS)}, ["events/s drifts"]),
        (held("driver"), {"loop lag p99, ms": np.linspace(2, 4, BLOCKS)}, ["loop lag p99, ms drifts"]),
        (held("worker", busier=-0.1), {"loop lag p99, ms": np.linspace(4, 2, BLOCKS)}, []),
    ],
)
def test_what_grows_or_drifts_is_named(
    seen: Held, figures: dict[str, np.ndarray], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It stands in the last line, with exit code 6; nothing else does."""
    code = say(Soak(0, told(**figures), [seen, held("driver"), CONTROL], [], 10**9))
    last = capsys.readouterr().out.splitlines()[-1]
    assert (code, last) == (
        (6, f"SOAK: {'; '.join(words)}") if words else (0, "SOAK: flat (the control's leak was found)")
    )


def test_a_soak_that_is_blind_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the leak that was planted is not found, nothing is known: exit 1."""
    assert say(Soak(0, told(), [held("driver"), held("control")], [], 10**9)) == 1
    assert "was not found: nothing is known" in capsys.readouterr().out


def test_noise_that_would_hide_a_leak_is_not_flat(capsys: pytest.CaptureFixture[str]) -> None:
    """A process whose memory moves by tens of MiB is not said to be flat.

    A failure, but where the machine stopped the client: then it is said that nothing is known of it; of others it is.
    """
    rng = np.random.default_rng(7)
    moving = replace(held("driver"), memory=[int(one) for one in MIB * (500 + np.cumsum(rng.normal(0, 5, SECONDS)))])
    (found,) = [one for one in of_processes(told(), [moving]) if "memory" in one.what]
    assert found.word == "too noisy to tell"
    assert say(Soak(0, told(), [moving, CONTROL], [], 10**9)) == 6
    assert say(Soak(6, told(), [moving, CONTROL], ["loop_lag_p99"], 10**9)) == 6
    capsys.readouterr()
    assert say(Soak(6, told(), [moving, CONTROL], ["loop_lag_max"], 10**9)) == 0
    assert (
        "not judged, since the machine stopped the client (loop_lag_max): driver: memory, MiB"
        in capsys.readouterr().out
    )
    assert say(Soak(6, told(), [moving, held("board", files=1.0), CONTROL], ["loop_lag_max"], 10**9)) == 6


def test_a_time_without_samples_is_not_flat() -> None:
    """What was not looked at is not said to have stayed."""
    whole = held("driver")
    kept = [place for place in range(SECONDS) if not 150 < place < 190]
    series = {name: [getattr(whole, name)[place] for place in kept] for name in ("times_s", "memory", "descriptors")}
    holed = replace(whole, **series, threads=[9] * len(kept), cpu_s=[whole.cpu_s[place] for place in kept])
    (found,) = [one for one in of_processes(told(), [holed]) if "memory" in one.what]
    assert found.word == "too noisy to tell"


def test_processes_that_become_more() -> None:
    """One more every minute is found although none of them lives through the window."""
    more = [held(f"idle {number}").between(60 * number, SECONDS) for number in range(5)]
    words = {one.what: one.word for one in of_processes(told(), [held("driver"), *more])}
    assert words["processes"] == "grows"


def test_the_control_is_no_finding_of_the_program() -> None:
    """It is looked for, and left out of what is said of the program."""
    found = [*of_processes(told(), [held("driver"), CONTROL]), *of_figures(told())]
    assert control_found(found)
    assert not any(one.what.startswith("control") for one in without_control(found))
