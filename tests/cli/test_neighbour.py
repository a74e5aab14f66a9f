"""What is a busy machine's in a verdict, and what stays the server's and ours."""

from typing import Any

import pytest
from neighbour import of_the_server


def reasons(**measured: float | None) -> list[dict[str, Any]]:
    return [{"rule": rule, "measured": value} for rule, value in measured.items()]


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ({}, []),
        ({"loop_lag_p99": 7.0, "worker_cpu_p95": 0.9, "gc_pause_max": 30.0}, []),
        ({"steady": 0.2, "in_step": 0.6, "loop_lag_max": 150.0}, ["steady", "in_step"]),
        ({"concurrency_held": 0.9}, ["concurrency_held"]),
        ({"concurrency_held": 0.9, "loop_lag_p99": 7.0}, ["concurrency_held"]),
        ({"concurrency_held": 0.9, "loop_lag_max": 150.0}, []),
        ({"concurrency_held": 0.9, "refill_p90": 30.0}, []),
        ({"silence": 0.5}, ["silence"]),
        ({"silence": 0.5, "loop_lag_max": 480.0}, []),
        ({"silence": 1.0, "loop_lag_max": 480.0}, ["silence"]),
        ({"silence": 1.0, "loop_lag_max": None}, ["silence"]),
    ],
)
def test_what_a_pause_explains(told: dict[str, float | None], left: list[str]) -> None:
    """The client's own rules always; empty streams and a silence only beside the pause that makes them."""
    assert [one["rule"] for one in of_the_server(reasons(**told))] == left
