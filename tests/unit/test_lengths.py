"""Lengths: what a configuration may say, and that what is drawn is what was said."""

import statistics

import pytest

from loadgen.errors import ConfigError
from loadgen.lengths import TOKENS_MAX, Lengths, parse

KEY = "workload.output_tokens"


@pytest.mark.parametrize(
    ("value", "mean", "stdev"),
    [
        (300, 300, 0),
        ({"dist": "fixed", "mean": 300}, 300, 0),
        ({"dist": "uniform", "min": 100, "max": 500}, 300, 400 / 12**0.5),
        ({"dist": "normal", "mean": 300, "stdev": 50}, 300, 50),
        ({"dist": "lognormal", "mean": 300, "stdev": 150}, 300, 150),
    ],
)
def test_lengths_have_the_mean_and_the_spread_that_were_asked(value: object, mean: float, stdev: float) -> None:
    """Mean and standard deviation are those of the lengths themselves, also of the lognormal."""
    drawn = parse(KEY, value).drawn(20_000, "a")
    assert statistics.mean(drawn) == pytest.approx(mean, rel=0.02)
    assert statistics.pstdev(drawn) == pytest.approx(stdev, rel=0.04)
    assert drawn == parse(KEY, value).drawn(20_000, "a")
    assert stdev == 0 or drawn != parse(KEY, value).drawn(20_000, "b")
    assert parse(KEY, value).typical == mean


def test_bounds_hold() -> None:
    """A length beyond a bound is the bound; without one no length is below the least that makes sense."""
    bounded = parse(KEY, {"dist": "lognormal", "mean": 300, "stdev": 400, "min": 50, "max": 600}).drawn(1000, "a")
    assert (min(bounded), max(bounded)) == (50, 600)
    assert min(parse(KEY, {"dist": "normal", "mean": 20, "stdev": 50}, 16).drawn(1000, "a")) == 16
    assert parse(KEY, 7) == Lengths("fixed", 7)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "give a whole number of tokens from 1"),
        (1.5, "give a whole number"),
        (True, "give a whole number"),
        ("x", "give a whole number"),
        (TOKENS_MAX + 1, "give a whole number"),
        ({"dist": "zipf"}, "choose one of fixed, uniform, normal, lognormal"),
        ({"mean": 3}, "choose one of"),
        ({"dist": ["normal"]}, "choose one of"),
        ({"dist": "normal", "mean": 300, "stdev": 9, "max": 100}, ".mean=300 is outside 1 to 100"),
        ({"dist": "lognormal", "mean": 3, "stdev": 9, "min": 10}, ".mean=3 is outside 10"),
        ({"dist": "fixed", "mean": 3, "max": 2}, ".mean=3 is outside 1 to 2"),
        ({"dist": "normal", "mean": 3}, ".stdev is missing"),
        ({"dist": "uniform", "min": 3}, ".max is missing"),
        ({"dist": "uniform", "min": 3, "max": 2}, "exchange them"),
        ({"dist": "normal", "mean": 3, "stdev": -1}, ".stdev=-1"),
        ({"dist": "normal", "mean": 3, "stdev": float("nan")}, ".stdev=nan"),
        ({"dist": "normal", "mean": 0, "stdev": 1}, ".mean=0"),
        ({"dist": "normal", "mean": 3, "stdev": 1, "sigma": 2}, ".sigma: normal takes mean, stdev, min, max only"),
    ],
)
def test_what_cannot_be_drawn_is_refused(value: object, said: str) -> None:
    """One sentence that names the key."""
    with pytest.raises(ConfigError) as refused:
        parse(KEY, value)
    assert KEY in str(refused.value)
    assert said in str(refused.value)
