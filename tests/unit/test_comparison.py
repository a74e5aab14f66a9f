"""Points held against each other: what may be, by which block, and what follows."""

import json
from typing import Any

import pytest
from points import STUDY, by_clock, point, study, times

from loadgen import advice, comparison, formats, pairing, spelling
from loadgen.adaptive import offer
from loadgen.advice import LATENCY, THROUGHPUT, choices, sentence
from loadgen.comparison import Contest
from loadgen.config import Level
from loadgen.paired import BETTER, SAME, TOO_FEW, WORSE, Crossover


def contest(points: list[dict[str, Any]], **more: Any) -> Contest:
    """The only contest of these Points."""
    (one,) = comparison.contests(points, times, pairing.labels(points, ()), "baseline", **more)
    return one


def at(concurrency: int) -> Level:
    return Level(concurrency, None)


# --- the study ---


def test_the_study_is_told_as_it_was() -> None:
    """The tree is worse everywhere; the chain worse at 1, better at 30, the same at 100, crossing in between."""
    one = contest(study())
    words = {name: [row.output.word for row in one.of(name)] for name in one.variants}
    assert words["eagle_topk4_v1"] == [WORSE] * 3
    assert words["eagle_topk1_v2"] == [WORSE, BETTER, SAME]
    assert words["baseline"] == [None] * 3
    assert one.crossovers["eagle_topk4_v1"] == ()
    (crossing,) = one.crossovers["eagle_topk1_v2"]
    assert crossing.rises
    assert crossing.between == (1, 30)
    assert crossing.interval is not None
    assert 1 < crossing.interval[0] < crossing.interval[1] < 30


def test_each_range_of_load_gets_its_variant() -> None:
    """The baseline for one stream, the chain from 30 on, with the crossing between them."""
    one = contest(study())
    first, second = choices(one, THROUGHPUT)
    assert (first.variant, first.low, first.high) == ("baseline", at(1), at(1))
    assert (second.variant, second.low, second.high) == ("eagle_topk1_v2", at(30), at(100))
    assert second.boundary
    assert second.boundary.between == (1, 30)
    assert second.blocks == 3
    told = sentence(one, [first, second])
    assert told.startswith("run baseline up to concurrency 1")
    assert "eagle_topk1_v2 from concurrency 30 on, crossing at" in told
    assert "the same at concurrency 100 (3 blocks: a look)" in told
    assert [choice.variant for choice in choices(one, LATENCY)] == ["baseline", "eagle_topk1_v2"]


def test_without_the_chain_the_conclusion_is_another() -> None:
    """What nobody has run cannot be recommended."""
    one = contest(study(("baseline", "eagle_topk4_v1")))
    (only,) = choices(one, THROUGHPUT)
    assert only.variant == "baseline"
    assert sentence(one, [only]).startswith("run baseline at every load that was measured: eagle_topk4_v1 is worse")


def test_one_block_is_a_guess() -> None:
    """No word, an interval within one run, and a sentence that says so; crossings have no interval."""
    one = contest(study(blocks=1))
    row = one.rows["eagle_topk1_v2", at(30)]
    assert (row.output.word, row.output.ratio.scope if row.output.ratio else None) == (TOO_FEW, "within run")
    (crossing,) = one.crossovers["eagle_topk1_v2"]
    assert crossing.at is not None
    assert crossing.interval is None
    chosen = choices(one, THROUGHPUT)
    assert [choice.variant for choice in chosen] == ["baseline", "eagle_topk1_v2"]
    assert [choice.blocks for choice in chosen] == [1, 1]
    assert "1 block: a guess" in sentence(one, chosen)


def test_latencies_are_pooled_and_paired() -> None:
    """Quantiles of all requests with the interval of order statistics; ratios by block; smaller is better."""
    one = contest(study())
    figure = one.rows["eagle_topk4_v1", at(30)].times["tpot_ms"]["p50"]
    assert figure.n == 300
    assert figure.value.scope == "within run"
    assert figure.word == WORSE
    assert figure.ratio
    assert figure.ratio.value == pytest.approx(STUDY["baseline"][30] / STUDY["eagle_topk4_v1"][30], rel=0.01)
    assert "p99" not in one.rows["eagle_topk4_v1", at(30)].times["tpot_ms"], "300 requests are too few"


def test_nothing_beside_a_baseline_that_is_not_there() -> None:
    """Figures, no ratios, no advice."""
    one = contest(study(("eagle_topk4_v1", "eagle_topk1_v2")))
    assert all(row.output.ratio is None for row in one.rows.values())
    assert choices(one, THROUGHPUT) == []
    assert "nothing can be recommended" in sentence(one, [])


def test_another_baseline_may_be_named() -> None:
    """Whatever is called so has no ratio of its own."""
    points = study()
    (one,) = comparison.contests(points, times, pairing.labels(points, ()), "eagle_topk4_v1")
    assert one.rows["baseline", at(30)].output.word == BETTER
    assert one.rows["eagle_topk4_v1", at(30)].output.ratio is None


# --- which Point counts for which block ---


def test_what_is_not_valid_does_not_count() -> None:
    """An INVALID Point takes its level out of its block, no more."""
    points = study()
    for one in points:
        if (one["variant"], one["block"], one["load"]["concurrency"]) == ("baseline", 1, 30):
            one["verdict"] = {"status": "INVALID", "reasons": []}
    found = contest(points)
    assert found.rows["eagle_topk1_v2", at(30)].output.ratio.blocks == 2  # type: ignore[union-attr]
    assert found.rows["eagle_topk1_v2", at(100)].output.ratio.blocks == 3  # type: ignore[union-attr]


def test_a_second_measurement_takes_the_first_ones_place() -> None:
    """In the same folder the later VALID one counts; in another folder it is another block."""
    again = point("baseline", 1, 200.0, started_at="2026-02-01T00:00:00+00:00", point_id="again")
    assert contest([*study(blocks=1), again]).rows["baseline", at(1)].output.value.value == 200
    elsewhere = study(blocks=1, root="outputs/b")
    one = contest([*study(blocks=1), *elsewhere])
    assert len(one.blocks) == 2
    assert one.rows["eagle_topk1_v2", at(1)].output.ratio.blocks == 2  # type: ignore[union-attr]


def test_two_commands_one_after_the_other_are_one_block() -> None:
    """A variant measured alone is held against the baseline of the same block's number that ran last before it."""
    early = point("baseline", 1, 90.0, root="outputs/early", started_at="2026-01-01T00:00:00+00:00")
    late = point("baseline", 1, 100.0, root="outputs/late", started_at="2026-01-02T00:00:00+00:00")
    alone = point("eagle_topk1_v2", 1, 110.0, root="outputs/alone", started_at="2026-01-02T01:00:00+00:00")
    row = contest([early, late, alone]).rows["eagle_topk1_v2", at(1)]
    assert row.output.ratio
    assert row.output.ratio.value == pytest.approx(1.1)


def test_what_was_started_beside_the_baseline_stays_its_pair() -> None:
    """A start of the same variant alone, later, is one more figure and no pair: it took the paired one's place."""
    alone = [
        point("eagle_topk1_v2", 1, 200.0, block=n, root="outputs/z", started_at="2026-02-01T00:00:00+00:00")
        for n in range(3)
    ]
    row = contest([*study(), *alone]).rows["eagle_topk1_v2", at(1)]
    assert row.output.value.blocks == 6
    assert row.output.ratio
    assert (row.output.ratio.blocks, round(row.output.ratio.value, 3)) == (3, 0.937)


def test_a_repeat_is_drift_and_in_no_pair() -> None:
    """The baseline once more at the end stands beside its first time, and moves no figure."""
    repeat = point("baseline", 30, 500.0, point_id="repeat", repeat=True, started_at="2026-01-09T00:00:00+00:00")
    one = contest([*study(), repeat])
    (drift,) = one.drift
    assert (drift.level, drift.again) == (at(30), 500)
    assert drift.ratio == pytest.approx(500 / 689.4)
    assert one.rows["baseline", at(30)].output.value.value == pytest.approx(689.6, abs=1)


def test_shorter_answers_are_not_the_same_work() -> None:
    """A variant that stops earlier is no faster, and the comparison says so."""
    points = study()
    for one in points:
        if one["variant"] == "eagle_topk1_v2":
            one["summary"]["output_tokens_mean"] = 480.0
    assert (
        "eagle_topk1_v2 answered 480 tokens at concurrency 1, baseline 512: not the same work"
        in contest(points).cautions
    )


# --- what must match ---


def test_alike_is_alike() -> None:
    assert pairing.unlike(study()) == []


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"of": {"engine.version": "0.5.23"}}, "engine.version"),
        ({"of": {"workload_hash": "x"}}, "workload_hash of diverse"),
        ({"load": {"concurrency": 1, "requests": 3}}, "load.requests at concurrency 1 of diverse"),
    ],
)
def test_what_differs_is_named_with_its_folders(other: dict[str, Any], name: str) -> None:
    """Version, workload, load: each once, with both values and where they are."""
    (found,) = pairing.unlike([point("baseline", 1, 90.0), point("eagle_topk1_v2", 1, 90.0, root="outputs/b", **other)])
    assert found.name == name
    assert {roots for _, roots in found.values} == {("outputs/a",), ("outputs/b",)}
    assert "outputs/a" in found.words
    assert pairing.allowed(found.name, [name.split()[0]])
    assert not pairing.allowed(found.name, ["hardware"])


def test_one_name_is_one_variant() -> None:
    """Another flag under the same name is told, and with --allow variant becomes a name of its own."""
    other = point("eagle_topk1_v2", 1, 90.0, root="outputs/b", flags={"args.speculative_num_steps": 5})
    points = [point("baseline", 1, 90.0, flags={}), point("eagle_topk1_v2", 1, 90.0, flags={}), other]
    (found,) = pairing.unlike(points)
    assert found.name == "variant.args.speculative_num_steps of eagle_topk1_v2"
    assert pairing.allowed(found.name, ["variant"])
    named = pairing.labels(points, [found.name])
    assert sorted(named.values()) == [
        "baseline",
        "eagle_topk1_v2",
        "eagle_topk1_v2 args.speculative_num_steps=5",
    ]


def test_other_workloads_are_other_contests() -> None:
    """Fixed and diverse prompts stand apart, and their hashes may differ."""
    other = [{**one, "workload": "fixed_prompt", "must_match": {"of": {"workload_hash": "f"}}} for one in study()]
    points = [*study(), *other]
    assert [one for one in pairing.unlike(points) if "hash" in one.name] == []
    found = comparison.contests(points, times, pairing.labels(points, ()), "baseline")
    assert [one.workload for one in found] == ["diverse", "fixed_prompt"]


def test_what_may_differ_is_part_of_the_name() -> None:
    """Two versions of an engine are two variants."""
    points = [*study(blocks=1), *study(blocks=1, root="outputs/b", of={"engine.version": "0.5.23"})]
    named = pairing.labels(points, ["engine.version"])
    assert set(named.values()) == {f"{name} engine.version={v}" for name in STUDY for v in ("0.5.9", "0.5.23")}


def test_what_may_differ_of_load_and_workload_is_part_of_the_name_too() -> None:
    """Other prompts or another arrival under --allow are never pooled as blocks of one variant."""
    other = study(root="outputs/b", of={"workload_hash": "x"})
    named = pairing.labels([*study(), *other], ["workload_hash of diverse"])
    assert {name for name in named.values() if "topk1" in name} == {
        "eagle_topk1_v2 workload_hash=w",
        "eagle_topk1_v2 workload_hash=x",
    }
    poisson = by_clock(point("baseline", None, 90.0), 2.0)
    constant = {**poisson, "point_id": "c", "load": {**poisson["load"], "arrival": "constant"}}
    (found,) = pairing.unlike([poisson, constant])
    named = pairing.labels([poisson, constant], [found.name])
    assert sorted(named.values()) == ["baseline load.arrival=constant", "baseline load.arrival=poisson"]


# --- loads that lie on no one axis ---


def test_streams_rates_and_traces_are_other_contests() -> None:
    """No crossover between 30 streams and 40 requests a second; a trace is not a process of its mean rate."""
    speeds = {"baseline": 300.0, "eagle_topk1_v2": 270.0}
    rates = [by_clock(point(name, None, speed, block=n), 40.0) for name, speed in speeds.items() for n in range(3)]
    traces = [
        by_clock(point(name, None, 2 * speed, block=n), 40.0, "t") for name, speed in speeds.items() for n in (0, 1)
    ]
    points = [*study(), *rates, *traces]
    found = comparison.contests(points, times, pairing.labels(points, ()), "baseline")
    assert [one.workload for one in found] == ["diverse by concurrency", "diverse by rate", "diverse by trace"]
    assert [[level.words for level in one.levels] for one in found[1:]] == [["rate 40/s"], ["trace of 40/s"]]
    assert [len(one.crossovers["eagle_topk1_v2"]) for one in found] == [1, 0, 0]
    baseline = [next(iter(one.rows.values())).output.value for one in found[1:]]
    assert [(value.blocks, round(value.value)) for value in baseline] == [(3, 300), (2, 600)]


# --- what nothing can be said of ---


def test_nothing_beside_the_baseline_is_no_recommendation() -> None:
    """Neither a baseline alone, nor latencies of too few requests: both were `run baseline (0 blocks: a guess)`."""
    alone = contest(study(("baseline",)))
    said = sentence(alone, choices(alone, THROUGHPUT))
    assert said == "nothing can be recommended: baseline was not measured beside anything"
    points = study()
    (few,) = comparison.contests(points, lambda _: {}, pairing.labels(points, ()), "baseline")
    said = sentence(few, choices(few, LATENCY))
    assert said == "nothing can be recommended: no median time of a request stands beside that of baseline"
    assert "3 blocks: a look" in sentence(few, choices(few, THROUGHPUT))


def test_levels_without_a_baseline_are_told() -> None:
    """A variant that was measured at a level more than the baseline, and the reverse."""
    more = [point("eagle_topk1_v2", 64, 770.0, block=n) for n in range(3)]
    one = contest([*study(), *more, point("baseline", 250, 700.0)])
    said = sentence(one, choices(one, THROUGHPUT))
    assert said.endswith("(3 blocks: a look); without baseline nothing is said of concurrency 64")
    assert "0 blocks" not in said


def test_a_time_of_nothing_has_no_ratio() -> None:
    """Where a proxy hands all events over at once the time per token is 0: no division, no word."""

    def at_once(made: Any) -> dict[str, Any]:
        return {**times(made), "tpot_ms": times(made)["tpot_ms"] * 0}

    points = study()
    (one,) = comparison.contests(points, at_once, pairing.labels(points, ()), "baseline")
    row = one.rows["eagle_topk1_v2", at(30)]
    assert row.times["tpot_ms"]["p50"].ratio is None
    assert row.times["tpot_ms"]["p50"].value.value == 0
    assert row.times["ttft_ms"]["p50"].word == SAME


def test_intervals_that_are_null() -> None:
    """A figure of one start without its own interval has none."""
    points = study(blocks=1)
    for one in points:
        one["summary"]["intervals"] = None
    assert contest(points).rows["baseline", at(30)].output.value.interval is None


def test_a_crossover_that_only_some_blocks_have_reads_well() -> None:
    """It follows `at`, `above` and `below`."""
    assert spelling.crossing(Crossover(True, (1.0, 30.0), None, None, 2, 3)) == (
        "somewhere between 1 and 30 (2 of 3 blocks cross there)"
    )


# --- for programs ---


def test_json_has_everything_and_is_json() -> None:
    """Intervals, words, points by block, crossovers, the answer."""
    one = contest(study())
    chosen = {(one.workload, goal): choices(one, goal) for goal in advice.GOALS}
    (told,) = json.loads(formats.as_json([one], chosen))["contests"]
    row = next(row for row in told["rows"] if (row["variant"], row["concurrency"]) == ("eagle_topk1_v2", 30))
    assert row["output_tokens_per_s"]["word"] == "better"
    assert row["output_tokens_per_s"]["ratio"]["blocks"] == 3
    assert len(row["points"]) == 3
    assert told["crossovers"]["eagle_topk1_v2"][0]["between"] == [1, 30]
    assert [choice["variant"] for choice in told["choices"]["throughput"]] == ["baseline", "eagle_topk1_v2"]
    assert "run baseline" in told["answer"]["throughput"]


def test_csv_markdown_and_vllm() -> None:
    """A row a variant and level; a table for a pull request; vLLM's keys, one line a Point."""
    one = contest(study())
    chosen = {(one.workload, goal): choices(one, goal) for goal in advice.GOALS}
    lines = formats.as_csv([one], chosen).splitlines()
    assert len(lines) == 1 + 9
    assert {"variant", "concurrency", "ratio_to_baseline", "word", "ttft_p50_ms"} <= set(lines[0].split(","))
    assert "| concurrency 30 | eagle_topk1_v2 | " in formats.as_markdown([one], chosen)
    bench = [json.loads(line) for line in formats.as_vllm([one], chosen).splitlines()]
    assert len(bench) == 27
    assert {"max_concurrency", "output_throughput", "median_ttft_ms", "completed"} <= set(bench[0])


def test_every_format_says_what_was_simulated_and_what_is_within_one_run() -> None:
    """At which speed; an interval of one start says in Markdown too that it speaks of no other."""
    one = contest(study(blocks=1))
    chosen = {(one.workload, goal): choices(one, goal) for goal in advice.GOALS}
    text = formats.as_markdown([one], chosen)
    assert "**SIMULATED x10: ten times faster than the profile's hardware**" in text
    assert "| 0.937 [0.924, 0.951]† | too few blocks |" in text
    assert json.loads(formats.as_json([one], chosen))["contests"][0]["simulated"][0].startswith("SIMULATED x10")
    assert formats.flat([one])[0]["sim_speed"] == 10
    assert json.loads(formats.as_vllm([one], chosen).splitlines()[0])["sim_speed"] == 10


@pytest.mark.parametrize(
    ("launch", "line"),
    [
        ({}, ""),
        ({"engine": "external", "argv": None}, ""),
        ({"engine": "sglang"}, ""),
        ({"engine": "sglang", "config": {"variant": 3}, "argv": ["x", "--port", "1", "--tp", "8"]}, "x --tp 8"),
        ({"engine": "sim", "config": {}, "argv": ["x", "--fast"]}, "x --fast"),
    ],
)  # fmt: skip
def test_a_launch_of_another_version_is_told_as_it_was(launch: dict[str, Any], line: str) -> None:
    """What cannot be built anew is the line that was started, without what is of that start alone."""
    assert formats.command(launch) == line


# --- one server for both ranges ---


def test_an_adaptive_file_for_a_chain_that_pays_under_load() -> None:
    """No drafts for few streams, drafts from the graph nearest to the crossing."""
    made = offer(contest(study()), {"eagle_topk1_v2": 3})
    assert made is not None
    (low, rest), (key, drafts) = made.content.items()
    assert (low, rest, drafts) == ("1", {"candidate_steps": [0]}, {"candidate_steps": [3]})
    assert int(key) in (8, 16)
    assert "since a batch is padded to the next CUDA graph" in made.words[0]


def test_no_file_where_one_variant_wins_everywhere() -> None:
    """Nor for a tree."""
    assert offer(contest(study(("baseline", "eagle_topk4_v1"))), {"eagle_topk4_v1": 3}) is None
    assert offer(contest(study()), {}) is None
