"""The command line before Hydra: secrets refused, texts kept, Hydra's complaints turned into sentences."""

import pytest

from loadgen.errors import ConfigError
from loadgen.overrides import complaint, prepare

KEPT = [
    ("tags.run=1e3", "++tags.run='1e3'"),
    ("+tags.run=007", "+tags.run='007'"),
    ("tags.run=true", "++tags.run='true'"),
    ("tags.run=1,2", "++tags.run='1','2'"),
    ("tags.run='a,b'", "++tags.run='a,b'"),
    ("tags.run=50%", "++tags.run=50%"),
    ("model.path=1e3", "model.path='1e3'"),
    ("model.path=null", "model.path=null"),
    ("model.path=/data/m", "model.path=/data/m"),
    ("variant.env.X=1", "++variant.env.X='1'"),
    ("++variant.args.speculative_num_steps=5", "++variant.args.speculative_num_steps=5"),
    ("variant=baseline", "+variant=baseline"),
    ("+variant=a,b", "+variant=a,b"),
    ("study=eagle", "+study=eagle"),
    ("load.concurrency=1,30", "load.concurrency=1,30"),
    ("-m", "-m"),
]


@pytest.mark.parametrize(("given", "handed_on"), KEPT)
def test_texts_stay_texts(given: str, handed_on: str) -> None:
    """What is declared a text reaches Hydra as one; everything else is left alone."""
    assert prepare([given]) == [handed_on]


SECRETS = [
    "engine.api_key=sk-test-000",
    "+engine.api_key=sk-test-000",
    "engine.api_key_env=sk-canary000",
    "++workload.body={headers: {Authorization: Bearer canary000}}",
    "variant.env.HF_TOKEN=hf_test_000",
    "+variant.env.AWS_SECRET=canary000",
    "tags.note=sk-canary000",
    "sk-canary000",
]


@pytest.mark.parametrize("given", SECRETS)
def test_l02_secrets_are_refused_and_not_repeated(given: str) -> None:
    """Text that looks like a secret never reaches Hydra, which would write it to disk, and is not printed."""
    with pytest.raises(ConfigError) as caught:
        prepare([given])
    assert "canary" not in str(caught.value)
    assert "test" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    ["workload.max_tokens=64", "engine.api_key_env=OPENAI_API_KEY", "model.path=org/token-model", "tags.a=risk-free-1"],
)
def test_harmless_words_are_no_secrets(given: str) -> None:
    """Keys and values that only sound like it pass."""
    assert prepare([given]) == [given if not given.startswith("tags") else f"++{given}"]


def test_pickles_are_not_offered() -> None:
    """Hydra's rerun option loads a pickle."""
    with pytest.raises(ConfigError):
        prepare(["--experimental-rerun=x.pickle"])


@pytest.mark.parametrize("given", ["variant=[nvls,ngram]", "+variant=[nvls]", "model=null", "+study=", "load=[ladder]"])
def test_a_group_takes_one_name(given: str) -> None:
    """Hydra merges the files of a list under the last one's name, and trips over null."""
    with pytest.raises(ConfigError, match=r"name one; several are one run each"):
        prepare([given])


COMPLAINTS = [
    ("Ambiguous value for argument '+variant=a,b'\n1. To use it as a list", "name one, or add -m for one run each"),
    ("Multiple values for variant. To override a value use 'override variant: b'", "variant is given twice; name one"),
    ("Error parsing override '++variant.args.--page-size=1'\nmismatched input", "written without leading dashes"),
    ("Error parsing override 'variant.env.1A=1'\nmismatched input", "variant.env.1A is no key"),
    (
        "Could not override 'load.concurency'.\nTo append to your config use +load.concurency=8",
        "did you mean load.concurrency?",
    ),
    ("Could not override 'variant.args.x'.\nKey 'x' is not in struct", "write ++variant.args.x=..."),
    (
        "Error parsing override 'model.path=/data/a=1/m'\nextraneous input '=' expecting <EOF>",
        "model.path='/data/a=1/m'",
    ),
    ("Ambiguous value for argument 'variant.env.X=a:1,b:1'\n1. To use it as a list", "variant.env.X='a:1,b:1'"),
    (
        "Could not find 'variant/nosuch'\n\nAvailable options in 'variant':\n\tbaseline\n\teagle_topk1_v2",
        "there are: baseline, eagle_topk1_v2",
    ),
]


@pytest.mark.parametrize(("text", "said"), COMPLAINTS)
def test_complaints_are_sentences(text: str, said: str) -> None:
    """Each of Hydra's complaints becomes one line that says what to change."""
    sentence = complaint(text)
    assert said in sentence
    assert "\n" not in sentence
