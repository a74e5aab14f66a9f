"""Plans: the same for every variant, distinct prompts, rounds that hold every kind once, shards that add up."""

import itertools
from collections import Counter

import pytest

from loadgen import plan
from loadgen.config import Workload
from loadgen.plan import Plan, Prompt, payload, rounds, shard
from loadgen.prompts import builtin
from loadgen.prompts import plan as planned

WORKLOAD = Workload(name="diverse", source="builtin")


def simple(requests: int | None = None) -> Plan:
    prompts = tuple(Prompt(f"p{i}", "chat", ({"role": "user", "content": f"text {i}"},)) for i in range(4))
    return Plan(prompts, 8, True, 0.0, 0, requests=requests)


@pytest.mark.parametrize(("concurrency", "workers"), [(1, 1), (7, 2), (250, 3), (5, 5), (100, 8)])
def test_shards_add_up(concurrency: int, workers: int) -> None:
    """Streams add up to the concurrency, and every request of a counted plan belongs to exactly one worker."""
    assert sum(len(plan.slots(concurrency, workers, k)) for k in range(workers)) == concurrency
    taken = [list(shard(simple(3 * concurrency + 1), concurrency, workers, k)) for k in range(workers)]
    assert sorted(itertools.chain(*taken)) == list(range(3 * concurrency + 1))


def test_rounds_hold_every_kind_once() -> None:
    """Each round of the shipped prompts holds each kind once; the order depends on the seed only."""
    texts = list(builtin())
    kinds = {prompt.kind for prompt in texts}
    ordered = rounds(texts, 3)
    for start in range(0, len(ordered), len(kinds)):
        assert {prompt.kind for prompt in ordered[start : start + len(kinds)]} == kinds
    assert sorted(prompt.id for prompt in ordered) == sorted(prompt.id for prompt in texts)
    assert rounds(texts, 3) == ordered
    assert rounds(texts, 4) != ordered


def test_second_round_is_numbered() -> None:
    """A Point that needs more prompts than there are goes round again, numbered, so that none is the same."""
    made = planned(WORKLOAD, tuple(builtin()), 0, None)
    asked = [made.prompt(seq).text for seq in range(2 * len(made.prompts) + 5)]
    assert len(set(asked)) == len(asked)
    assert asked[len(made.prompts)].startswith("Reading no. 2.\n\n")
    fixed = planned(
        Workload(name="f", source="fixed", text="x"),
        (Prompt("fixed", "fixed", ({"role": "user", "content": "x"},)),),
        0,
        3,
    )
    assert {fixed.prompt(seq).text for seq in range(3)} == {"x"}


def test_payloads() -> None:
    """Each API's body: explicit temperature, streaming, usage asked for, workload.body merged last."""
    chat = payload(simple(), 1, "chat", "m")
    assert chat["messages"] == [{"role": "user", "content": "text 1"}]
    assert (chat["temperature"], chat["max_tokens"], chat["ignore_eos"], chat["stream"]) == (0.0, 8, True, True)
    assert chat["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert payload(simple(), 2, "completions", "m")["prompt"] == "text 2"
    assert payload(simple(), 2, "generate", "m")["sampling_params"]["max_new_tokens"] == 8
    merged = Plan(simple().prompts, 8, False, 0.0, 0, body={"top_p": 0.9, "temperature": 0.7})
    assert payload(merged, 0, "chat", "m")["top_p"] == 0.9
    assert payload(merged, 0, "chat", "m")["temperature"] == 0.7
    assert "ignore_eos" not in payload(merged, 0, "chat", "m")
    sampled = Plan(simple().prompts, 8, True, 0.0, 0, body={"sampling_params": {"top_p": 0.9, "temperature": None}})
    expected = {"max_new_tokens": 8, "ignore_eos": True, "top_p": 0.9}
    assert payload(sampled, 0, "generate", "m")["sampling_params"] == expected


def test_kinds_stay_even() -> None:
    """Over any stretch of whole rounds every kind is asked equally often, whatever the concurrency."""
    made = planned(WORKLOAD, tuple(builtin()), 1, None)
    counts = Counter(made.prompt(seq).kind for seq in range(240))
    assert set(counts.values()) == {30}


def test_each_request_asks_for_its_own_tokens() -> None:
    """Drawn lengths are the same for every variant of a block, others in another block, and stand in the payload."""
    workload = Workload(
        name="w", source="builtin", output_tokens={"dist": "lognormal", "mean": 300, "stdev": 150, "max": 512}
    )
    found = tuple(builtin())
    made, same, other = (planned(workload, found, block, None) for block in (0, 0, 1))
    asked = [payload(made, seq, "chat", "m")["max_tokens"] for seq in range(500)]
    assert asked == [made.tokens(seq) for seq in range(500)] == [same.tokens(seq) for seq in range(500)]
    assert asked != [other.tokens(seq) for seq in range(500)]
    assert len(set(asked)) > 100
    assert max(asked) == 512
    assert payload(made, 7, "generate", "m")["sampling_params"]["max_new_tokens"] == asked[7]
    assert planned(WORKLOAD, found, 0, None).tokens(9) == WORKLOAD.max_tokens


def chats(*lengths: int, requests: int | None = None) -> Plan:
    """Conversations of so many turns each."""
    asked = [[{"role": "user", "content": f"{k}.{turn}"} for turn in range(turns)] for k, turns in enumerate(lengths)]
    prompts = tuple(Prompt(f"c{k}", "chat", (said[0],), tuple(said[1:])) for k, said in enumerate(asked))
    return Plan(prompts, 8, True, 0.0, 0, requests=requests, turns=max(lengths))


def test_conversations_number_their_turns() -> None:
    """A stream takes whole conversations; a shorter one leaves numbers out; a bound cuts the last."""
    plan = chats(3, 1, 2)
    assert list(itertools.islice(shard(plan, 2, 1, 0), 4)) == [0, 3, 6, 9]
    assert [list(plan.conversation(first)) for first in (0, 3, 6, 9)] == [[0, 1, 2], [3], [6, 7], [9, 10, 11]]
    assert plan.prompt(2).id == "c0"
    assert plan.prompt(11).id == "c0#2"
    assert list(shard(chats(3, 3, requests=4), 1, 1, 0)) == [0, 3]
    assert list(chats(3, 3, requests=4).conversation(3)) == [3]


def test_history_stands_behind_the_first_question() -> None:
    """What was said comes in order, the next question last; a numbered opening is part of what is sent back."""
    plan = chats(2)
    said = ({"role": "assistant", "content": "a"}, plan.prompt(0).later[0])
    assert [one["content"] for one in payload(plan, 1, "chat", "m", said)["messages"]] == ["0.0", "a", "0.1"]
    later = payload(plan, 3, "chat", "m", said)["messages"]
    assert later[0]["content"].startswith("Reading no. 2.")
