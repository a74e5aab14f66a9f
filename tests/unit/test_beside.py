"""What the server told is shown where it told it, and with its source."""

from typing import Any

from loadgen.beside import lines


def point(concurrency: int, **summary: Any) -> dict[str, Any]:
    return {"load": {"concurrency": concurrency}, "summary": summary or None}


def test_nothing_known_nothing_shown() -> None:
    """A baseline without GPUs and without a cache, a Point that failed, and a small share of cached tokens."""
    assert list(lines([point(1), point(2, accept_source=None, tokens_per_joule=None, cached_share=0.009)])) == []


def test_r04_requests_that_a_deadline_ended_are_told() -> None:
    """Their times are at least the deadline: counted and shown, and in no percentile."""
    (line,) = lines([point(1, censored=0), point(8, censored=30)])
    assert line.endswith("(censored): 30 at concurrency 8")


def test_each_figure_with_its_source_and_levels() -> None:
    """One line a kind of figure, levels without it left out."""
    gpu = {"tokens_per_joule": 3.14, "power_w": 5600.0, "energy_source": "counter"}
    points = [
        point(1, accept_source="server_average", verify_cycle_ms=18.94, verify_cycle_source="accept_length"),
        point(8, accept_source="requests", verify_cycle_ms=25.0, verify_cycle_source="requests", cached_share=0.5),
        point(30, tokens_per_joule=3.14, gpu=gpu),
    ]
    assert list(lines(points)) == [
        "accept length: tokens a verify step without each request's first, by the server's average since its cache was "
        "emptied, each request's own count",
        "verify cycle (decode time / verify steps, by the accept length, each request's own count): "
        "18.9 ms at concurrency 1, 25 ms at concurrency 8",
        "prompt tokens found in the server's cache: 50 % at concurrency 8",
        "output tokens a joule of all GPUs, by the GPUs' energy counter: 3.14 (5 600 W) at concurrency 30",
    ]
