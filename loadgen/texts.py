"""Prompts that are made of others, or of nothing: random words, texts of a wanted length, shared prefixes, chains.

Pure, and the same for the same workload. Lengths are about right, by a rule of thumb: only the server's tokenizer
knows, and what it counted stands in every row. Knows nothing of files.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from loadgen.lengths import Lengths
from loadgen.plan import CHARS_A_TOKEN, Prompt, by_kind, numbered, opened

INPUT_TOKENS_MIN = 16  # shorter prompts could not all be different
INPUT_TOKENS_MAX = 200_000  # all prompts are held by every worker
PREFIX_TOKENS_MIN = 32  # shorter ones could not all be different
GROUPS_MAX = 320  # of two prompts each
PROMPTS_MAX = 640
PROMPTS_MIN = 64
CHARS_MAX = 16_000_000  # all prompts of a plan together, which travel to every worker
RANDOM_KIND = "random"
AFTER_OTHERS = "\n\nAll of that was asked by other people. Answer only this:\n\n"
AFTER_PREFIX = "\n\nThese were examples of what people ask here. Answer only what follows."

# Common words of three letters: with the space before it each is one token of most vocabularies, and four characters.
WORDS = """
act add age ago aid aim air all and any arm art ask bad bag bar bat bay bed bee beg bet bid big bit bow box boy
bus but buy can cap car cat cow cry cup cut dad day die dig dog dry due ear eat egg end eye fan far fat fee few
fit fix fly fog for fox fun gap gas get god gun guy hat hen her hey hid him his hit hot how ice ill ink its jam
jar jaw job joy key kid lab lap law lay led leg let lid lie lip log lot low mad man map mat may men met mid mix
mom mud net new nor not now nut oak odd off oil old one our out owe own pan pay pen pet pie pig pin pit pop pot
put ran rat raw red rib rid rim rip rob rod row rub run sad sat saw say sea see set sew she shy sin sip sit six
ski sky son spy sum sun tap tax tea ten the tie tin tip toe ton top toy try tub two use van via war was way web
wet who why win yes yet you zoo
"""


def count_of(lengths: Lengths) -> int:
    """How many prompts of these lengths a plan holds: fewer where they are long, and they go round sooner."""
    return min(PROMPTS_MAX, max(PROMPTS_MIN, CHARS_MAX // (CHARS_A_TOKEN * lengths.typical)))


def random_words(tokens: Sequence[int], seed: int) -> tuple[Prompt, ...]:
    """One prompt of random words for each of the lengths."""
    made, words = [], WORDS.split()
    for number, wanted in enumerate(tokens):
        drawn = random.Random(f"{seed}.words.{number}").choices(words, k=wanted)
        made.append(Prompt(f"random-{number}", RANDOM_KIND, _asked(" ".join(drawn)), tokens=wanted))
    return tuple(made)


def sized(prompts: Sequence[Prompt], tokens: Sequence[int], library: Sequence[str]) -> tuple[Prompt, ...]:
    """One prompt for each of the lengths, in their order: `prompts` going round, each brought to about its length.

    A longer one has texts of the `library` before its question, beginning with another one each time; a question that
    is too long itself is cut at a word's end, and stands as it is where nothing fits before it.
    """
    made = []
    for number, wanted in enumerate(tokens):
        again, place = divmod(number, len(prompts))
        question = prompts[place]
        # The number comes first, or a prompt would begin like the one whose question is its first text.
        lead = f"{number + 1}. What other people asked:\n\n"
        chars = CHARS_A_TOKEN * wanted - len(lead) - len(AFTER_OTHERS) - len(question.text)
        text = _cut(question.text, CHARS_A_TOKEN * wanted)
        if chars > 0:
            text = lead + _passage(library, place + 1, chars) + AFTER_OTHERS + question.text
        one = replace(question, messages=_asked(text), tokens=wanted)
        made.append(numbered(one, again + 1) if again else one)
    return tuple(made)


def _asked(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def _cut(text: str, chars: int) -> str:
    """The text up to `chars`, less what would be half a word."""
    return text if len(text) <= chars else text[: chars + 1].rsplit(maxsplit=1)[0]


def _passage(library: Sequence[str], start: int, chars: int) -> str:
    """Texts of the library from number `start` on, round and round, to so many characters."""
    pieces: list[str] = []
    size = 0
    for number in itertools.count(start):
        pieces.append(library[number % len(library)])
        size += len(pieces[-1]) + 2
        if size > chars:
            return _cut("\n\n".join(pieces), chars)
    raise AssertionError("count() does not end")


def prefixed(prompts: Sequence[Prompt], groups: int, tokens: int, library: Sequence[str]) -> tuple[Prompt, ...]:
    """The prompts dealt out to `groups`, each behind its group's own system prompt of about `tokens`."""
    chars = max(1, CHARS_A_TOKEN * tokens - len(AFTER_PREFIX))
    leads = [_passage(library, group * len(library) // groups, chars) + AFTER_PREFIX for group in range(groups)]
    return tuple(_behind(prompt, number % groups, leads, tokens) for number, prompt in enumerate(prompts))


def _behind(prompt: Prompt, group: int, leads: Sequence[str], tokens: int) -> Prompt:
    first, *rest = prompt.messages
    lead = leads[group]
    if first["role"] == "system":  # templates take one system prompt only
        messages = (opened(first, lead), *rest)
    else:
        messages = ({"role": "system", "content": lead}, *prompt.messages)
    whole = None if prompt.tokens is None else prompt.tokens + tokens
    return replace(prompt, id=f"{prompt.id}@{group}", messages=messages, shared=1, tokens=whole)


def chained(prompts: Iterable[Prompt], turns: int) -> tuple[Prompt, ...]:
    """Conversations of `turns` questions: prompts of one kind one after the other; what is left over is not asked."""
    made = []
    for texts in by_kind(prompts):
        for start in range(0, len(texts) - turns + 1, turns):
            first, *rest = texts[start : start + turns]
            made.append(replace(first, tokens=None, later=tuple(message for one in rest for message in one.messages)))
    return tuple(made)
