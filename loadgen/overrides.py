"""Command-line overrides before Hydra sees them: secrets refused, texts kept as texts, Hydra's complaints as sentences.

Pure: text in, text or a ConfigError out. It must not know how Hydra composes.
"""

import re
from collections.abc import Sequence

from loadgen.config import schema_keys, unknown_key
from loadgen.errors import ConfigError
from loadgen.secret import looks_secret, secret_sentence

OVERRIDE = re.compile(r"(?P<sign>[+~]{0,2})(?P<key>[A-Za-z_][\w./@:-]*)=(?P<value>.*)", re.DOTALL)
# What Hydra's grammar would read as a number or a truth value.
LITERAL = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)|true|false", re.IGNORECASE)
# These groups have no default, so Hydra wants a plus; people may leave it out.
PLUS_GROUPS = ("variant", "study")
FREE_TEXTS = ("tags", "variant.env", "engine.env")  # mappings from names to texts
# Mappings that take any key; Hydra wants "++" to add one, people need not.
OPEN_MAPPINGS = ("tags", "variant.env", "engine.env", "engine.args", "workload.body")
# Parts of Hydra's own configuration that name classes, or folders to take configuration from.
HYDRAS_CODE = re.compile(r"hydra(/|\.(callbacks|launcher|sweeper|job_logging|hydra_logging|searchpath)\b)|.*@hydra\b")
GROUPS = (*PLUS_GROUPS, "model", "engine", "workload", "load", "cluster", "output")


def prepare(argv: Sequence[str]) -> list[str]:
    """The arguments to hand to Hydra. Raises ConfigError for a secret in plain sight, without repeating it."""
    prepared = [_prepare(argument) for argument in argv]
    # Hydra's parser does not take an option after the first override: `+variant=baseline -m block=0,1`.
    return sorted(prepared, key=lambda argument: OVERRIDE.fullmatch(argument) is not None)


def _prepare(argument: str) -> str:
    if argument.startswith("--experimental-rerun"):
        raise ConfigError("--experimental-rerun unpickles a file and is not offered; give the overrides again")
    found = OVERRIDE.fullmatch(argument)
    if found is None:
        if looks_secret("", argument):
            raise ConfigError(secret_sentence("an argument"))
        return argument
    sign, key, value = found["sign"], found["key"], found["value"]
    if looks_secret(key, value):
        raise ConfigError(secret_sentence(key))
    if key in GROUPS and "~" not in sign and re.match(r"\s*(\[|null$|$)", value, re.IGNORECASE):
        # Hydra would merge a list's files into one, which no name would tell.
        raise ConfigError(f"{key}={value}: name one; several are one run each, as in -m {key}=a,b")
    if key in GROUPS and re.search(r"[/\\\0]|\.\.", value):
        raise ConfigError(f"{key}={value!r}: give a name out of conf/{key}, never a path")
    if HYDRAS_CODE.match(key):
        raise ConfigError(f"{key}={value} is not offered: what Hydra loads there can run code; leave it out")
    if key in PLUS_GROUPS and not sign:
        sign = "+"
    if not sign and _below(key, OPEN_MAPPINGS):
        sign = "++"
    if key in _TEXT_KEYS or (_below(key, FREE_TEXTS) and key not in FREE_TEXTS):
        value = _kept(value)
    return f"{sign}{key}={value}"


def _below(key: str, tops: Sequence[str]) -> bool:
    return any(key == top or key.startswith(f"{top}.") for top in tops)


_TEXT_KEYS = frozenset(key for key, kind in schema_keys() if kind in (str, str | None))


def _kept(value: str) -> str:
    """`value`, quoted where Hydra would turn a text into something else; each part of a sweep by itself."""
    parts = value.split(",")
    if all(re.fullmatch(r"[\w.+-]*", part) for part in parts):
        return ",".join(f"'{part}'" if LITERAL.fullmatch(part) else part for part in parts)
    return value


def complaint(text: str) -> str:
    """Hydra's complaint as one sentence that says what to change."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else "Hydra refused the command line"
    if found := re.match(r"Multiple values for ([\w/]+)", first):
        return f"{found[1]} is given twice; name one, or add -m and write {found[1]}=a,b for one run each"
    if found := re.match(r"Could not override '([^']+)'", first):
        return _not_there(found[1])
    if found := re.search(r"Error parsing override '(.*)'", first, re.DOTALL):
        return not_read(found[1])
    if found := re.match(r"Ambiguous value for argument '([^=']+)=(.*)'", first, re.DOTALL):
        key, value = _as_typed(found[1]), found[2]
        if key in GROUPS:
            return f"{key} got several values: name one, or add -m for one run each"
        one, many = f"quote one text with commas as \"{key}='{value}'\"", f"write a list as {key}=[{value}]"
        return f"{key} got several values: {one}, {many}, or add -m for one run each"
    if "Could not find '" in first and (options := _options(lines)):
        return f"{first[first.index('Could not find') :].rstrip('.')}; there are: {options}"
    return " ".join(lines)[:500]


def _not_there(key: str) -> str:
    if key.startswith("variant."):
        return f"{key} is not set by this variant; write ++{key}=... to set or add it"
    if "/" in key or key == "hydra":
        return f"there is no group {key}; see conf/ for the groups there are"
    return unknown_key(key)


def not_read(override: str) -> str:
    """The sentence for an override that Hydra's grammar refuses, with the form that it takes."""
    override = _as_typed(override)
    if override.count("{") != override.count("}") or override.count("[") != override.count("]"):
        whole = "'workload.body={top_p: 0.9}'"
        return f"the shell has split an override at {override}; quote it whole, as in {whole}"
    key, _, value = override.partition("=")
    if not re.fullmatch(r"[+~]{0,2}[A-Za-z_][\w@/:-]*(\.[A-Za-z_][\w@/:-]*)*", key):
        parts = "each part begins with a letter, and a flag is written without leading dashes"
        return f"the override {override} cannot be read: {key} is no key; {parts}"
    quoted = value.replace("'", "\\'")
    return f"the override {override} cannot be read; quote the value, in the shell too: \"{key}='{quoted}'\""


def _as_typed(override: str) -> str:
    """Without the plus signs that `prepare` adds."""
    plain = override.lstrip("+")
    return plain if _below(plain.partition("=")[0], (*OPEN_MAPPINGS, *PLUS_GROUPS)) else override


def _options(lines: Sequence[str]) -> str:
    start = next((i for i, line in enumerate(lines) if line.startswith("Available options")), None)
    if start is None:
        return ""
    names = []
    for line in lines[start + 1 :]:
        if not re.fullmatch(r"[\w-]+", line):
            break
        names.append(line)
    return ", ".join(names)
