"""vLLM 0.32 on a CPU with a model that writes sense: n-gram speculation, and whose counters say what requests saw."""

from typing import Any

import pytest
from engines import ONE_BLOCK, SHORT, Study, require_nothing_left, run, unprepared

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason := unprepared("vllm", "smollm2_135m")), reason=reason or "prepared"),
]

LEVELS, BLOCKS = ((1, 8), 1) if SHORT else ((1, 2, 4, 8), 2)
FEW = (*ONE_BLOCK, "load.concurrency=[1,8]", "load.requests=[3,24]") if SHORT else ()
GUESSES = 3  # num_speculative_tokens: a verify step gives at most one more


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two variants at four levels in two blocks, or two levels in one: four servers, or two."""
    return run(tmp_path_factory.mktemp("vllm"), "-m", "+study=real_vllm", "output.quiet=true", *FEW)


def beyond_one_step(counts: list[int]) -> int:
    """Tokens of a request that are no accepted guesses although they came behind others in one event.

    An event of more than 1 + GUESSES tokens holds several steps, each with one token that is no guess.
    """
    return sum(-(-count // (GUESSES + 1)) - 1 for count in counts)


def seen_by_requests(rows: list[dict[str, Any]], variant: str, block: int, concurrency: int) -> tuple[int, int, int]:
    """Sum over requests of (tokens - events), how much of it comes of merged steps, and what their ends may hide.

    The counter has the guesses that were accepted beyond a request's last token too, which nobody is sent: vLLM counts
    before it cuts an answer at its limit (v1/core/sched/scheduler.py, update_from_output). They are at most so many as
    the last event lacks of a whole step.
    """
    mine = [r for r in rows if (r["variant"], r["block"], r["concurrency"]) == (variant, block, concurrency)]
    counts = [[count for count in row["chunk_tokens"] if count] for row in mine]
    hidden = sum(-some[-1] % (GUESSES + 1) for some in counts)
    return sum(sum(some) - len(some) for some in counts), sum(map(beyond_one_step, counts)), hidden


def test_the_study_runs_to_its_end(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    """Every Point is there, none INVALID for its server, nothing is left."""
    with capsys.disabled():
        print(f"\nreal_vllm in {study.seconds:.0f} s, exit {study.code}\n{study.out}")
        print("ready in s:", {(one["variant"], one["block"]): round(one["ready_s"], 1) for one in study.launches()})
    assert study.code in (0, 6), study.err
    points = study.points()
    assert len(points) == 2 * len(LEVELS) * BLOCKS
    reasons = [reason for point in points for reason in point["verdict"]["reasons"]]
    assert not [reason for reason in reasons if reason["rule"] in ("server", "failed_share", "short_share")], reasons
    assert {(row["outcome"], row["output_tokens"], row["token_source"]) for row in study.rows()} == {
        ("ok", 64, "usage")
    }
    require_nothing_left()


def test_each_server_was_the_one_asked_for(study: Study) -> None:
    """Seed, speculation, cap and cache as vLLM itself tells them; the core it was given."""
    for launch in study.launches():
        info, ngram = launch["server_info"], launch["variant"] == "ngram"
        assert info["random_seed"] == launch["seed"]
        assert info["version"] == "0.32.0"
        assert info["speculative_algorithm"] == ("NGRAM" if ngram else None)
        assert (info["max_running_requests"], info["enable_prefix_caching"]) == (256, False)
        assert launch["spec_mode"] == ("ngram" if ngram else "none")
        assert launch["cores"] == [0]
        if ngram:
            assert info["vllm_config"]["speculative_config"]["num_speculative_tokens"] == GUESSES


def test_accepted_tokens_by_the_counter_are_those_that_the_requests_saw(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    """An event of a step holds one token and its accepted guesses, so tokens less events is what was accepted."""
    rows, table = study.rows(), []
    for point in (point for point in study.points() if point["variant"] == "ngram"):
        place = (point["block"], point["load"]["concurrency"])
        counted = point["summary"]["server_counters"]["point"]["accepted_tokens"]
        table.append((*place, counted, *seen_by_requests(rows, "ngram", *place)))
        table[-1] = (*table[-1], seen_by_requests(rows, "baseline", *place)[0])
    with capsys.disabled():
        print("\nblock, concurrency, accepted by the counter; tokens - events, of it merged, hidden at ends at most;")
        print("tokens - events in the baseline\n" + "\n".join(map(str, sorted(table))))
    accepted, seen, merged, hidden, plain = (sum(line[place] for line in table) for place in range(2, 7))
    assert accepted > 0, "n-grams of real text are found again"
    slack = 0.01 * accepted + plain  # what merges two steps of a baseline merges two here that accepted nothing
    assert seen - merged - slack <= accepted <= seen - merged + hidden + slack


def test_accept_length_is_vllms_own(study: Study) -> None:
    """1 + accepted / drafts, from the counters' rise over the Point; a baseline has none."""
    for point in study.points():
        summary, counted = point["summary"], point["summary"]["server_counters"]["point"]
        if point["variant"] == "baseline":
            assert summary["accept_length"] is None
            continue
        assert summary["accept_source"] == "counters"
        assert summary["accept_length"] == pytest.approx(1 + counted["accepted_tokens"] / counted["drafts"])
        assert 1 <= summary["accept_length"] <= 1 + GUESSES
