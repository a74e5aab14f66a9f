"""SGLang 0.5.23 on a CPU, a whole study by the tool's own command: flags, counters, answers and the honest last line.

Its prompts' text and the speed mean nothing (a random model, plain PyTorch); dialect, counting and equality do.
"""

import re

import pytest
from engines import ONE_BLOCK, SHORT, Study, require_nothing_left, run, unprepared

from loadgen import audit, compare
from loadgen.paired import TOO_FEW

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason := unprepared("sglang", "tiny")), reason=reason or "prepared"),
]

SPECULATIVE = {"eagle1_chain": "chain_sync", "eagle1_tree": "tree_sync", "ngram": "ngram"}
REQUESTS = 3 + 12 + 24
BLOCKS = 1 if SHORT else 2


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Four variants at three levels in two blocks, or one: eight servers, or four."""
    return run(tmp_path_factory.mktemp("sglang"), "-m", "+study=real_sglang", "output.quiet=true", *ONE_BLOCK)


def test_the_study_runs_to_its_end(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    """Every Point is there; one may be INVALID for a client that shares two cores, none for its server."""
    with capsys.disabled():
        print(f"\nreal_sglang in {study.seconds:.0f} s, exit {study.code}\n{study.out}")
        print("ready in s:", {(one["variant"], one["block"]): round(one["ready_s"], 1) for one in study.launches()})
    assert study.code in (0, 6), study.err
    points = study.points()
    assert len(points) == len(study.ledger()) == (1 + len(SPECULATIVE)) * 3 * BLOCKS
    assert {line["status"] for line in study.ledger()} <= {"VALID", "INVALID"}
    reasons = [reason for point in points for reason in point["verdict"]["reasons"]]
    assert not [reason for reason in reasons if reason["rule"] in ("server", "failed_share", "short_share")], reasons
    assert {row["outcome"] for row in study.rows()} == {"ok"}
    require_nothing_left()


def test_each_server_was_the_one_asked_for(study: Study) -> None:
    """What SGLang tells of itself: algorithm, width, tokens, scheduler, running cap; and the core it was given."""
    launches = study.launches()
    assert len(launches) == (1 + len(SPECULATIVE)) * BLOCKS
    for launch in launches:
        info = launch["server_info"]
        assert info["random_seed"] == launch["seed"]
        assert launch["engine_version"].startswith("0.5.23")
        assert launch["spec_mode"] == SPECULATIVE.get(launch["variant"], "none")
        assert info["disable_overlap_schedule"] is True
        assert info["max_running_requests"] == 256
        assert launch["cores"] == [0]
    told = {
        launch["variant"]: [
            launch["server_info"][f"speculative_{name}"] for name in ("algorithm", "eagle_topk", "num_draft_tokens")
        ]
        for launch in launches
    }
    assert told["baseline"][0] is None
    assert told["eagle1_chain"] == ["EAGLE", 1, 4]
    assert told["eagle1_tree"] == ["EAGLE", 4, 8]
    assert (told["ngram"][0], told["ngram"][2]) == ("NGRAM", 4)


def test_requests_and_counters_count_the_same_accept_length(study: Study) -> None:
    """By each request's own verify steps and by /metrics over the same Point, within 1 %; a baseline has none."""
    for point in study.points():
        both = point["summary"]["accept_of_the_point"]
        if point["variant"] == "baseline":
            assert both == {"requests": None, "counters": None}
            continue
        assert both["counters"] == pytest.approx(both["requests"], rel=0.01), point["point_id"]
        assert 1 <= both["requests"] <= 4
        assert point["summary"]["accept_source"] == "requests"
    chains = [point["summary"]["accept_length"] for point in study.points() if point["variant"] == "eagle1_chain"]
    assert all(length > 1.5 for length in chains), "the head guesses most tokens"


def test_speculation_changes_no_answer(study: Study) -> None:
    """The tool's audit: every greedy answer is the baseline's, prompt by prompt."""
    assert "audit: answers beside the baseline's" in study.out
    assert "answered otherwise" not in study.out
    for variant in SPECULATIVE:
        cells = [line.split() for line in study.out.splitlines() if line.startswith(f"{variant} ")]
        assert [variant, str(REQUESTS * BLOCKS), "0", "0"] in cells


def test_the_tool_says_whether_speculation_pays_here(study: Study) -> None:
    """A ratio for each variant and level, two blocks a guess: trees in Python on one core cannot be worth it."""
    assert re.search(r"\([12] blocks?: a guess\)", " ".join(study.out.split()))
    (contest,) = compare.compare([study.folder]).contests
    assert set(contest.variants) == {"baseline", *SPECULATIVE}
    rows = [row for variant in SPECULATIVE for row in contest.of(variant)]
    assert {row.output.word for row in rows} <= {TOO_FEW, None}
    if {line["status"] for line in study.ledger()} == {"VALID"}:
        assert [row.output.ratio and row.output.ratio.blocks for row in rows] == [BLOCKS] * 3 * len(SPECULATIVE)
        last = contest.of("eagle1_tree")[-1].output.ratio
        assert last is not None
        assert last.value < 1, "eight draft tokens in Python cannot be worth it with eight streams"


def test_what_was_written_can_be_audited_again(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m loadgen.audit FOLDER` says of the finished folder what the command said."""
    assert audit.main([str(study.folder)]) == 0
    assert "audit: answers beside" in capsys.readouterr().out
