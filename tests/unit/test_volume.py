"""What a command will write, guessed before it starts: never less than it turns out to be, nor many times as much."""

from pathlib import Path

import pytest
from rows import row
from test_config import made

from loadgen import replay, store
from loadgen.config import Level, levels
from loadgen.forecast import Ladder
from loadgen.record import REQUESTS
from loadgen.volume import Volume, of_level, together


@pytest.mark.parametrize("tokens", [1, 64, 512])
@pytest.mark.parametrize("at_once", [1, 2])
def test_r05_bytes_of_a_request(tmp_path: Path, tokens: int, at_once: int) -> None:
    """Against a stream and a table as they are written: rows of so many events each, so many at once."""
    rows = [
        row(seq, chunk_ns=[seq * 10**10 + 10_123_457 * place for place in range(tokens)], chunk_tokens=[1] * tokens)
        for seq in range(100)
    ]
    writer = store.RowWriter(store.stream_path(tmp_path, 0))
    for first in range(0, len(rows), at_once):
        writer.append(rows[first : first + at_once])
    writer.close()
    store.write_parquet(tmp_path / "requests.parquet", store.requests_table(tmp_path, None), REQUESTS)
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    conf = made("+variant=baseline", f"workload.max_tokens={tokens}", "load.requests=100", "load.concurrency=100")
    known = of_level(conf, Level(100, 100), lambda _: 0.01)
    assert (known.requests, known.tokens) == (100, 100 * tokens)
    assert written <= known.size <= 4 * written


def test_r05_requests_of_a_window() -> None:
    """Closed: stagger, a first request, window and drain with all streams busy; open: the rate times all of it."""
    closed = made("+variant=baseline", "load.concurrency=8", "load.window_s=10")
    assert of_level(closed, Level(8, None), lambda _: 2.0).requests == 8 // 2 * (2 + 2 + 10 + 2) + 8
    opened = made("+variant=baseline", "load=open", "load.rate=5", "load.window_s=10")
    assert 5 * 10 < of_level(opened, Level(None, None, 5.0), lambda _: 1.0).requests < 5 * 10 * 2


def test_r05_of_a_server_without_a_profile_rather_too_much() -> None:
    """An hour of eight streams at a hundred tokens a second each; answers are counted where they are kept."""
    conf = made("+variant=baseline", "load.concurrency=8", "load.window_s=3600")
    found = of_level(conf, Level(8, None), None)
    assert found.tokens > 8 * 3600 * 100
    kept = of_level(
        made("+variant=baseline", "load.concurrency=8", "load.window_s=3600", "output.text=true"), Level(8, None), None
    )
    assert kept.size > found.size


def test_r05_a_trace_says_how_many_and_how_long(tmp_path: Path) -> None:
    """Its own requests and lengths, not the workload's."""
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        "".join(f'{{"timestamp": {1000 * n}, "input_length": 9, "output_length": 7}}\n' for n in range(20))
    )
    conf = made("+variant=baseline", "load=open", f"load.trace={trace}")
    (level,) = levels(conf.load)
    found = of_level(conf, level, None)
    assert (found.requests, found.tokens) == (20, 140)
    assert replay.resolved(conf.load, level).requests == 20


def test_r05_of_a_whole_command() -> None:
    """What is there already takes no room."""
    conf = made("+variant=baseline", "load.concurrency=[1,2]", "load.requests=10")
    at = levels(conf.load)
    whole, left, nothing = (together([conf], [Ladder(conf.load, some)]) for some in (at, at[1:], ()))
    assert (whole.requests, left.requests) == (20, 10)
    assert whole.size > left.size
    assert nothing == together([], []) == Volume()
