"""Objectives: MLPerf's numbers, requests that kept a limit, goodput, and how sure it is."""

import io
import json
import re
from typing import Any

import pytest
from points import point, study, times
from rows import NS_PER_MS, failure, row
from test_summary import arrays

from loadgen import advice, comparison, formats, objectives, pairing, report, tables
from loadgen.config import Level, Slo
from loadgen.objectives import figures, lines, needed, standing
from loadgen.page import sheets
from loadgen.stats import share_bounds
from loadgen.summary import summarize

WINDOW = (0, 100_000_000_000)  # ns: 100 s


def judged(rows: list[dict[str, Any]], slo: Slo, overloaded: bool = False, whole_run: bool = False) -> dict[str, Any]:
    cols = arrays(rows, WINDOW)
    numbers = summarize(cols, *WINDOW, concurrency=1, gpus=None, whole_run=whole_run, overloaded=overloaded)
    return figures(slo, cols, numbers, overloaded)


def slow(seq: int, ttft_ms: float, gap_ms: float = 10.0, **changes: Any) -> dict[str, Any]:
    """A request whose first output comes after so long, and then an event every `gap_ms`."""
    sent = round(changes.get("sent_ms", seq * 10.0) * NS_PER_MS)
    stamps = [sent + round((ttft_ms + gap_ms * i) * NS_PER_MS) for i in range(5)]
    return row(seq, sent / NS_PER_MS, chunk_ns=stamps, **{k: v for k, v in changes.items() if k != "sent_ms"})


@pytest.mark.parametrize(("over", "requests"), [(0, 459), (1, 662), (5, 1307), (10, 2010)])
def test_the_numbers_are_mlperfs(over: int, requests: int) -> None:
    """So many requests with so many over prove a p99 at 99 %, and one fewer does not."""
    assert needed(over) == requests
    assert share_bounds(over, requests, 0.99)[1] <= 0.01 < share_bounds(over, requests - 1, 0.99)[1]


def test_bounds_of_a_share() -> None:
    """Nothing of n has a lower bound of 0, all of n an upper of 1, and each side errs no more often than it says."""
    assert share_bounds(0, 10)[0] == 0
    assert share_bounds(10, 10)[1] == 1
    # Rule of three: nothing in n excludes 3 / n at 95 %.
    assert share_bounds(0, 1000)[1] == pytest.approx(3 / 1000, rel=0.01)
    assert share_bounds(3, 10)[0] < 0.3 < share_bounds(3, 10)[1]


@pytest.mark.parametrize(
    ("n", "over", "met", "kept"),
    [
        (459, 0, True, True),
        (458, 0, None, True),
        (661, 1, None, True),
        (662, 1, True, True),
        (50, 1, None, False),
        (50, 5, False, False),
        (1000, 30, False, False),
    ],
)
def test_met_missed_or_undecided(n: int, over: int, met: bool | None, kept: bool) -> None:
    """Where the requests are too few to be sure, the share that was over decides what counts as kept."""
    rows = [slow(seq, 300 if seq < over else 100) for seq in range(n)]
    slo = judged(rows, Slo(ttft_p99_ms=200))["slo"]
    one = slo["ttft_p99_ms"]
    assert (slo["met"], one["met"], one["over"], one["requests"]) == (met, met, over, n)
    assert (standing(slo).kept, standing(slo).proven) == (kept, met is not None)
    assert one["over_share_bounds"][0] <= one["over_share"] <= one["over_share_bounds"][1]
    assert (one["p99_ms"] is None) == (one["interval_ms"] is None) == (n < 368)


def test_goodput_by_hand() -> None:
    """Sent in the window, ended well, within both limits: the others are no good, failed ones included."""
    rows = [
        slow(0, 100),
        slow(1, 250),  # its first token is late
        slow(2, 100, gap_ms=30),  # its tokens are slow
        failure(3, 30, "http_status", http_status=500),
        slow(4, 200),  # just within
        slow(5, 100, outcome="cut"),
        slow(6, 100, sent_ms=200_000),  # after the window
        row(7, 70, chunk_ns=[round(90 * NS_PER_MS)], output_tokens=5),  # all tokens at once: nobody waited between
    ]
    found = judged(rows, Slo(ttft_p99_ms=200, tpot_p99_ms=20))
    assert found["goodput_requests_per_s"] == pytest.approx(3 / 100)
    assert found["goodput_share"] == pytest.approx(3 / 7)
    assert (found["slo"]["ttft_p99_ms"]["over"], found["slo"]["tpot_p99_ms"]["over"]) == (3, 3)
    assert found["slo"]["ttft_p99_ms"]["requests"] == 7
    whole = judged(rows, Slo(ttft_p99_ms=200, tpot_p99_ms=20), whole_run=True)
    assert whole["goodput_share"] == pytest.approx(4 / 8)
    # A whole run lasts from its first request to its last output.
    assert whole["goodput_requests_per_s"] == pytest.approx(4 / 200.14)


def test_open_loop_counts_since_planned() -> None:
    """Who waited before it could be sent has waited."""
    rows = [row(seq, 500 + seq, rate=5.0, planned_ns=0 if seq else 500 * NS_PER_MS) for seq in range(2)]
    told = judged(rows, Slo(ttft_p99_ms=200))["slo"]["ttft_p99_ms"]
    assert (told["of"], told["over"], told["requests"]) == ("ttft_planned_ms", 1, 2)


def test_overload_misses_and_has_no_goodput() -> None:
    """Latencies that only grow keep no limit, however long the window is."""
    found = judged([slow(seq, 100) for seq in range(500)], Slo(ttft_p99_ms=200), overloaded=True)
    assert (found["slo"]["met"], found["slo"]["ttft_p99_ms"]["p99_ms"]) == (False, None)
    assert (found["goodput_requests_per_s"], found["goodput_share"]) == (None, None)
    assert not standing(found["slo"]).kept


def test_without_objectives_and_without_requests() -> None:
    """Nothing asked, nothing said; a window without a request decides nothing."""
    assert judged([slow(0, 100)], Slo()) == {}
    found = judged([slow(0, 100, sent_ms=200_000)], Slo(tpot_p99_ms=20))
    assert (found["slo"]["met"], found["goodput_requests_per_s"], found["goodput_share"]) == (None, 0, None)
    assert standing(found["slo"]) == objectives.Standing(False, False, "0 of 0 requests over")


def test_a_line_for_a_person() -> None:
    """Levels by word, with the requests behind it and how many it takes."""
    told = [
        {
            "load": {"concurrency": level},
            "verdict": {"status": status},
            "summary": judged([slow(seq, 300 if seq < over else 100) for seq in range(n)], LIMIT),
        }
        for level, n, over, status in (
            (30, 100, 50, "VALID"),
            (8, 100, 1, "VALID"),
            (1, 459, 0, "VALID"),
            (2, 459, 0, "INVALID"),
        )
    ]
    assert list(lines(told)) == [
        "SLO TTFT p99 <= 200 ms by concurrency: met at 1 · undecided at 8 (1 of 100 requests over, 662 prove it) · "
        "missed at 30 (50 of 100 requests over)"
    ]


LIMIT = Slo(ttft_p99_ms=200)


def with_goodput(points: list[dict[str, Any]], goods: dict[str, float], limit: float = 200) -> list[dict[str, Any]]:
    """The Points with a goodput by variant."""
    slo = {"met": True, "ttft_p99_ms": {"limit_ms": limit}}
    more = {name: {"slo": slo, "goodput_requests_per_s": good, "goodput_share": 1.0} for name, good in goods.items()}
    return [{**one, "summary": {**one["summary"], **more[one["variant"]]}} for one in points]


def contest(points: list[dict[str, Any]]) -> comparison.Contest:
    (one,) = comparison.contests(points, times, pairing.labels(points, ()), "baseline")
    return one


def test_goodput_is_compared_by_block() -> None:
    """Larger is better; a goodput of nothing is shown and has no ratio."""
    goods = {"baseline": 2.0, "eagle_topk1_v2": 3.0, "eagle_topk4_v1": 0.0}
    one = contest(with_goodput(study(), goods))
    found = {name: one.rows[name, Level(30, None)].goodput for name in goods}
    chain, tree = found["eagle_topk1_v2"], found["eagle_topk4_v1"]
    assert chain
    assert chain.ratio
    assert (chain.word, round(chain.ratio.value, 3), chain.ratio.blocks) == ("better", 1.5, 3)
    assert tree
    assert (tree.value.value, tree.value.interval, tree.ratio, tree.word) == (0, None, None, None)


def test_goodputs_under_other_objectives_are_not_compared() -> None:
    """Throughput still is; a line says what is missing."""
    goods = {"baseline": 2.0}
    some = [*with_goodput(study(["baseline"]), goods), *with_goodput([point("baseline", 5, 100)], goods, limit=300)]
    one = contest(some)
    assert {row.goodput for row in one.rows.values()} == {None}
    assert [line for line in one.cautions if "objectives differ (TTFT p99 <= 200 ms; TTFT p99 <= 300 ms)" in line]
    assert contest(study()).cautions == ()


def test_goodput_stands_in_every_table_that_knows_it() -> None:
    """Beside the levels, in a comparison's text, JSON and sheet; without objectives no table has the column."""
    goods = {"baseline": 2.0, "eagle_topk1_v2": 3.0}
    some = with_goodput(study(list(goods)), goods)
    one = contest(some)
    chosen = {("diverse", goal): advice.choices(one, goal) for goal in advice.GOALS}
    shown = report.rendered(tables.whole([one], chosen, {}), io.StringIO())
    assert "goodput" in shown
    assert re.search(r"eagle_topk1_v2 .* 3.00 \[3.00, 3.00\] +1.500 \[1.500, 1.500\] +better", shown)
    rows = json.loads(formats.as_json([one], chosen))["contests"][0]["rows"]
    assert {row["variant"]: row["goodput_requests_per_s"]["value"] for row in rows} == pytest.approx(goods)
    assert {round(row["goodput_requests_per_s"], 9) for row in formats.flat([one])} == {2.0, 3.0}
    assert "| better | 3.00 [3.00, 3.00] |" in formats.as_markdown([one], chosen)
    assert "goodput" not in formats.as_markdown([contest(study())], chosen)
    assert "goodput requests/s" in "".join(sheets.throughput(one).itertext())
    assert "goodput" not in "".join(sheets.throughput(contest(study())).itertext())
    levels = report.rendered(report.level_table(some[:3]), io.StringIO())
    assert re.search(r"goodput\n.*req/s", levels)
    assert "2 (100 %)" in levels
    plain = study(["baseline"])
    assert "goodput" not in report.rendered(report.level_table(plain), io.StringIO())
    assert "goodput" not in report.rendered(tables.whole([contest(plain)], chosen, {}), io.StringIO())
