"""Arrivals: each process keeps its rate and its spread, a seed says all, shards add up, a trace is its file."""

import gzip
import json
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from loadgen import replay
from loadgen.arrivals import Process, Replay
from loadgen.config import Level, Load
from loadgen.errors import ConfigError
from loadgen.plan import Plan, Prompt, due, payload

NS = 1_000_000_000
PROMPTS = tuple(Prompt(f"p{i}", "code", ({"role": "user", "content": f"question {i} " * 5},)) for i in range(3))
PLAN = Plan(PROMPTS, 2, True, 0.0, 7)
CSV = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def gaps(process: Process, count: int = 40_000) -> np.ndarray:
    """The first gaps in seconds."""
    return np.diff(list(islice(process.times_ns(), count + 1))) / NS


@pytest.mark.parametrize(
    ("arrival", "burstiness", "spread"),
    [("constant", None, 0.0), ("poisson", None, 1.0), ("gamma", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5)],
)
def test_rate_and_spread(arrival: str, burstiness: float | None, spread: float) -> None:
    """The mean gap is 1 / rate; its coefficient of variation 0, 1 or 1 / sqrt(burstiness)."""
    found = gaps(Process(50.0, arrival, burstiness, 3))
    assert found.min() >= 0
    assert found.mean() == pytest.approx(1 / 50, rel=0.05)
    assert found.std() / found.mean() == pytest.approx(spread, rel=0.05, abs=1e-6)


def test_constant_is_counted_not_added_up() -> None:
    """The last of 2000 requests at 200/s comes after 9.995 s, to the nanosecond."""
    times = list(islice(Process(200.0, "constant", None, 0).times_ns(), 2000))
    assert (times[0], times[-1]) == (0, 9_995_000_000)
    thirds = list(islice(Process(3.0, "constant", None, 0).times_ns(), 3_000_001))
    assert thirds[-1] == pytest.approx(1_000_000 * NS, abs=1000)


def test_a_seed_says_all() -> None:
    """The same seed gives the same times, whatever the variant; another one others."""
    first = list(islice(Process(6.0, "poisson", None, 1).times_ns(), 9000))
    assert first == list(islice(Process(6.0, "poisson", None, 1).times_ns(), 9000))
    assert first != list(islice(Process(6.0, "poisson", None, 2).times_ns(), 9000))
    assert first == sorted(first)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_shards_add_up(workers: int) -> None:
    """Every request is one worker's, at the time that the one sequence gives it."""
    plan = replace(PLAN, arrivals=Process(6.0, "poisson", None, 1), requests=100)
    together = sorted(one for worker in range(workers) for one in due(plan, workers, worker))
    assert together == list(due(plan, 1, 0))
    assert [seq for seq, _ in together] == list(range(100))


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "trace"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def mooncake(*came: tuple[float, int, int]) -> str:
    return "".join(
        json.dumps({"timestamp": at, "input_length": asked, "output_length": answered, "hash_ids": [1, 2]}) + "\n"
        for at, asked, answered in came
    )


def test_mooncakes_json_lines(tmp_path: Path) -> None:
    """Milliseconds and tokens; times count from the first request."""
    load = Load(kind="open", trace=written(tmp_path, mooncake((3000, 6755, 500), (3000, 10, 1), (6000, 7, 2))))
    arrivals = replay.arrivals(load, Level(None, None), 0)
    plan = replace(PLAN, arrivals=arrivals)
    assert list(due(plan, 1, 0)) == [(0, 0), (1, 0), (2, 3 * NS)]
    assert [plan.tokens(seq) for seq in range(3)] == [500, 1, 2]
    assert [len(plan.prompt(seq).text) for seq in range(3)] == [4 * 6755, 40, 28]
    assert len({plan.prompt(seq).text for seq in range(3)}) == 3
    assert payload(plan, 0, "chat", "m")["max_tokens"] == 500
    assert payload(plan, 2, "generate", "m")["sampling_params"]["max_new_tokens"] == 2
    assert replay.trace_warnings(load) == ()
    assert replay.resolved(load, Level(None, None)) == Level(None, 3, pytest.approx(2 / 3))


@pytest.mark.parametrize("around", [("\ufeff", ""), ("", "\n\n")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("lines", [mooncake((2000, 3, 4), (3000, 5, 6)), CSV + "2,,1,m,3,4,7,x\n3,,1,m,5,6,11,x\n"])
def test_how_a_file_was_saved_changes_nothing(lines: str, end: str, around: tuple[str, str], tmp_path: Path) -> None:
    """Byte order marks, other line ends, empty lines behind."""
    text = (around[0] + lines + around[1]).replace("\n", end)
    found = replay.arrivals(Load(kind="open", trace=written(tmp_path, text)), Level(None, None), 0)
    assert isinstance(found, Replay)
    assert (found.at_ns.tolist(), found.input_tokens.tolist(), found.output_tokens.tolist()) == (
        [0, NS],
        [3, 5],
        [4, 6],
    )


@pytest.mark.parametrize(("speed", "said"), [(1e-6, "takes 278 hours"), (1e6, "come at once, which is no rate")])
def test_a_speed_that_leaves_no_replay(speed: float, said: str, tmp_path: Path) -> None:
    """Too slow to be waited for, or so fast that a nanosecond holds all."""
    came = mooncake((0, 1, 1), (1000 if speed < 1 else 0.0005, 1, 1))
    with pytest.raises(ConfigError, match=said):
        replay.trace_warnings(Load(kind="open", trace=written(tmp_path, came), trace_speed=speed))


def test_a_long_question_is_made_quickly() -> None:
    """A million tokens are 32 ms of work; growing one text piece by piece took seven seconds of the worker's loop."""
    texts = (Prompt("p", "code", ({"role": "user", "content": "x" * 299},)),)
    asked = Replay(np.zeros(1), np.array([1_000_000]), np.array([5]))
    begun_s = time.process_time()
    text = Plan(texts, 2, True, 0.0, 7, arrivals=asked).prompt(0).text
    assert time.process_time() - begun_s < 2
    assert len(text) == 4_000_000
    assert text.startswith("x" * 299 + "\n\nReading no. 2.\n\nxxx")


def test_burstgpts_csv(tmp_path: Path) -> None:
    """Seconds and tokens by the columns' names; requests that failed there are left out and counted."""
    rows = ["5,,1.2,ChatGPT,472,18,490,Conversation log", "45,,0,GPT-4,17,0,17,API log", "118,3,2,GPT-4,417,276,693,x"]
    load = Load(kind="open", trace=written(tmp_path, CSV + "\n".join(rows)), trace_speed=10.0)
    plan = replace(PLAN, arrivals=replay.arrivals(load, Level(None, None), 0))
    assert list(due(plan, 1, 0)) == [(0, 0), (1, int(11.3 * NS))]
    assert [plan.tokens(seq) for seq in range(2)] == [18, 276]
    assert replay.trace_warnings(load) == (f"load.trace={load.trace}: 1 requests without an answer were left out",)
    assert replay.resolved(load, Level(None, 1)).requests == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no trace that is known: give JSON lines with timestamp, input_length, output_length or CSV with"),
        ("a,b\n1,2\n", "is no trace that is known"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (mooncake((5, 1, 1), (4, 1, 1)), "line 2: it came before the line above it; sort the file by time"),
        (mooncake((-1, 1, 1)), "line 1: the time -0.001 is no time since a start"),
        (mooncake((1, -1, 1)), "line 1: lengths are 0 to 1000000 tokens"),
        (mooncake((1, 1, 10**7)), "line 1: lengths are 0 to 1000000 tokens"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1}', "line 1: the time nan is no time"),
        ('{"timestamp": 1, "input_length": 1}', "line 1: timestamp, input_length, output_length must be numbers"),
        (mooncake((1, 1, 1)) + "{", "line 2: timestamp, input_length, output_length must be numbers"),
        (CSV + "5,,1.2,ChatGPT,many,18,490,x", "line 2: Timestamp, Request tokens, Response tokens must be numbers"),
        (CSV + "5,,1.2", "line 2: Timestamp, Request tokens, Response tokens must be numbers"),
        (mooncake((1, 1, 0)), "holds no request with an answer"),
        (
            mooncake((0, 1, 1), (1e300, 1, 1)),
            "hours, at most 24 can be replayed: ask for its first ones by load.requests",
        ),
        (gzip.compress(mooncake((1, 1, 1)).encode()), "is not UTF-8 text; unpack or convert it"),
        (CSV + "1,,1,m,3,4,7,x\n\n2,,1,m,3,", "line 4: Timestamp, Request tokens"),
        (mooncake((1, 1, 1), (1, 1, 1)), "all its requests come at once, which is no rate"),
    ],
)
def test_a_trace_that_cannot_be_used(text: str | bytes, said: str, tmp_path: Path) -> None:
    """Every mistake is named with its line and what to change."""
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")) as caught:
        replay.trace_warnings(Load(kind="open", trace=written(tmp_path, text)))
    assert "load.trace=" in str(caught.value)


def test_a_trace_that_is_not_there_or_too_short(tmp_path: Path) -> None:
    """Both say what to change."""
    with pytest.raises(ConfigError, match="cannot be read"):
        replay.trace_warnings(Load(kind="open", trace=str(tmp_path / "nosuch")))
    load = Load(kind="open", trace=written(tmp_path, mooncake((1, 1, 1), (9, 1, 1))), requests=3)
    with pytest.raises(ConfigError, match="the trace holds 2; ask for at most so many"):
        replay.trace_warnings(load)
