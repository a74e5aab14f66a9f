"""What looks like a secret and must not be given in plain sight: configuration ends up on disk.

Pure. A sentence that refuses a secret never repeats it.
"""

import re
from collections.abc import Mapping
from typing import Any

from loadgen.errors import ConfigError

SECRET_KEY = re.compile(
    r"(^|[_.-])(api_?key|token|secret|passw(or)?d|credentials?|authorization|bearer)$", re.IGNORECASE
)
# Prefixes of well-known keys with the length of one behind them, variables that hold one, headers, and what stands in
# an address.
SECRET_VALUE = re.compile(
    r"\bsk-[A-Za-z0-9_-]{6,}|\bhf_[A-Za-z0-9]{20,}|\bghp_[A-Za-z0-9]{20,}|\bxox[bp]-[A-Za-z0-9-]{10,}|\bAKIA[A-Z0-9]{12,}"
    r"|(?i:oc\.env:[^,}]*(?:key|token|secret|passw|credential))"
    r"|(?i:bearer\s+\S{6,}|authorization['\"]?\s*[:=])"
    r"|(?i:\w://[^\s/@]*:[^\s/@]+@|://\S*[?&](?:api_?key|token|secret|passw(?:or)?d)=)"
)


def looks_secret(key: str, value: str) -> bool:
    """Whether `key=value` looks like a secret given in plain sight (numbers, null and booleans never do)."""
    harmless = value.strip("'\"") in ("", "null", "true", "false") or value.strip("'\"").replace(".", "").isdigit()
    return bool(SECRET_VALUE.search(value)) or (bool(SECRET_KEY.search(key)) and not harmless)


def refuse_secrets(value: Any, key: str = "") -> None:
    """Refuse a configuration that holds a secret anywhere, without repeating it. Raises ConfigError."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            refuse_secrets(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            refuse_secrets(inner, key)
    elif isinstance(value, str) and looks_secret(key, value):
        raise ConfigError(secret_sentence(key))


def secret_sentence(key: str) -> str:
    """The sentence that refuses a secret given as `key`; the value is not repeated."""
    return (
        f"{key} looks like a secret; configuration ends up on disk, so secrets are only named: put it into an"
        " environment variable and give that variable's name, as in engine.api_key_env=OPENAI_API_KEY"
    )
