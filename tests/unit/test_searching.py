"""A search over results on the disk, written as a grid would: what it asks for, when it ends, how it goes on."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from points import point
from test_config import made

from loadgen import resume, store
from loadgen.asked import Run
from loadgen.config import Level
from loadgen.dataset import read_ledger
from loadgen.errors import ConfigError
from loadgen.pairing import place_of
from loadgen.progress import Progress
from loadgen.searching import Search, check

Measure = Callable[[Run, Level, int], tuple[str, float, dict[str, Any]]]  # status, tokens a second, more of the summary
CROSS = ("load=search", "load.concurrency=[1,4,16,64]")
SLO = ("load=search", "load.search=slo", "slo.tpot_p99_ms=20", "load.concurrency=[1,4,16,64]")


class Pretended:
    """A grid that measures nothing: it writes what `measure` says of each Point that is asked for."""

    def __init__(self, root: Path, measure: Measure, names: Sequence[str], *overrides: str) -> None:
        runs = [Run(made(f"+variant={name}", *overrides), root / str(number)) for number, name in enumerate(names)]
        self.root, self.measure = root, measure
        self.search = Search(runs, root, lambda some: list(some), Progress(quiet=True))
        self.asked: list[tuple[str, int, tuple[float, ...]]] = []
        root.mkdir(exist_ok=True)
        (root / store.LEDGER).touch()

    def go(self, most: int = 1000) -> str:
        """Do what the search asks for, `most` times; what it says at its end."""
        for number, (place, run, levels) in enumerate(self.search.work()):
            assert run.config.variant.name == self.search.runs[place].config.variant.name
            if number == most:
                break
            valid = resume.done(self.root)
            left = [level for level in levels if resume.key_of(self._line(run, level)) not in valid]
            if left:
                self.asked.append((run.config.variant.name, run.config.block, tuple(map(place_of, left))))
            for level in left:
                self._write(run, level)
        return "\n".join(self.search.said)

    def _line(self, run: Run, level: Level) -> dict[str, Any]:
        return {
            "folder": str(run.folder.relative_to(self.root)),
            "variant": run.config.variant.name,
            "block": run.config.block,
            "concurrency": level.concurrency,
            "rate": level.rate,
        }

    def _write(self, run: Run, level: Level) -> None:
        line = self._line(run, level)
        before = sum(resume.key_of(line) == resume.key_of(old) for old in read_ledger(self.root / store.LEDGER))
        status, speed, more = self.measure(run, level, before)
        point_id = f"{line['folder']}/c{place_of(level):g}-{before}"
        if status != "FAILED":
            whole = point(run.config.variant.name, level.concurrency, speed, block=run.config.block, status=status)
            whole = {**whole, "point_id": point_id, "summary": {**whole["summary"], **more}}
            whole["verdict"]["reasons"] = more.pop("reasons", [])
            store.write_json(self.root / point_id / store.POINT, {k: v for k, v in whole.items() if k != "root"})
        known = None if status == "FAILED" else point_id
        store.append_line(self.root / store.LEDGER, {**line, "status": status, "point_id": known, "reason": "because"})


def crossing(at: float, status: Callable[[Run, Level, int], str] = lambda *_: "VALID") -> Measure:
    """The chain passes the baseline at so many streams, blocks a little apart."""

    def measure(run: Run, level: Level, before: int) -> tuple[str, float, dict[str, Any]]:
        wobble = 1 + 0.002 * ((run.config.block * 7) % 3 - 1)
        ratio = {
            "baseline": 1.0,
            "eagle_topk1_v2": math.exp(0.05 * math.log2(place_of(level) / at)) * wobble,
            "eagle_topk4_v1": 0.5,
        }
        return status(run, level, before), 100 * ratio[run.config.variant.name], {}

    return measure


def keeping(most: float, status: Callable[[Run, Level, int], str] = lambda *_: "VALID", n: int = 500) -> Measure:
    """Levels up to `most` keep the objective, by so many requests."""

    def measure(run: Run, level: Level, before: int) -> tuple[str, float, dict[str, Any]]:
        over, place = (0 if place_of(level) <= most else n // 2), place_of(level)
        met = over == 0 if n >= 459 else None
        one = {"limit_ms": 20.0, "requests": n, "over": over, "over_share": over / n, "met": met}
        summary = {"slo": {"met": met, "tpot_p99_ms": one}, "goodput_requests_per_s": place / 10, "goodput_share": 1.0}
        return status(run, level, before), 100.0, summary

    return measure


def test_blocks_are_added_around_the_crossover(tmp_path: Path) -> None:
    """The ladder for all; then the two levels around it and one between, of the baseline and who is still open."""
    grid = Pretended(tmp_path, crossing(7.0), ["baseline", "eagle_topk1_v2", "eagle_topk4_v1"], *CROSS)
    said = grid.go().splitlines()
    assert (
        said[0] == "eagle_topk4_v1 is worse from 1 to 64 (closest 0.500 x at 1, 1 block): "
        "a crossover, if there is one, lies above 64"
    )
    assert said[1].startswith("eagle_topk1_v2 is better than baseline above ")
    assert said[1].endswith("narrower than a factor of 1.5")
    first, later = grid.asked[:3], grid.asked[3:]
    assert first == [(name, 0, (1, 4, 16, 64)) for name in ("baseline", "eagle_topk1_v2", "eagle_topk4_v1")]
    assert {name for name, _, _ in later} == {"baseline", "eagle_topk1_v2"}
    assert all(len(levels) == 3 for _, _, levels in later)
    assert all((levels[0], levels[2]) == (4, 16) for _, _, levels in later)
    assert [block for name, block, _ in later if name == "baseline"] == list(range(1, 1 + len(later) // 2))
    assert grid.search.done


@pytest.mark.parametrize("after", range(1, 6))
def test_an_interrupted_search_goes_on_with_the_same_levels(tmp_path: Path, after: int) -> None:
    """Whatever was measured before the end is not measured again, and the whole is what it would have been."""
    names = ["baseline", "eagle_topk1_v2"]
    whole = Pretended(tmp_path / "whole", crossing(7.0), names, *CROSS)
    said = whole.go()
    cut = Pretended(tmp_path / "cut", crossing(7.0), names, *CROSS)
    cut.go(most=after)
    assert not cut.search.done
    assert cut.search.ending().endswith("search: the search is not finished: go on with resume=true")
    again = Pretended(tmp_path / "cut", crossing(7.0), names, *CROSS)
    assert again.go() == said
    assert cut.asked + again.asked == whole.asked
    once_more = Pretended(tmp_path / "cut", crossing(7.0), names, *CROSS)
    assert (once_more.go(), once_more.asked) == (said, [])


def test_the_budget_ends_a_search(tmp_path: Path) -> None:
    """By blocks, or by seconds, told with what is known."""
    names = ["baseline", "eagle_topk1_v2"]
    tight = (*CROSS, "load.search_factor=1.0001")
    blocks = Pretended(tmp_path / "a", crossing(7.0), names, *tight, "load.search_blocks_max=4")
    assert blocks.go().endswith("not known better, 4 blocks were measured (load.search_blocks_max)")
    assert {block for _, block, _ in blocks.asked} == {0, 1, 2, 3}
    seconds = Pretended(tmp_path / "b", crossing(7.0), names, *tight, "load.search_s_max=1e-9")
    assert seconds.go().endswith("(1 block): not known better, 0 s are over (load.search_s_max)")
    assert {block for _, block, _ in seconds.asked} == {0}


def test_a_moments_noise_is_measured_once_more(tmp_path: Path) -> None:
    """INVALID at first and VALID then is as if nothing had been; INVALID twice leaves a hole and no endless loop."""
    names = ["baseline", "eagle_topk1_v2"]
    once = crossing(7.0, lambda _, level, before: "INVALID" if place_of(level) == 4 and not before else "VALID")
    grid = Pretended(tmp_path / "a", once, names, *CROSS)
    assert "narrower than a factor of 1.5" in grid.go()
    assert grid.asked[:4] == [(name, 0, levels) for name in names for levels in ((1, 4, 16, 64), (4,))]
    always = crossing(7.0, lambda run, *_: "INVALID" if run.config.block else "VALID")
    grid = Pretended(tmp_path / "b", always, names, *CROSS)
    assert "block 1 brought no VALID Point of eagle_topk1_v2 beside baseline's" in grid.go()
    assert {block for _, block, _ in grid.asked} == {0, 1}


def test_servers_that_fail_end_a_crossover_search(tmp_path: Path) -> None:
    """No Point of the baseline, nothing to search; what failed is not tried again here."""
    grid = Pretended(tmp_path, crossing(7.0, lambda *_: "FAILED"), ["baseline", "eagle_topk1_v2"], *CROSS)
    assert grid.go() == "nothing VALID of both eagle_topk1_v2 and baseline"
    assert len(grid.asked) == 2
    assert grid.search.ending().endswith("search: nothing VALID of both eagle_topk1_v2 and baseline")


def test_the_edge_of_an_objective_in_one_launch(tmp_path: Path) -> None:
    """Up the ladder, then the middle; one run after the other, each in one block and with a line of its own."""
    grid = Pretended(tmp_path, keeping(37), ["baseline", "eagle_topk1_v2"], *SLO)
    said = grid.go().splitlines()
    levels = [at for name, _, at in grid.asked if name == "baseline"]
    assert levels == [(1,), (4,), (16,), (64,), (32,), (45,), (38,), (35,)]
    assert said == [
        f"{name} keeps time per token p99 <= 20 ms up to concurrency 35 (missed at 38: 250 of 500 requests over), "
        "goodput 3.50 requests/s"
        for name in ("baseline", "eagle_topk1_v2")
    ]
    again = Pretended(tmp_path, keeping(37), ["baseline", "eagle_topk1_v2"], *SLO)
    assert (again.go().splitlines(), again.asked) == (said, [])


def test_an_slo_search_says_how_sure_it_is_and_when_it_was_stopped(tmp_path: Path) -> None:
    """Few requests prove nothing; levels are bounded."""
    grid = Pretended(tmp_path, keeping(37, n=50), ["baseline"], *SLO, "load.search_points_max=5")
    assert grid.go() == (
        "baseline keeps time per token p99 <= 20 ms up to concurrency 32 (missed at 64: 25 of 50 requests over, "
        "not proven), not narrowed further: 5 levels were measured (load.search_points_max), "
        "goodput 3.20 requests/s; not proven: 0 of 50 requests over, 459 prove it"
    )
    assert len(grid.asked) == 5


def test_what_failed_counts_as_missed_and_is_measured_again_when_resumed(tmp_path: Path) -> None:
    """A server that dies at 16 ends the climb there; the next command tries it again."""
    dies = keeping(64, lambda _, level, before: "FAILED" if place_of(level) >= 16 and not before else "VALID")
    grid = Pretended(tmp_path, dies, ["baseline"], *SLO)
    assert "up to concurrency 15 (16 counts as missed: FAILED, because), goodput 1.50" in grid.go()
    again = Pretended(tmp_path, keeping(64), ["baseline"], *SLO)
    assert again.go().startswith("baseline keeps time per token p99 <= 20 ms up to concurrency 64, the highest level")
    assert [at for _, _, at in again.asked] == [(16,), (64,)]


def test_overload_is_a_miss_and_no_noise(tmp_path: Path) -> None:
    """A rate that the server cannot keep up with is not measured twice."""
    overload = {"slo": {"met": False}, "reasons": [{"rule": "overload"}]}

    def measure(run: Run, level: Level, before: int) -> tuple[str, float, dict[str, Any]]:
        status, speed, more = keeping(99)(run, level, before)
        return ("INVALID", speed, {**more, **overload}) if (level.rate or 0) > 3 else (status, speed, more)

    asked = ("load=open", "load.rate=[1,2,4]", "load.search=slo", "slo.ttft_p99_ms=200", "load.search_factor=1.5")
    grid = Pretended(tmp_path, measure, ["baseline"], *asked)
    said = grid.go()
    assert said.startswith(
        "baseline keeps TTFT since planned p99 <= 200 ms up to rate 2.83/s (missed at 4: overloaded)"
    )
    assert [at for _, _, at in grid.asked] == [(1.0,), (2.0,), (4.0,), (2.83,)]


@pytest.mark.parametrize("asked", [CROSS, SLO])
def test_a_repetition_is_no_part_of_a_search(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """The baseline once more at the end is measured at its own levels, whatever the search has found."""
    measure = crossing(7.0) if asked == CROSS else keeping(3)
    grid = Pretended(tmp_path, measure, ["baseline", "eagle_topk1_v2"], *asked)
    again = Run(made("+variant=baseline", *asked, "load.concurrency=[1,30]"), tmp_path / "drift", repeat=True)
    grid.search.runs = [*grid.search.runs, again]
    said = grid.go()
    assert grid.asked[-1] == ("baseline", 0, (1, 30))
    assert (1, 30) not in [levels for _, _, levels in grid.asked[:-1]]
    assert said.count("baseline keeps") == (asked == SLO)


def test_without_a_search_every_level_of_every_run(tmp_path: Path) -> None:
    """One piece of work a run, and nothing said."""
    grid = Pretended(tmp_path, crossing(7.0), ["baseline", "eagle_topk1_v2"], "load.concurrency=[1,4]")
    assert (grid.go(), grid.search.ending()) == ("", "")
    assert grid.asked == [(name, 0, (1, 4)) for name in ("baseline", "eagle_topk1_v2")]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([("baseline", *CROSS)], r"add -m \+variant=baseline,OTHER"),
        ([("eagle_topk1_v2", *CROSS), ("ngram", *CROSS)], "holds variants against the baseline"),
        ([("baseline", *CROSS), ("baseline", *CROSS)], "holds variants against the baseline"),
        (
            [("baseline", *CROSS), ("ngram", *CROSS), ("ngram", *CROSS, "workload=random")],
            "takes one run a variant",
        ),
        ([("baseline", *CROSS), ("ngram", "load=ladder")], "load.search differs between the runs"),
    ],
)
def test_searches_that_cannot_be(runs: list[tuple[str, ...]], said: str) -> None:
    """What only all runs together show is refused before anything starts."""
    with pytest.raises(ConfigError, match=said) as caught:
        check([made(f"+variant={name}", *more) for name, *more in runs])
    assert "\n" not in str(caught.value)
