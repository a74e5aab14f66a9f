"""What an engine tells of its cache is only believed where it can be true."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.launched import Launched
from loadgen.served import with_cache_as_told
from server.spec import ServerSpec


def cached(tokens: list[float], **info: Any) -> list[float]:
    spec = ServerSpec(engine="sglang", variant="v")
    launched = Launched("v-1", "1", spec, 0, None, {"server_info": info}, Path(), None, "")  # type: ignore[arg-type]
    return list(with_cache_as_told(launched, {"cached_tokens": np.array(tokens)})["cached_tokens"])


@pytest.mark.parametrize(
    ("version", "algorithm", "told", "known"),
    [
        ("0.5.9", "EAGLE3", [0.0, 0.0], False),
        ("0.5.9", "EAGLE3", [0.0, 7.0], True),
        ("0.5.9", None, [0.0, 0.0], True),
        ("0.5.12", "EAGLE3", [0.0, 0.0], True),
        (None, "EAGLE3", [0.0, 0.0], True),
    ],
)
def test_a_zero_that_is_always_told_is_unknown(
    version: str | None, algorithm: str | None, told: list[float], known: bool
) -> None:
    """SGLang 0.5.9 says 0 of every request under speculation; later ones, and one that says more, are believed."""
    found = cached(told, version=version, speculative_algorithm=algorithm)
    assert found == told if known else bool(np.isnan(found).all())
