"""Prompts that are made: about as long as asked, all different, the same again for the same seed."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from loadgen import prompts
from loadgen.config import Workload
from loadgen.errors import ConfigError
from loadgen.plan import Prompt
from loadgen.texts import CHARS_A_TOKEN, GROUPS_MAX, PREFIX_TOKENS_MIN, RANDOM_KIND, WORDS

SPREAD = {"dist": "lognormal", "mean": 400, "stdev": 200, "min": 100, "max": 1000}
MADE = [
    Workload(name="w", source="random", input_tokens=32),
    Workload(name="w", source="random", input_tokens=SPREAD),
    Workload(name="w", source="builtin", input_tokens=SPREAD),
    Workload(name="w", source="builtin", prefix_tokens=500),
    Workload(name="w", source="builtin", turns=4),
    Workload(name="w", source="builtin", turns=3, prefix_tokens=300, input_tokens=200),
]


def whole(prompt: Prompt) -> str:
    return str([*prompt.messages, *prompt.later])


@pytest.mark.parametrize("workload", MADE, ids=range(len(MADE)))
def test_made_prompts_are_distinct_and_repeatable(workload: Workload) -> None:
    """No two requests of a Point are the same, past the end of the prompts too; the same workload gives the same."""
    found, _ = prompts.load(workload)
    assert found == prompts.load(workload)[0]
    plan = prompts.plan(workload, found, 0, None)
    asked = [whole(plan.prompt(number * plan.turns)) for number in range(2 * len(found))]
    assert len(set(asked)) == len(asked)
    assert len({prompt.id for prompt in found}) == len(found)
    drawn = workload.input_tokens is not None
    assert (prompts.load(replace(workload, seed=1))[0] != found) == drawn


def test_random_words_have_their_lengths() -> None:
    """Words of three letters: one token each for a real vocabulary, four characters for the rule of thumb."""
    assert {len(word) for word in WORDS.split()} == {3}
    found, warnings = prompts.load(Workload(name="w", source="random", input_tokens=SPREAD))
    assert {prompt.kind for prompt in found} == {RANDOM_KIND}
    assert all(len(prompt.text.split()) == prompt.tokens for prompt in found)
    assert 350 < sum(prompt.tokens or 0 for prompt in found) / len(found) < 450
    assert "neither accept length nor speed says anything about real text" in warnings[0]


def test_long_prompts_are_fewer() -> None:
    """What travels to the workers is bounded; kinds stay even."""
    found, _ = prompts.load(Workload(name="w", source="builtin", input_tokens=50_000))
    assert 64 <= len(found) < 100
    assert max(Counter(prompt.kind for prompt in found).values()) <= len(found) / 8 + 1


@pytest.mark.parametrize("tokens", [16, 100, 2000])
def test_sized_texts_are_real_and_about_as_long(tokens: int) -> None:
    """The question stands last, other shipped texts before it, and no two begin alike."""
    found, _ = prompts.load(Workload(name="w", source="builtin", input_tokens=tokens))
    shipped = {prompt.id: prompt.text for prompt in prompts.builtin()}
    sizes = [len(prompt.text) for prompt in found]
    assert max(sizes) <= CHARS_A_TOKEN * tokens + 1
    assert 0.8 * CHARS_A_TOKEN * tokens < sum(sizes) / len(sizes)
    assert len({prompt.text[:60] for prompt in found}) == len(found)
    assert all(prompt.text.endswith(shipped[prompt.id]) for prompt in found if tokens == 2000)


def test_lengths_one_by_one() -> None:
    """A list of lengths, as a trace has them, gives prompts in its order, past the end of the shipped ones too."""
    tokens = [40 + 7 * (number % 50) for number in range(1400)]
    made = prompts.of_lengths(tokens, 3)
    assert [prompt.tokens for prompt in made] == tokens
    assert len({prompt.text for prompt in made}) == len({prompt.id for prompt in made}) == len(tokens)
    assert made == prompts.of_lengths(tokens, 3)
    assert len({prompt.kind for prompt in made[:8]}) == 8


def test_prefixes_are_shared_by_groups_only() -> None:
    """Every group has its own system prompt of real text, and prompts of every kind; a second round keeps it."""
    workload = Workload(name="w", source="builtin", prefix_tokens=1000, prefix_groups=4)
    found, _ = prompts.load(workload)
    systems = Counter(str(prompt.messages[0]["content"]) for prompt in found)
    assert set(systems.values()) == {160}
    assert len({text[:40] for text in systems}) == 4
    assert all(3800 < len(text) <= 4000 for text in systems)
    assert {prompt.messages[0]["role"] for prompt in found} == {"system"}
    for group in range(4):
        assert len({prompt.kind for prompt in found if prompt.id.endswith(f"@{group}")}) == 8
    plan = prompts.plan(workload, found, 0, None)
    again = plan.prompt(len(found))
    assert again.messages[0] == plan.prompt(0).messages[0]
    assert str(again.messages[1]["content"]).startswith("Reading no. 2.")
    assert prompts.shares(workload)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"turns": 16, "input_tokens": 50_000}, "ask for fewer"),
        ({"turns": 64, "prefix_tokens": 64, "prefix_groups": 9}, "for 8 prompts or conversations"),
    ],
)
def test_more_than_the_texts_give_is_refused(asked: dict[str, Any], said: str) -> None:
    """Long prompts are few, and conversations of many turns fewer still."""
    with pytest.raises(ConfigError, match=said):
        prompts.load(Workload(name="w", source="builtin", **asked))


def test_shortest_prefixes_are_different() -> None:
    """As many groups as are asked for, down to the shortest prefix."""
    workload = Workload(name="w", source="builtin", prefix_tokens=PREFIX_TOKENS_MIN, prefix_groups=GROUPS_MAX)
    found, _ = prompts.load(workload)
    assert len({prompt.messages[0]["content"] for prompt in found}) == GROUPS_MAX


def test_chains_hold_questions_of_one_kind() -> None:
    """Conversations of the shipped prompts: each text is asked once, the turns are of the first one's kind."""
    found, _ = prompts.load(Workload(name="w", source="builtin", turns=4))
    kinds = {prompt.text: prompt.kind for prompt in prompts.builtin()}
    assert (len(found), {len(prompt.later) for prompt in found}) == (160, {3})
    assert all(kinds[str(message["content"])] == prompt.kind for prompt in found for message in prompt.later)
    asked = [str(message["content"]) for prompt in found for message in (*prompt.messages, *prompt.later)]
    assert sorted(asked) == sorted(kinds)
