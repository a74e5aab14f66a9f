"""The bounds of single keys: a number within its range, one of several choices.

Pure. A refusal names the key as it is typed, and says what is allowed.
"""

import math
from collections.abc import Sequence
from typing import Any

from loadgen.config import Config
from loadgen.errors import ConfigError


def value_of(config: Config, key: str) -> Any:
    """What the configuration holds at a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def number(config: Config, key: str, low: float, high: float, *, above: bool = False) -> None:
    """`key` is null or a finite number in [low, high], or in (low, high] with `above`."""
    value = value_of(config, key)
    if value is None or (math.isfinite(value) and low <= value <= high and not (above and value == low)):
        return
    least = f"above {low:g}" if above else f"{low:g} or more"
    most = "" if math.isinf(high) else f", at most {high:g}"
    raise ConfigError(f"{key}={value}: give a finite number, {least}{most}")


def choice(config: Config, key: str, choices: Sequence[str]) -> None:
    """`key` is one of the choices."""
    if value_of(config, key) not in choices:
        raise ConfigError(f"{key}={value_of(config, key)}: choose one of {', '.join(choices)}")
