"""Prompts: shipped texts that are really different, and files read as far as they are whole."""

import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from loadgen import files, prompts
from loadgen.config import Config, Engine, Load, Workload
from loadgen.errors import ConfigError

KINDS = {"code", "chat", "summary", "translation", "mathematics", "extraction", "story", "reasoning"}


def words(text: str) -> list[str]:
    return re.sub(r"[^\w\s]", "", text.lower()).split()


def test_shipped_prompts_are_diverse() -> None:
    """At least 600 texts of eight kinds; no two share their first eight words, and few share their first three."""
    texts = list(prompts.builtin())
    assert len(texts) >= 600
    assert {prompt.kind for prompt in texts} == KINDS
    assert len({prompt.id for prompt in texts}) == len(texts)
    assert len(set(Counter(prompt.kind for prompt in texts).values())) == 1
    eight = Counter(tuple(words(prompt.text)[:8]) for prompt in texts)
    three = Counter(tuple(words(prompt.text)[:3]) for prompt in texts)
    first = Counter(words(prompt.text)[0] for prompt in texts)
    assert eight.most_common(1)[0][1] == 1
    assert three.most_common(1)[0][1] <= 5
    assert first.most_common(1)[0][1] <= 40


def test_jsonl_shapes(tmp_path: Path) -> None:
    """A text, an object with a prompt, chat messages as a list or in an object; ids and kinds are kept."""
    lines = [
        '"plain"',
        '{"prompt": "p", "id": "x", "kind": "code"}',
        '[{"role": "user", "content": "m"}]',
        '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}',
        "",
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    found, warnings = prompts.load(Workload(name="w", source="jsonl", path=str(path)))
    assert [prompt.text for prompt in found] == ["plain", "p", "m", "s\n\nu"]
    assert (found[1].id, found[1].kind, found[0].kind) == ("x", "code", "other")
    assert warnings == []


def test_jsonl_cut_off_and_broken(tmp_path: Path) -> None:
    """A cut-off last line is a warning; a bad line before the end is refused with its number."""
    path = tmp_path / "a.jsonl"
    path.write_text('"one"\n{"prompt": "tw')
    found, warnings = prompts.load(Workload(name="w", source="jsonl", path=str(path)))
    assert [prompt.text for prompt in found] == ["one"]
    assert "line (2) is cut off" in warnings[0]
    for text, said in [
        ('"one"\nnot json\n"three"', "line 2"),
        ('{"x": 1}', "line 1"),
        ("", "holds no prompt"),
        ("[]", "line 1"),
        ("[" * 100_000, "holds no prompt"),
        ('"one"\n"half \\ud800 of a pair"\n"three"', "line 2: half of a character"),
    ]:
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            prompts.load(Workload(name="w", source="jsonl", path=str(path)))


def messages(*said: tuple[str, object]) -> list[dict[str, object]]:
    return [{"role": role, "content": content} for role, content in said]


PARTS = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]


@pytest.mark.parametrize(
    ("record", "asked"),
    [
        (messages(("user", "q"), ("assistant", "a")), messages(("user", "q"))),
        (messages(("user", "q"), ("assistant", "a"), ("tool", "t")), None),
        (messages(("user", PARTS)), None),
        ({"prompt": None, "text": "q"}, messages(("user", "q"))),
    ],
)
def test_what_a_line_asks(record: object, asked: object, tmp_path: Path) -> None:
    """The messages as they are, but for answers at their end, which are the server's to give."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(record))
    (found,), _ = prompts.load(Workload(name="w", source="jsonl", path=str(path)))
    assert list(found.messages) == (record if asked is None else asked)


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(messages(("assistant", "a"))),
        json.dumps(messages(("system", "s"))),
        json.dumps(messages(("user", " "))),
        json.dumps(messages(("user", []))),
        json.dumps(messages(("user", [1, None]))),
        json.dumps([{**messages(("user", "q"))[0], "number": 10**30}]),
        '[{"role": "user", "content": "q", "weight": NaN}]',
        '{"prompt": "q", "number": ' + "1" * 5000 + "}",
        '{"prompt": "q", "deep": ' + "[" * 500 + "]" * 500 + "}",
    ],
    ids=range(9),
)
@pytest.mark.parametrize("turns", [1, 3])
def test_what_nobody_asks_or_can_be_sent_is_refused(line: str, turns: int, tmp_path: Path) -> None:
    """Messages without a question, and values that a request's JSON cannot carry, by the number of their line."""
    path = tmp_path / "a.jsonl"
    path.write_text(f'"one"\n{line}\n"three"\n')
    with pytest.raises(ConfigError, match="line 2"):
        prompts.load(Workload(name="w", source="jsonl", path=str(path), turns=turns))


def test_content_in_parts_stays_in_parts(tmp_path: Path) -> None:
    """The numbered opening and a shared prefix go before the parts; APIs without messages get the texts."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(messages(("system", PARTS[:1]), ("user", PARTS))))
    workload = Workload(name="w", source="jsonl", path=str(path), prefix_tokens=64, prefix_groups=1)
    found, _ = prompts.load(workload)
    plan = prompts.plan(workload, found, 0, None)
    system, user = plan.prompt(1).messages
    assert [part["text"] for part in system["content"][1:]] == ["look"]
    assert user["content"] == [{"type": "text", "text": "Reading no. 2."}, *PARTS]
    assert plan.prompt(1).text.endswith("look\n\nReading no. 2.\n\nlook")


def test_prompts_that_are_the_same_are_asked_once(tmp_path: Path) -> None:
    """A file that repeats itself would be answered from a cache: what begins alike is left out, and counted."""
    path = tmp_path / "a.jsonl"
    path.write_text('"same"\n{"prompt": "same", "id": "again"}\n"other"\n')
    found, warnings = prompts.load(Workload(name="w", source="jsonl", path=str(path)))
    assert [prompt.text for prompt in found] == ["same", "other"]
    assert "1 of 3 prompts" in warnings[0]


def test_files_from_elsewhere(tmp_path: Path) -> None:
    """A byte order mark is no part of the first prompt; a conversation that cannot be sent is left out and named."""
    path = tmp_path / "p.jsonl"
    path.write_text('"one"\n"two"\n', encoding="utf-8-sig")
    found, _ = prompts.load(Workload(name="w", source="jsonl", path=str(path)))
    assert [prompt.text for prompt in found] == ["one", "two"]
    half = {"conversations": [{"from": "human", "value": "half \ud800 of a pair"}]}
    path.write_text(json.dumps([half, conversation(1)]))
    found, warnings = prompts.load(Workload(name="w", source="sharegpt", path=str(path)))
    assert [prompt.id for prompt in found] == ["sharegpt-c1"]
    assert "record 1" in warnings[0]


def conversation(number: int, size: int = 10) -> dict[str, object]:
    return {
        "id": f"c{number}",
        "conversations": [
            {"from": "human", "value": f"question {number} " + "x" * size},
            {"from": "gpt", "value": "answer"},
        ],
    }


@pytest.mark.parametrize("pieces", [7, 64, 1 << 20])
def test_sharegpt_cut_off_file_gives_its_whole_records(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are read one by one, whatever the size of the reads; the cut one is left out with a warning."""
    monkeypatch.setattr(files, "READ_CHARS", pieces)
    whole = json.dumps([conversation(i, 50 * i) for i in range(9)], indent=1)
    warnings: list[str] = []
    assert len(list(files.from_sharegpt(io.StringIO(whole), "f", warnings))) == 9
    assert warnings == []
    cut = whole[: whole.index("question 6") + 20]
    found = list(files.from_sharegpt(io.StringIO(cut), "f", warnings))
    assert [prompt.id for prompt in found] == [f"sharegpt-c{i}" for i in range(6)]
    assert "cut off" in warnings[0]


def test_sharegpt_cut_anywhere_and_broken() -> None:
    """Wherever a file ends it is cut off; a record that is broken before the end is refused by its number."""
    record = {"id": "\u00e9", "n": [-1.5e3, True, None, {}], "conversations": conversation(1)["conversations"]}
    whole = json.dumps([conversation(0), record])
    for end in range(whole.index("}]}") + 3, len(whole) - 1):
        warnings: list[str] = []
        assert list(files.from_sharegpt(io.StringIO(whole[:end]), "f", warnings))
        assert "cut off" in warnings[0]
    for broken in ("{bad}", "[" * 100_000, "1" * 5000, '{"a": 1 "b": 2}'):
        text = f"[{json.dumps(conversation(0))}, {broken}, {json.dumps(conversation(1))}]"
        with pytest.raises(ConfigError, match="record 2: not JSON"):
            list(files.from_sharegpt(io.StringIO(text), "f", []))


def test_sharegpt_skips_what_no_person_asked(tmp_path: Path) -> None:
    """Conversations that begin with the model, are empty or of another shape are left out."""
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps([{"conversations": [{"from": "gpt", "value": "x"}]}, {"conversations": []}, 3, conversation(1)])
    )
    found, _ = prompts.load(Workload(name="w", source="sharegpt", path=str(path)))
    assert len(found) == 1
    path.write_text('{"a": 1}')
    with pytest.raises(ConfigError, match="no JSON array"):
        prompts.load(Workload(name="w", source="sharegpt", path=str(path)))
    with pytest.raises(ConfigError, match="cannot be read"):
        prompts.load(Workload(name="w", source="sharegpt", path=str(tmp_path / "none.json")))


def test_turns_of_files(tmp_path: Path) -> None:
    """What people said is asked turn by turn, at most so many; the file's answers are left out, an opening is kept."""
    said = [("system", "s"), ("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("user", "u3")]
    messages = [{"role": role, "content": content} for role, content in said]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"messages": messages}) + '\n"one"\n')
    for turns, asked in [(1, []), (2, ["u2"]), (9, ["u2", "u3"])]:
        (chat, single), _ = prompts.load(Workload(name="w", source="jsonl", path=str(path), turns=turns))
        assert [message["content"] for message in chat.later] == asked
        assert [message["content"] for message in chat.messages] == (
            ["s", "u1"] if asked else [content for _, content in said]
        )
        assert single.later == ()
    turned = [("human", "h1"), ("gpt", "g1"), ("human", "h2"), ("gpt", "g2"), ("human", " "), ("human", "h4")]
    path.write_text(json.dumps([{"conversations": [{"from": who, "value": text} for who, text in turned]}]))
    for turns, asked in [(1, []), (9, ["h2"])]:
        (chat,), _ = prompts.load(Workload(name="w", source="sharegpt", path=str(path), turns=turns))
        assert chat.text == "h1"
        assert [message["content"] for message in chat.later] == asked
        assert prompts.turns((chat,)) == 1 + len(asked)


def test_turns_without_conversations_are_refused(tmp_path: Path) -> None:
    """A file of single prompts would be measured as what it is not."""
    path = tmp_path / "a.jsonl"
    path.write_text('"one"\n[{"role": "user", "content": "two"}]\n')
    with pytest.raises(ConfigError, match="no conversation of two questions"):
        prompts.load(Workload(name="w", source="jsonl", path=str(path), turns=3))


def test_warm_up_is_of_its_own() -> None:
    """No measured prompt is sent before the measurement."""
    plan = prompts.warm_up(Workload(name="w", source="builtin"), 0)
    assert plan.requests == 16
    assert len({plan.prompt(seq).text for seq in range(16)}) == 16
    assert not {plan.prompt(seq).text for seq in range(16)} & {prompt.text for prompt in prompts.builtin()}


def test_digest_follows_what_is_asked() -> None:
    """The hash changes with every part of the question, texts included, and with nothing else."""
    base = Config(engine=Engine(kind="sim"), workload=Workload(name="w", source="builtin"), load=Load())
    texts = tuple(prompts.builtin())
    digest = prompts.digest(base, texts)
    assert prompts.digest(replace(base, workload=replace(base.workload, name="other", path="moved")), texts) == digest
    assert prompts.digest(base, texts[1:]) != digest
    assert prompts.digest(replace(base, engine=Engine(kind="sim", api="generate")), texts) != digest
    for change in (
        {"temperature": 0.5},
        {"max_tokens": 64},
        {"seed": 1},
        {"ignore_eos": False},
        {"body": {"top_p": 1}},
        {"output_tokens": {"dist": "uniform", "min": 1, "max": 512}},
        {"think_s": 1.0},
    ):
        assert prompts.digest(replace(base, workload=replace(base.workload, **change)), texts) != digest
