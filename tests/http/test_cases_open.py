"""What broke other tools, groups E and F, as far as it is about loads that arrive by a clock."""

import asyncio
import json

import numpy as np
from case import arrays, facts, numbers, refusal
from scripted import Answer, Request, plain, well
from test_cases_f import strict
from test_sender import LATE_MS, S, boarded, late_ms, sent

from loadgen import verdict
from loadgen.config import Load
from loadgen.facts import facts_of, health_columns
from loadgen.rowstream import to_json
from loadgen.series import in_window


async def test_e01_no_drift() -> None:
    """A thousand sends at 200 a second: the last one after five seconds, whatever each send costs."""
    rows = await sent(well(0, 1), 200, 1000)
    last_s = (rows[-1]["sent_ns"] - rows[0]["planned_ns"]) / S
    told = "lateness_p99" in {reason.rule for reason in verdict.judge(facts(rows)).reasons}
    assert last_s >= 4.995  # drift would show as lateness that grows
    assert np.quantile(late_ms(rows), 0.99) < 20 or told


async def test_e02_waiting_for_a_place_is_shown() -> None:
    """Ten a second into one place of half a second: service time and waiting, each under its own name."""
    found = numbers(await sent(well(500), 10, 8, places=1))
    assert found["waited"] == 7
    for name, expected_ms in (("ttft_ms", 500), ("lateness_ms", 1400), ("e2e_planned_ms", 1900), ("e2e_ms", 500)):
        assert expected_ms - 2 <= found[name]["mean"] <= expected_ms + LATE_MS, name
    assert found["ttft_planned_ms"]["mean"] == found["e2e_planned_ms"]["mean"]


async def test_e03_a_burst_of_freed_places_is_counted() -> None:
    """Ten answers end together, ten requests go out together: what came in a tenth of a second is in the summary."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    def together(_request: Request, _number: int) -> Answer:
        return well(1000 - (loop.time() - began_s) * 1000 % 1000)

    rows = await sent(together, 20, 40, places=10)
    stamps = sorted(row["sent_ns"] for row in rows)
    most = max(sum(first <= stamp < first + S // 10 for stamp in stamps) for first in stamps)
    assert numbers(rows)["sent_in_100_ms_max"] == most >= 8


async def test_e08_what_could_not_be_sent_is_told() -> None:
    """Five hundred a second into places for fifty: offered and achieved side by side, and the Point is INVALID."""
    run = await boarded(well(200), 500, Load(kind="open", rate=500, window_s=1.5, max_in_flight=10))
    cols = arrays(run.rows)
    span = run.beats[-1]["window"]
    cols["in_window"] = in_window(cols, *span)
    shares = {"failed_share_max": 0.01, "short_share_max": 0.01}
    told = facts_of(cols, health_columns([]), tuple(span), concurrency=None, **shares)
    judged = verdict.judge(told)
    assert told.open is not None
    assert told.open.offered_per_s == 500
    assert 0 < (told.open.achieved_per_s or 0) <= 60  # whole rounds of ten
    assert {"rate_held", "overload"} <= {reason.rule for reason in judged.reasons}
    late = late_ms([row for row in run.rows if row["sent_ns"] is not None and row["outcome"] == "ok"])
    assert late[-1] > late[len(late) // 2] > late[0]


async def test_f05_no_rate_is_infinite_and_no_value_is_null() -> None:
    """A rate is a finite number; a rate of which no request was answered gives strict JSON without NaN."""
    for rate in (float("inf"), float("nan")):
        assert "give requests a second" in refusal({"kind": "open", "concurrency": None, "rate": rate})
    rows = await sent(plain("503 Busy", json.dumps({"error": "busy"}).encode()), 50, 10)
    found = strict(to_json({**numbers(rows), "verdict": verdict.as_json(verdict.judge(facts(rows)))}))
    assert (found["requests"], found["failed"], found["ttft_planned_ms"]["p50"]) == (10, 10, None)
    assert found["offered_per_s"] > 0
