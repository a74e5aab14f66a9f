"""A Config out of what Hydra composed: strict both ways, every mistake one sentence that says what to change.

Pure: takes a mapping, gives a Config or a ConfigError. Knows nothing of files, time or Ray.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from loadgen.config import CONCURRENCY_MAX, Config, Load, levels, unknown_key
from loadgen.errors import ConfigError

NAME = re.compile(r"[a-z0-9_]+")
OWN_FIELDS = frozenset({"max_tokens", "max_completion_tokens", "ignore_eos", "messages", "prompt", "text", "model"})
OWN_FIELDS_FROM = "workload.max_tokens, workload.ignore_eos, the prompts or the server"
ARRIVALS = ("constant", "poisson", "gamma")
SHIPPED_WORKLOADS = ("diverse", "fixed_prompt")
NOT_BUILT = {
    "audit": "audits are not built yet; leave audit out",
    "cluster.clean": "cleaning up after other runs is not built yet; leave cluster.clean=false",
    "output.uri": "other file systems are not built yet; leave output.uri out, results go to the run's folder",
    "slo.ttft_p99_ms": "objectives are not judged yet; leave slo out",
    "slo.tpot_p99_ms": "objectives are not judged yet; leave slo out",
}


def parse(composed: Mapping[str, Any], variants: Sequence[str]) -> Config:
    """Type and check what Hydra composed; `variants` are the names offered when none was given.

    Raises ConfigError, one sentence.
    """
    given = {key: value for key, value in composed.items() if key != "hydra"}
    if not given.get("variant") and given.get("study"):
        raise ConfigError(f"study {given['study']} runs several variants: add -m, or choose one by +variant=NAME")
    if not given.get("variant"):
        raise ConfigError(f"no variant was chosen; add +variant=NAME with one of: {', '.join(variants)}")
    for mapping in (given.get("tags"), given["variant"].get("env") if isinstance(given["variant"], dict) else None):
        _refuse_lost_texts(mapping or {})
    try:
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(given)))
    except OmegaConfBaseException as error:
        raise ConfigError(_said(error)) from None
    assert isinstance(config, Config)
    check(config)
    if config.workload.path and config.workload.name in SHIPPED_WORKLOADS:
        # Own prompts under a shipped workload's name would look like it in every table.
        config.workload.name = re.split(r"[/\\]", config.workload.path)[-1]
    return config


def _refuse_lost_texts(mapping: Mapping[str, Any]) -> None:
    """Texts that YAML already read as something else cannot be had back: 1e3 would become 1000.0."""
    for name, value in mapping.items():
        if isinstance(value, float | bool):
            raise ConfigError(
                f"{name}: {value} was read as a number or truth value; quote the text, as in {name}: '1e3'"
            )


def _said(error: OmegaConfBaseException) -> str:
    """OmegaConf's complaint as a sentence: unknown keys with the nearest known one, wrong types with the key."""
    key, text = getattr(error, "full_key", None) or "?", str(error).splitlines()[0]
    if "not in" in text:
        return unknown_key(str(key))
    return f"{key}: {text}; correct the value of {key}"


def check(config: Config) -> None:
    """Refuse what cannot be run or cannot be meant. Raises ConfigError, one sentence."""
    for key, sentence in NOT_BUILT.items():
        if _value(config, key):
            raise ConfigError(sentence)
    for rule in _RULES:
        rule(config)


def _value(config: Config, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _number(config: Config, key: str, low: float, high: float, *, above: bool = False) -> None:
    """`key` is null or a finite number in [low, high], or in (low, high] with `above`."""
    value = _value(config, key)
    if value is None or (math.isfinite(value) and low <= value <= high and not (above and value == low)):
        return
    least = f"above {low:g}" if above else f"{low:g} or more"
    most = "" if math.isinf(high) else f", at most {high:g}"
    raise ConfigError(f"{key}={value}: give a finite number, {least}{most}")


def _choice(config: Config, key: str, choices: Sequence[str]) -> None:
    if _value(config, key) not in choices:
        raise ConfigError(f"{key}={_value(config, key)}: choose one of {', '.join(choices)}")


def _check_names(config: Config) -> None:
    for key in ("variant.name", "model.name", "workload.name"):
        value = _value(config, key)
        pattern = NAME if key == "variant.name" else re.compile(r"[^\x00-\x1f]+")
        if not pattern.fullmatch(value):
            raise ConfigError(f"{key}={value!r}: use lower-case letters, digits and underscores only")


def _check_engine(config: Config) -> None:
    engine = config.engine
    if engine.kind in ("vllm", "llama_cpp"):
        raise ConfigError(
            f"engine.kind={engine.kind} is not started by us yet; start it and use engine=external engine.url=..."
        )
    _choice(config, "engine.kind", ("auto", "sglang", "sim", "external"))
    _choice(config, "engine.api", ("chat", "completions", "generate"))
    _number(config, "engine.sim_speed", 0, 100_000, above=True)
    _number(config, "engine.ready_s_max", 0, 86_400, above=True)
    if engine.kind == "external" and not engine.url:
        raise ConfigError("engine=external needs the server's address: add engine.url=http://host:port")
    if engine.url and "@" in engine.url:
        raise ConfigError("engine.url holds a user or password; leave it out, and name a key by engine.api_key_env")
    if engine.version is not None and not re.fullmatch(r"\d+\.\d+\.\d+(\.post\d+)?", engine.version):
        raise ConfigError(f"engine.version={engine.version}: write it in full, as in 0.5.9")
    if engine.url and not re.fullmatch(r"https?://[^/\s@]+/?", engine.url):
        raise ConfigError(f"engine.url={engine.url}: give scheme, host and port only, as in http://127.0.0.1:30000")
    if engine.url and engine.kind != "external":
        raise ConfigError("engine.url is for a server that already runs: add engine=external, or leave engine.url out")


def _check_model(config: Config) -> None:
    _number(config, "model.tp", 1, 1024)
    if config.model.nodes != 1:
        raise ConfigError(
            f"model.nodes={config.model.nodes}: servers that span nodes are not built yet; use model.nodes=1"
        )


def _check_variant(config: Config) -> None:
    for name, value in config.variant.args.items():
        if not re.fullmatch(r"[a-z0-9_]+", name):
            raise ConfigError(f"variant.args.{name}: write the server's flag with underscores and lower-case letters")
        if not isinstance(value, str | int | float | bool | list | None):
            raise ConfigError(f"variant.args.{name}={value}: give a text, a number, true, false or a list")
    for name in config.variant.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(
                f"variant.env.{name}: an environment variable's name has letters, digits and underscores only"
            )


def _check_workload(config: Config) -> None:
    workload = config.workload
    _choice(config, "workload.source", ("builtin", "jsonl", "sharegpt", "fixed"))
    _number(config, "workload.max_tokens", 1, 1_000_000)
    _number(config, "workload.temperature", 0, 10)
    if workload.source in ("jsonl", "sharegpt") and not workload.path:
        raise ConfigError(f"workload.source={workload.source} needs a file: add workload.path=FILE")
    if workload.source == "fixed" and not workload.text:
        raise ConfigError("workload.source=fixed needs the prompt: add workload.text='...'")
    if workload.path and workload.source in ("builtin", "fixed"):
        raise ConfigError("workload.path is given but not read: add workload.source=jsonl or workload.source=sharegpt")
    if workload.path and re.search(r"\.(pkl|pickle|npy|npz|pt|pth)$", workload.path, re.IGNORECASE):
        raise ConfigError(f"workload.path={workload.path}: only JSON is read; convert the file to JSON lines")
    sampling = workload.body.get("sampling_params")
    for fields in (workload.body, sampling if isinstance(sampling, dict) else {}):
        if (fields.get("n") or 1) != 1:
            raise ConfigError("workload.body.n: one choice a request is measured; leave n out")
    for name in OWN_FIELDS & set(workload.body):
        raise ConfigError(f"workload.body.{name}: it comes from {OWN_FIELDS_FROM}; leave it out of the body")
    if workload.body.get("stream", True) is not True:
        raise ConfigError("workload.body.stream=false: only streaming is measured; leave stream out")


def _check_load(config: Config) -> None:
    load = config.load
    _choice(config, "load.kind", ("closed", "open"))
    for key in (
        "window_durations",
        "window_min_s",
        "connect_s_max",
        "first_token_s_max",
        "stall_s_max",
        "total_s_max",
        "window_s",
    ):
        _number(config, f"load.{key}", 0, 86_400, above=True)
    _number(config, "load.stagger_s", 0, 86_400)
    _number(config, "load.window_requests", 1, 10_000_000)
    _number(config, "load.failed_share_max", 0, 1)
    _number(config, "load.short_share_max", 0, 1)
    if load.kind == "open":
        _check_open(config)
    else:
        _refuse_given(
            load, ("rate", "arrival", "burstiness", "trace", "trace_speed", "max_in_flight"), "closed", "add load=open"
        )
    levels(load)


def _check_open(config: Config) -> None:
    """What only a load that arrives by a clock may ask, and what it may not."""
    load = config.load
    _refuse_given(load, ("concurrency", "stagger_s"), "open", "leave it out, as load=open does")
    _refuse_given(load, ("window_durations", "window_requests", "window_min_s"), "open", "use load.window_s")
    _choice(config, "load.arrival", ARRIVALS)
    _number(config, "load.burstiness", 0.01, 1000)
    _number(config, "load.trace_speed", 0, 1_000_000, above=True)
    _number(config, "load.max_in_flight", 1, CONCURRENCY_MAX)
    if load.trace is not None and load.rate is not None:
        raise ConfigError("load.trace gives the times already: leave load.rate out (load.trace_speed=2 replays faster)")
    if load.trace is None and load.rate is None:
        raise ConfigError("load=open needs a rate or a trace: add load.rate=6 (requests a second) or load.trace=FILE")
    if load.trace is None and load.trace_speed != 1:
        raise ConfigError("load.trace_speed is for load.trace=FILE: leave it out, or set load.rate itself")
    if (load.arrival == "gamma") != (load.burstiness is not None):
        raise ConfigError(
            "load.burstiness is the shape of load.arrival=gamma: give both, as load.arrival=gamma load.burstiness=0.5"
        )
    if load.trace is not None and (load.arrival != "poisson" or load.window_s is not None):
        key = "load.arrival" if load.arrival != "poisson" else "load.window_s"
        raise ConfigError(f"a trace is replayed as it is: leave {key} out (load.requests=N replays its first N only)")


def _refuse_given(load: Load, names: Sequence[str], kind: str, instead: str) -> None:
    for name in names:
        if getattr(load, name) != getattr(Load(), name):
            other = "open" if kind == "closed" else "closed"
            raise ConfigError(f"load.{name} is for {other} loop, and this load is {kind}: {instead}")


def _check_rest(config: Config) -> None:
    _number(config, "block", 0, 2**31 - 1)
    _number(config, "cluster.workers", 1, 10_000)
    _number(config, "slo.ttft_p99_ms", 0, math.inf, above=True)
    _number(config, "slo.tpot_p99_ms", 0, math.inf, above=True)


_RULES: tuple[Callable[[Config], None], ...] = (
    _check_names,
    _check_engine,
    _check_model,
    _check_variant,
    _check_workload,
    _check_load,
    _check_rest,
)
