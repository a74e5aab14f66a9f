"""Fixtures of the tests of real processes: specs of fake servers, and launches that are gone after the test."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import fake_python

from server.process import Running, launch
from server.spec import ServerSpec
from server.stop import stop


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., ServerSpec]:
    """Specs of fake servers: what they shall do by name, other fields of the spec as `fields`."""

    def make(fields: dict[str, Any] | None = None, **fake: Any) -> ServerSpec:
        given = {"env": {"FAKE": json.dumps(fake)}, "python": (fake_python(tmp_path),), **(fields or {})}
        return ServerSpec(engine="sglang", variant="baseline", **given)

    return make


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[ServerSpec], Running]]:
    """Launch servers that are gone after the test."""
    launched: list[Running] = []

    def start(spec: ServerSpec, host: str = "127.0.0.1") -> Running:
        launched.append(launch(spec, tmp_path / "out", host))
        return launched[-1]

    yield start
    for running in reversed(launched):
        assert stop(running, term_s=0.1).clean
