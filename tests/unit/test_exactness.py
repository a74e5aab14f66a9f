"""Errors are what they are on made-up stamps, and the search for a capacity ends where it must."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from rows import NS_PER_MS, health

from loadgen import calibrate, capacity
from loadgen.capacity import Capacity
from loadgen.errors import StorageError
from loadgen.exactness import DISTURBED, GAVE_UP, HELD, MISSED, Asked, Try, bound_ms, tried
from loadgen.store import write_json

ASKED = Asked(streams=2, tokens=50, first_ms=20.0, gap_ms=10.0, stagger_s=0.5)
START_NS = 7_000_000_000
GOOD = Try(16_000.0, 0.05, 0.3, 2.0, 0.4, 0.5, 0.3, 0.3, 0.0, 0.0)


def made(error_ms: float, late_ms: float = 0.0, sent_early_ms: float = 0.0) -> tuple[dict[str, np.ndarray], dict]:
    """Four requests of two streams: every event written `late_ms` after it was due, stamped `error_ms` after that."""
    sent, stamps, texts = [], [], {}
    for seq, begin_ms in enumerate((0, 250, 520, 770)):
        received = START_NS + begin_ms * NS_PER_MS
        written = [received + round((20 + 10 * k + late_ms) * NS_PER_MS) for k in range(ASKED.tokens)]
        texts[seq] = " ".join(map(str, [received, *written])) + " "
        stamps += [stamp - START_NS + round(error_ms * NS_PER_MS) for stamp in written]
        sent.append(round((begin_ms - sent_early_ms) * NS_PER_MS))
    offsets = np.arange(5) * ASKED.tokens
    cols = {"seq": np.arange(4), "sent_ns": np.array(sent), "chunk_ns": np.array(stamps), "chunk_ns_offsets": offsets}
    return cols, texts


def test_errors_are_client_less_server() -> None:
    """A stamp's error is its delay, a gap's is none where all are delayed alike, TTFT's holds the way there too."""
    cols, texts = made(error_ms=0.25, sent_early_ms=0.5)
    one = tried(cols, texts, START_NS, ASKED, [health(600, waited_share=0.01), health(5000, cpu_share=1.0)])
    assert one.stamp_p50_ms == one.stamp_p99_ms == pytest.approx(0.25)
    assert one.ttft_p99_ms == pytest.approx(0.75)
    assert one.gap_p99_ms == pytest.approx(0.0)
    assert (one.late_share, one.waited_share, one.worker_cpu) == (0.0, 0.01, 0.2)
    assert one.events_per_s == pytest.approx(ASKED.events_per_s, rel=0.1)


def test_the_servers_own_lateness_is_not_the_clients() -> None:
    """Events that the server wrote late are left out, and counted."""
    cols, texts = made(error_ms=30.0, late_ms=2.0)
    one = tried(cols, texts, START_NS, ASKED, [health(600)])
    assert one.late_share == 1.0
    assert one.outcome(1.0) == GAVE_UP


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, HELD),
        ({"stamp_p99_ms": 1.01}, MISSED),
        ({"ttft_p99_ms": 1.01}, MISSED),
        ({"worker_cpu": 0.81}, MISSED),
        ({"waited_share": 0.2}, HELD),
        ({"waited_share": 0.2, "stamp_p99_ms": 1.01}, DISTURBED),
        ({"late_share": 0.2}, GAVE_UP),
    ],
)
def test_outcomes(change: dict[str, float], outcome: str) -> None:
    """What others or the server did is not held against the worker."""
    assert dataclasses.replace(GOOD, **change).outcome(1.0) == outcome


def test_the_bound_is_wider_on_a_machine_that_is_never_exact() -> None:
    """1 ms; where a nearly idle worker errs by more, twice as much as it does."""
    assert bound_ms([GOOD] * 3) == 1.0
    assert bound_ms([dataclasses.replace(GOOD, stamp_p99_ms=error) for error in (4.0, 1.5, 9.0)]) == 3.0


def worker(limit_per_s: float, fault: Callable[[Try], Try]) -> Callable[[float], Try]:
    """A worker that holds all below its limit; above, what `fault` makes of a try."""

    def attempt(rate: float) -> Try:
        one = dataclasses.replace(GOOD, events_per_s=rate)
        return one if rate <= limit_per_s else fault(one)

    return attempt


def late(one: Try) -> Try:
    return dataclasses.replace(one, stamp_p99_ms=5.0)


@pytest.mark.parametrize("limit_per_s", [5_000.0, 17_000.0, 61_000.0, 250_000.0])
def test_the_search_finds_the_limit(limit_per_s: float) -> None:
    """Within an eighth below it, in tries that fit into the time."""
    levels = calibrate.search(worker(limit_per_s, late), lambda: True)
    best = calibrate.found(levels, {}, datetime.now(UTC))
    assert best is not None
    assert limit_per_s / 1.13 <= best.events_per_s <= limit_per_s
    assert not best.at_least
    assert sum(len(level.tries) for level in levels) <= 20


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lambda one: dataclasses.replace(one, late_share=0.5), "the null server gave up"),
        (lambda one: dataclasses.replace(late(one), waited_share=0.1), "others had the worker's core"),
    ],
)
def test_what_is_not_the_workers_limit_is_told_as_at_least(fault: Callable[[Try], Try], why: str) -> None:
    """Where the server or others gave up first the figure is a lower bound, and the reason stands beside it."""
    levels = calibrate.search(worker(30_000.0, fault), lambda: True)
    best = calibrate.found(levels, {}, datetime.now(UTC))
    assert best is not None
    assert best.at_least
    told = calibrate.ending(levels, best)
    assert "capacity: at least 2" in told
    assert why in told


def test_one_disturbed_try_does_not_decide() -> None:
    """Two tries that agree do."""
    busy = dataclasses.replace(late(GOOD), waited_share=0.1)
    tries = iter([busy, GOOD, late(GOOD), busy])
    level = calibrate._level(16_000.0, 1.0, lambda _: next(tries), lambda: True)
    assert (level.outcome, len(level.tries)) == (DISTURBED, 4)
    tries = iter([busy, GOOD, GOOD])
    assert calibrate._level(16_000.0, 1.0, lambda _: next(tries), lambda: True).outcome == HELD


def test_the_search_ends_with_its_time() -> None:
    """A level that was cut off says nothing; what held before is a lower bound."""
    time_left = iter([True, True, True, False, False])
    levels = calibrate.search(worker(1e9, late), lambda: next(time_left))
    assert [level.events_per_s for level in levels] == [calibrate.IDLE_PER_S, calibrate.START_PER_S]
    best = calibrate.found(levels, {}, datetime.now(UTC))
    assert best is not None
    assert best.at_least
    assert "nothing higher was tried" in calibrate.ending(levels, best)


def test_a_busy_moment_at_the_start_does_not_end_the_search() -> None:
    """One of three idle tries was left alone: the levels above are tried all the same."""
    busy = dataclasses.replace(late(GOOD), waited_share=0.1)
    idle = iter([GOOD, busy, busy])
    levels = calibrate.search(
        lambda rate: next(idle) if rate == calibrate.IDLE_PER_S else worker(20_000.0, late)(rate), lambda: True
    )
    best = calibrate.found(levels, {}, datetime.now(UTC))
    assert best is not None
    assert 17_000 < best.events_per_s <= 20_000


def test_a_machine_that_holds_nothing_has_no_capacity() -> None:
    """A worker whose core is full at the lowest level: no figure."""
    levels = calibrate.search(lambda _: dataclasses.replace(GOOD, worker_cpu=0.95), lambda: True)
    assert calibrate.found(levels, {}, datetime.now(UTC)) is None
    assert "nothing is remembered" in calibrate.ending(levels, None)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def figure(age: timedelta = timedelta(), **machine: str) -> Capacity:
    at = (datetime.now(UTC) - age).isoformat(timespec="seconds")
    return Capacity(61_234.0, False, 1.0, at, {**capacity.machine(), **machine})


def test_a_figure_is_remembered_for_this_host(home: Path) -> None:
    """What was written is read again, with its day; workers elsewhere have another one."""
    here = capacity.machine()["host"]
    assert capacity.recall([here]) == (None, "not calibrated, see python -m loadgen.calibrate")
    kept = figure()  # once: it carries the second in which it was made
    path = capacity.remember(kept, [])
    assert path.parent == home / "loadgen"
    found, told = capacity.recall([here])
    assert found == kept
    assert told == f"of 61 234 events/s within 1 ms, {found.calibrated_at[:10]}"
    assert capacity.recall([here, "elsewhere"])[0] is None


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (figure(timedelta(days=40)), "calibrated 40 days ago"),
        (figure(python="2.7.1"), "calibrated with python 2.7.1"),
        (figure(cpu="Z80"), "calibrated with cpu Z80"),
    ],
)
def test_a_figure_of_another_machine_or_time_is_not_used(kept: Capacity, told: str, home: Path) -> None:
    """It is told what is wrong with it, and what to do."""
    capacity.remember(kept, [])
    found, why = capacity.recall([capacity.machine()["host"]])
    assert found is None
    assert why.startswith(told)
    assert "python -m loadgen.calibrate" in why


def test_a_place_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One sentence with the file's name; exit 5."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="capacity-") as refused:
        capacity.remember(figure(), [])
    assert refused.value.exit_code == 5


@pytest.mark.parametrize("content", [[], {}, {"events_per_s": 1}, {**dataclasses.asdict(figure()), "machine": 3}])
def test_a_broken_file_is_no_failure(content: object, home: Path) -> None:
    """A Point is not refused for a file that somebody else wrote."""
    write_json(capacity.path(), content)
    assert capacity.recall([capacity.machine()["host"]])[0] is None
