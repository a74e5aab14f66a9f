"""The whole program against a server that knows what it sent: what it reports is what happened."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import measured, server_reasons

pytestmark = pytest.mark.slow
TTFT_MS, GAP_MS = 50.0, 5.0


@pytest.mark.parametrize(("tokens_per_chunk", "tpot_ms"), [(1, 5.0), (4, 1.25)])
def test_ttft_and_time_per_token_are_the_truth(
    tokens_per_chunk: int, tpot_ms: float, truthd: Callable[..., str], tmp_path: Path
) -> None:
    """TTFT within 1 ms of 50 and time per token within 0.05 ms of the truth, alone and with 16 streams."""
    url = truthd("--ttft-ms", str(TTFT_MS), "--itl-ms", str(GAP_MS), "--tokens-per-chunk", str(tokens_per_chunk))
    # Eight requests say as much of a median that is the same for all; one stream writes an answer in 1.3 s.
    load = ["load.concurrency=[1,16]", "load.window_requests=8", "workload.max_tokens=256"]
    asked = ["+variant=baseline", "engine=external", f"engine.url={url}", *load]
    code, points, said = measured(tmp_path, *asked, limit_s=300)
    assert code in (0, 6), said
    assert server_reasons(points) == []
    assert {point["load"]["concurrency"] for point in points} == {1, 16}
    for point in points:
        numbers = point["summary"]
        print(point["load"]["concurrency"], numbers["ttft_ms"], numbers["tpot_ms"])
        assert numbers["ttft_ms"]["p50"] == pytest.approx(TTFT_MS, abs=1.0)
        assert numbers["tpot_ms"]["p50"] == pytest.approx(tpot_ms, abs=0.05)
        assert numbers["tokens_per_chunk"] == pytest.approx(tokens_per_chunk, rel=0.01)
        assert "not_proven" in {margin["rule"] for margin in point["verdict"]["margins"]}
