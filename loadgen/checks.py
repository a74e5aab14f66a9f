"""A Config out of what Hydra composed: strict both ways, every mistake one sentence that says what to change.

Pure: takes a mapping, gives a Config or a ConfigError. Knows nothing of files, time or Ray.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from loadgen.asking import check_workload
from loadgen.bounds import choice, number, value_of
from loadgen.chaos import check_chaos
from loadgen.config import Config, Engine, unknown_key, urls
from loadgen.drift import check_drift
from loadgen.errors import ConfigError
from loadgen.loads import check_load

NAME = re.compile(r"[a-z0-9_]+")
SHIPPED_WORKLOADS = ("diverse", "fixed_prompt", "random", "shared_prefix", "multi_turn")
# Other file systems that pyarrow knows by an address.
SCHEMES = ("s3", "gs", "hdfs", "file")
URI_OPTIONS = ("endpoint_override", "scheme", "region", "retry_limit_seconds", "user")  # none of them is a secret


def parse(composed: Mapping[str, Any], variants: Sequence[str]) -> Config:
    """Type and check what Hydra composed; `variants` are the names offered when none was given.

    Raises ConfigError, one sentence.
    """
    given = {key: value for key, value in composed.items() if key != "hydra"}
    if not given.get("variant") and given.get("study"):
        raise ConfigError(f"study {given['study']} runs several variants: add -m, or choose one by +variant=NAME")
    if not given.get("variant"):
        raise ConfigError(f"no variant was chosen; add +variant=NAME with one of: {', '.join(variants)}")
    groups = [given[name] for name in ("variant", "engine") if isinstance(given.get(name), dict)]
    for mapping in (given.get("tags"), *(group.get("env") for group in groups)):
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
    if "is not a ListConfig" in text:
        return f"{key}: give a list, as in {key}=[1,30]"
    if "is not Optional" in text:
        return f"{key}=null is no value for it; give one, or take it out with ~{key}"
    return f"{key}: {text}; correct the value of {key}"


def check(config: Config) -> None:
    """Refuse what cannot be run or cannot be meant. Raises ConfigError, one sentence."""
    for rule in _RULES:
        rule(config)


def _check_names(config: Config) -> None:
    for key in ("variant.name", "model.name", "workload.name"):
        value = value_of(config, key)
        pattern = NAME if key == "variant.name" else re.compile(r"[^\x00-\x1f]+")
        if not pattern.fullmatch(value):
            raise ConfigError(f"{key}={value!r}: use lower-case letters, digits and underscores only")


def _check_engine(config: Config) -> None:
    engine = config.engine
    if engine.kind == "llama_cpp":
        raise ConfigError(
            f"engine.kind={engine.kind} is not started by us yet; start it and use engine=external engine.url=..."
        )
    choice(config, "engine.kind", ("auto", "sglang", "vllm", "sim", "external"))
    choice(config, "engine.api", ("chat", "completions", "generate"))
    if (engine.kind, engine.api) == ("vllm", "generate"):
        raise ConfigError("engine.api=generate is SGLang's and vLLM has none; use engine.api=chat or completions")
    number(config, "engine.sim_speed", 0, 100_000, above=True)
    for name in ("ready_s_max", "warm_up_s_max", "hang_s_max"):
        number(config, f"engine.{name}", 0, 86_400, above=True)
    number(config, "engine.profile_steps", 1, 1000)
    number(config, "engine.stop_s_max", 0, 120)  # a guard kills then, whatever it was told
    _check_profile(engine)
    _check_version("engine.version", engine.version)
    _check_python("engine.python", engine.python)
    _check_cores(engine.cores)
    _check_urls(config)
    _check_tls(engine)


def _check_profile(engine: Engine) -> None:
    if not isinstance(engine.profile, bool):
        file = f"; the simulator's file is engine.sim_profile={engine.profile}" if engine.profile is not None else ""
        raise ConfigError(f"engine.profile={engine.profile}: give true or false{file}")
    if engine.profile and engine.kind in ("vllm", "external"):
        raise ConfigError(
            f"engine.profile=true with engine={engine.kind}: only an SGLang that is started here is profiled, "
            "the trace of another lies where we cannot read it; leave engine.profile out"
        )


def _check_version(key: str, text: str | None) -> None:
    if text is not None and not re.fullmatch(r"\d+\.\d+\.\d+(\.post\d+)?", text):
        raise ConfigError(f"{key}={text}: write it in full, as in 0.5.9")


def _check_python(key: str, given: Any) -> None:
    """An interpreter, or a command that starts one: a text, or its words."""
    words = given if isinstance(given, list) else [given]
    if given is None or (words and all(isinstance(word, str) and word and "\0" not in word for word in words)):
        return
    raise ConfigError(
        f"{key}={given!r}: give the path of an interpreter, or the words of a command that starts one, "
        f"as in {key}=[docker,run,--rm,--gpus,all,--network,host,IMAGE,python3]"
    )


def _check_cores(cores: list[int] | None) -> None:
    if cores is not None and (not cores or len(set(cores)) != len(cores) or min(cores) < 0):
        raise ConfigError(f"engine.cores={cores}: name each core once, as in engine.cores=[0,1], or null for all")


def _check_urls(config: Config) -> None:
    engine, given = config.engine, urls(config.engine)
    if engine.kind == "external" and not given:
        raise ConfigError("engine=external needs the server's address: add engine.url=http://host:port")
    for url in given:
        if "@" in url:
            raise ConfigError("engine.url holds a user or password; leave it out, and name a key by engine.api_key_env")
        if not _is_address(url):
            raise ConfigError(
                f"engine.url={url}: give scheme, host and port only, as in http://127.0.0.1:30000, "
                "or a list of them as in engine.url=[http://a:1,http://b:1]"
            )
    if len(set(given)) != len(given):
        raise ConfigError(f"engine.url={engine.url} names a server twice; name each once")
    if given and engine.kind != "external":
        raise ConfigError("engine.url is for a server that already runs: add engine=external, or leave engine.url out")


def _check_tls(engine: Engine) -> None:
    if engine.client_key_file and not engine.client_cert_file:
        raise ConfigError("engine.client_key_file is the key of a certificate: add engine.client_cert_file=FILE")
    if engine.ca_file and not engine.tls_verify:
        raise ConfigError("engine.ca_file verifies what engine.tls_verify=false believes unseen; leave one of them out")


def _is_address(url: str) -> bool:
    """Whether it is scheme, host and, where it is given, a port that there is; nothing more."""
    if not re.fullmatch(r"https?://[^/\s@,?#]+", url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_model(config: Config) -> None:
    number(config, "model.tp", 1, 1024)
    if config.model.nodes != 1:
        raise ConfigError(
            f"model.nodes={config.model.nodes}: servers that span nodes are not built yet; use model.nodes=1"
        )


def _check_flags(config: Config) -> None:
    _check_version("variant.since", config.variant.since)
    _check_python("variant.python", config.variant.python)
    for where, group in (("variant", config.variant), ("engine", config.engine)):
        for name, value in group.args.items():
            if not re.fullmatch(r"[a-z0-9_]+", name):
                raise ConfigError(
                    f"{where}.args.{name}: write the server's flag with underscores and lower-case letters"
                )
            if not isinstance(value, str | int | float | bool | list | None):
                raise ConfigError(f"{where}.args.{name}={value}: give a text, a number, true, false or a list")
        for name in group.env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ConfigError(
                    f"{where}.env.{name}: an environment variable's name has letters, digits and underscores only"
                )


def _check_output(config: Config) -> None:
    uri = config.output.uri
    if uri is None:
        return
    if "@" in uri:
        raise ConfigError(
            "output.uri holds a user or password; leave it out: each node's own environment has its rights"
        )
    if unknown := [name for name, _ in parse_qsl(urlsplit(uri).query, True) if name not in URI_OPTIONS]:
        raise ConfigError(f"output.uri has the option {unknown[0]}; known are {', '.join(URI_OPTIONS)}")
    scheme, place = urlsplit(uri).scheme, uri.partition("://")[2].partition("?")[0]
    if scheme not in SCHEMES or not place.strip("/"):
        raise ConfigError(
            f"output.uri={uri}: give the address of a folder on another file system ({', '.join(SCHEMES)}), "
            "as in s3://bucket/loadgen"
        )


def _check_rest(config: Config) -> None:
    if config.audit is not None:
        choice(config, "audit", ("outputs",))
        if config.workload.temperature != 0:
            raise ConfigError(
                f"audit=outputs with workload.temperature={config.workload.temperature}: drawn answers differ anyway; "
                "set workload.temperature=0"
            )
    number(config, "block", 0, 2**31 - 1)
    number(config, "cluster.workers", 1, 10_000)
    number(config, "slo.ttft_p99_ms", 0, math.inf, above=True)
    number(config, "slo.tpot_p99_ms", 0, math.inf, above=True)


_RULES: tuple[Callable[[Config], None], ...] = (
    _check_names,
    _check_engine,
    _check_model,
    _check_flags,
    check_workload,
    check_load,
    check_drift,
    check_chaos,
    _check_output,
    _check_rest,
)
