"""The record of results: what each prefix of them concludes, what a later one overturns, what is untested."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import conclusions, notebook, notes
from loadgen.history import History, Known, Section, history
from tests.unit.results import FIRST, SECOND, SIMULATED, failed, no_times, point, study

KNOWN = (
    Known("baseline", False),
    Known("eagle_topk1_v2", True, None, "A chain with overlap: is speculation free under load?"),
    Known("eagle_topk4_v1", True, None, "A tree: does it pay under load?"),
    Known("eagle_tree_sync", True, "0.5.13", "The tree on the new worker."),
    Known("nvls", False, None, "All-reduce in the switch: is it faster?"),
)
OLD = study(FIRST, "outputs/a", 0)
NEW = study(SECOND, "outputs/b", 600)


def told_of(points: Sequence[Any]) -> History:
    return history(points, KNOWN, no_times)


def only(points: Sequence[Any]) -> Section:
    (section,) = told_of(points).sections
    return section


def text_of(points: Sequence[Any], areas: Sequence[notes.Area] = ()) -> str:
    return notes.compose(notebook.parts(told_of(points)), areas)


def current(section: Section, topic: str) -> str:
    (found,) = (one.conclusion.text for one in section.standing if one.conclusion.topic == topic)
    return found


def row_of(text: str, variant: str) -> list[str]:
    """The cells of a variant's only row in the tables of what was tried."""
    (found,) = (line for line in text.splitlines() if line.startswith(f"| {variant} |"))
    return [cell.strip() for cell in found.strip("|").split(" | ")]


def test_the_study_supersedes_its_own_conclusion() -> None:
    """Without the chain speculation does not pay and the chain is UNTESTED; with it that is superseded by its run."""
    before = only(OLD)
    text = current(before, conclusions.SPECULATION)
    assert text.startswith("Speculation does not pay under load (concurrency >= 30): eagle_topk4_v1 0.42")
    assert "UNTESTED: eagle_topk1_v2, eagle_tree_sync (from 0.5.13 on)." in text
    assert "3 blocks: a look" in text
    assert not before.superseded
    after = only(OLD + NEW)
    told = current(after, conclusions.SPECULATION)
    assert told.startswith("Speculation pays under load (concurrency >= 30) with eagle_topk1_v2: 1.10")
    assert "eagle_topk4_v1 0.4" in told
    assert "UNTESTED: eagle_tree_sync" in told
    (gone,) = (one for one in after.superseded if one.old.conclusion.topic == conclusions.SPECULATION)
    assert gone.old.conclusion.text == text
    assert gone.by.root == "outputs/b"
    assert gone.old.since.root == "outputs/a"


def test_the_text_tells_the_same_story() -> None:
    """The Markdown shows UNTESTED, then the old sentence with both dates and both folders."""
    before, after = text_of(OLD), text_of(OLD + NEW)
    assert row_of(before, "eagle_topk1_v2")[1] == "UNTESTED"
    assert row_of(before, "eagle_topk1_v2")[-1] == "A chain with overlap: is speculation free under load?"
    cells = row_of(after, "eagle_topk1_v2")
    assert cells[1] == "TESTED"
    assert cells[2].startswith("87")
    assert "at concurrency 100" in cells[4]
    assert "`outputs/b`" in cells[7]
    assert "3 blocks" in cells[5]
    _, _, old = after.partition("**Superseded**")
    (line,) = (line for line in old.splitlines() if "Speculation does not pay" in line)
    assert "Concluded 2026-01-03 00:00 from `outputs/a`" in line
    assert "overturned 2026-01-03 10:00 by `outputs/b`" in line


def test_better_figures_are_no_change() -> None:
    """Two more blocks of the same study refine what was concluded and supersede nothing."""
    more = [dict(one, block=one["block"] + 3, point_id=one["point_id"] + "x") for one in study(FIRST, "outputs/c", 60)]
    section = only(OLD + more)
    assert not section.superseded
    text = current(section, conclusions.SPECULATION)
    assert "6 blocks" in text
    assert "a look" not in text


def test_more_levels_that_fit_are_no_change() -> None:
    """A level between two of one answer, or beyond them, says nothing new; one with another answer does."""
    fits = study({"baseline": {250: 770.0}, "eagle_topk4_v1": {250: 340.0}}, "outputs/c", 600)
    some = [one for one in OLD if one["load"]["concurrency"] != 250]
    assert not only(some + fits).superseded
    other = study({"baseline": {250: 340.0}, "eagle_topk4_v1": {250: 770.0}}, "outputs/c", 600)
    section = only(some + other)
    topics = {one.old.conclusion.topic for one in section.superseded}
    assert {conclusions.SPECULATION, "for throughput", "eagle_topk4_v1 beside baseline"} <= topics
    assert "depends" in next(
        span.said
        for one in section.standing
        if one.conclusion.topic == conclusions.SPECULATION
        for span in one.conclusion.spans
    )


def test_every_change_is_told() -> None:
    """Blocks that contradict each other: what did not pay pays, and then nobody knows; both are kept as they were."""
    slow = {"baseline": {1: 92.0, 30: 700.0}, "eagle_topk1_v2": {1: 86.0, 30: 600.0}}
    quick = {"baseline": {1: 92.0, 30: 700.0}, "eagle_topk1_v2": {1: 86.0, 30: 1200.0}}
    section = only([*study(slow, "o/1", 0, 1), *study(quick, "o/2", 60, 1), *study(slow, "o/3", 120, 1)])
    told = [one for one in section.superseded if one.old.conclusion.topic == conclusions.SPECULATION]
    assert [one.by.root for one in told] == ["o/2", "o/3"]
    assert "0.858 x [0.846, 0.870]† at 30 (1 block: a guess)" in told[0].old.conclusion.text
    assert "1.213 x" in told[1].old.conclusion.text
    assert "is undecided" in current(section, conclusions.SPECULATION)


def test_one_stream_alone_is_no_load() -> None:
    """Of load nothing is known, and that is no claim that could be overturned."""
    section = only(study({name: {1: some[1]} for name, some in FIRST.items()}, "outputs/a", 0))
    (one,) = (one for one in section.standing if one.conclusion.topic == conclusions.SPECULATION)
    assert one.conclusion.text.startswith("Nothing is known of speculation under load")
    assert not one.conclusion.claims
    later = only(study({name: {1: some[1]} for name, some in FIRST.items()}, "outputs/a", 0) + NEW)
    assert conclusions.SPECULATION not in {gone.old.conclusion.topic for gone in later.superseded}


def test_the_highest_level_may_be_no_load() -> None:
    """Where the baseline still rises at the last level, the sentence says that it is only the highest measured."""
    table = {"baseline": {1: 90.0, 8: 400.0}, "ngram": {1: 80.0, 8: 300.0}}
    text = current(only(study(table, "outputs/a", 0)), conclusions.SPECULATION)
    assert text.startswith("Speculation does not pay under load (concurrency 8, the highest measured): ngram 0.75")


def test_unlike_things_stand_apart() -> None:
    """Another engine version, or a simulation, is another section and never an error."""
    newer = [dict(one) for one in study(SECOND, "outputs/b", 600, of={"engine.version": "0.5.23"})]
    simulated = study(FIRST, "outputs/s", 700, **SIMULATED)
    told = told_of(OLD + newer + simulated)
    assert len(told.sections) == 3
    assert not any(section.superseded for section in told.sections)
    text = text_of(OLD + newer + simulated)
    assert "they differ in engine.version" in text
    assert "SIMULATED x10" in text


def test_what_was_only_simulated_is_untested() -> None:
    """In the table of real results; in that of simulated ones it is TESTED."""
    simulated = study(SECOND, "outputs/s", 0, **SIMULATED)
    text = text_of(simulated)
    measured, _, made = text.partition("## Simulated")
    assert row_of(measured, "eagle_topk1_v2")[1] == "UNTESTED"
    assert row_of(measured, "baseline")[1] == "UNTESTED"
    assert row_of(made, "eagle_topk1_v2")[1] == "TESTED"


def test_failures_have_their_reason() -> None:
    """A variant that failed is FAILED with the reason; one that was also measured is TESTED with the remark."""
    never = {**failed("nvls", 1, root="outputs/a"), "point_id": None, "started_at": None, "must_match": None}
    never["reason"] = "server: unrecognized arguments: --enable-nccl-nvls"
    text = text_of([*OLD, failed("eagle_topk4_v1", 70), never])
    assert row_of(text, "nvls")[1] == "FAILED"
    assert "unrecognized arguments: --enable-nccl-nvls" in row_of(text, "nvls")[-1]
    assert row_of(text, "eagle_topk4_v1")[1] == "TESTED"
    assert "the server ran out of memory" in row_of(text, "eagle_topk4_v1")[-1]


def test_invalid_points_are_counted_and_interrupted_ones_are_not() -> None:
    """A variant with nothing but INVALID Points stays UNTESTED, and says so."""
    bad = [failed("eagle_topk1_v2", 1, "INVALID"), failed("eagle_topk1_v2", 30, "INVALID")]
    gone = failed("nvls", 1, "INTERRUPTED")
    told = told_of([*OLD, *bad, gone])
    assert sum(len(result.points) for result in told.results) == len(OLD) + 2
    text = text_of([*OLD, *bad, gone])
    assert row_of(text, "eagle_topk1_v2")[1] == "UNTESTED"
    assert "2 Points INVALID" in row_of(text, "eagle_topk1_v2")[-1]
    assert "eagle_topk1_v2 (INVALID)" in current(told.sections[0], conclusions.SPECULATION)
    assert f"({len(OLD)} VALID, 2 INVALID)" in text


def test_a_copy_counts_once() -> None:
    """The same Points copied into another folder change nothing, whichever comes first."""
    copies = [dict(one, root="z/copy", folder=f"z/copy/{place}") for place, one in enumerate(OLD)]
    assert text_of(OLD + copies) == text_of(copies + OLD) == text_of(OLD)


def test_a_result_without_a_time_comes_first() -> None:
    """It is cited as such, and ends nothing."""
    early = {**failed("nvls", 1, root="outputs/never"), "started_at": None, "must_match": None, "engine": None}
    told = told_of([*OLD, early])
    assert told.results[0].root == "outputs/never"
    assert "at a time not recorded" in text_of([*OLD, early])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_order_does_not_matter(seed: int) -> None:
    """Any order of the same Points gives the same bytes."""
    points = [*OLD, *NEW, failed("nvls", 30), *study(FIRST, "outputs/s", 9, **SIMULATED)]
    shuffled = list(points)
    random.Random(seed).shuffle(shuffled)
    assert text_of(shuffled) == text_of(points)


def test_prefixes_are_the_history() -> None:
    """What was superseded is exactly what shorter histories concluded: the record needs no memory of itself."""
    third = study({"baseline": {30: 700.0}, "ngram": {30: 900.0}}, "outputs/d", 900)
    runs = [OLD, NEW, third]
    said = []
    for length in range(1, len(runs) + 1):
        section = only(list(itertools.chain(*runs[:length])))
        said.append({one.conclusion.topic: one.conclusion.text for one in section.standing})
        for gone in section.superseded:
            assert any(earlier.get(gone.old.conclusion.topic) == gone.old.conclusion.text for earlier in said[:-1])


@pytest.mark.parametrize(
    "name", ["a|b", "<!-- notes: begin -->", "`x`", "[a](http://b)", "a\nb", "x\x1b[31m", "**b**", "a\\"]
)
def test_hostile_names_stay_text(name: str) -> None:
    """No name opens a mark, a cell, a link or a colour; the file can be read back."""
    named = notebook.plain(name)
    assert "\n" not in named
    assert "<" not in named
    points = [*OLD, *study({"baseline": {1: 90.0, 30: 700.0}, named: {1: 91.0, 30: 720.0}}, f"o/{name}", 600,
                           workload=f"w {name}", study=name, model=name)]  # fmt: skip
    text = text_of(points)
    kept = notes.read(text, "x")
    assert kept.untouched
    assert "\x1b" not in text
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {10, 6}


def test_two_hardwares_are_named() -> None:
    """Every row says on what it was measured."""
    other = study(SECOND, "outputs/b", 600, of={"hardware.gpus": [], "hardware.cpu_cores": 2})
    text = text_of(OLD + other)
    assert "8 x RTX PRO 6000" in text
    assert "EPYC with 2 cores" in text


def test_open_and_closed_loops_stand_apart() -> None:
    """Streams and requests a second are no one axis."""
    opened = [
        point(name, 1, speed, root="o/r", load={"kind": "open", "rate": 2.0, "requests": None, "arrival": "poisson"})
        for name, speed in (("baseline", 100.0), ("ngram", 120.0))
    ]
    told = told_of(OLD + opened)
    assert len(told.sections) == 2
    assert "pays under load (rate 2/s, the highest measured) with ngram" in text_of(OLD + opened)


def test_at_a_rate_the_same_throughput_proves_nothing() -> None:
    """Two servers that keep up with a rate have the same throughput, whatever speculation costs them."""
    load = {"kind": "open", "rate": 2.0, "requests": None, "arrival": "poisson"}
    opened = [point(name, 1, 100.0, n, load=load) for name in ("baseline", "ngram") for n in range(3)]
    told = current(only(opened), conclusions.SPECULATION)
    assert told.startswith(
        "Whether speculation pays under load (rate 2/s, the highest measured) is undecided: ngram 1.0"
    )
