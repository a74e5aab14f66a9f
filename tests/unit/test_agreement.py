"""Two workers in front of one server: alike by chance, apart by a fault, too few to tell."""

import numpy as np
import pytest

from loadgen.agreement import ROWS_MIN, Agreement, agreement, findings


def seen(*ttft_ms: np.ndarray) -> Agreement | None:
    """What rows of so many workers say, each with its times."""
    worker = np.repeat(np.arange(len(ttft_ms)), [len(one) for one in ttft_ms])
    sent = np.zeros(len(worker), dtype=np.int64)
    first = (np.concatenate(ttft_ms) * 1e6).astype(np.int64)
    cols = {"worker": worker, "sent_ns": sent, "first_token_ns": first}
    return agreement(cols, np.full(len(worker), True))


def drawn(seed: int, rows: int = 100, mean_ms: float = 50.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean_ms, 5, rows)


def test_workers_that_see_the_same_agree() -> None:
    """Fifty pairs of one distribution: none is refused, and p is spread as chance spreads it."""
    told = [seen(drawn(2 * number), drawn(2 * number + 1)) for number in range(50)]
    assert all(one is not None and findings(one)[0].ok for one in told)
    low = sum(one.p < 0.2 for one in told if one is not None)
    assert 2 <= low <= 20


def test_a_worker_that_sees_a_slower_server_is_told() -> None:
    """6 ms of 50 is more than chance and more than 5 %; among three workers one is enough."""
    for told in (seen(drawn(1), drawn(2, mean_ms=56)), seen(drawn(1), drawn(2), drawn(3, mean_ms=56))):
        assert told is not None
        assert told.apart == pytest.approx(0.12, abs=0.03)
        (finding,) = findings(told)
        assert (finding.rule, finding.ok) == ("workers_apart", False)


def test_a_small_difference_is_no_fault_however_sure() -> None:
    told = seen(drawn(1, 5000), drawn(2, 5000, mean_ms=51))
    assert told is not None
    assert told.p < 0.001
    assert findings(told)[0].ok


def test_nothing_is_said_of_one_worker_or_of_few_rows() -> None:
    assert seen(drawn(1)) is None
    assert seen(drawn(1), drawn(2, ROWS_MIN - 1)) is None
    assert findings(None) == []
