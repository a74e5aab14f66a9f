"""Which server a configuration asks for, checked before anything starts: engine, weights, files, rules of flags."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conf import variant as variants
from loadgen.config import Config, urls
from loadgen.errors import ConfigError
from server.flags import canonical, twice
from server.sim.flags import VERSIONS as SIMULATED_VERSIONS
from server.spec import STARTED
from server.tls import VERIFIED, Tls, context, remarks
from server.variant import ServerSpec, SpecError, check, missing_keys, parse_version

# Flags whose value is a file: one of the user's, or one that stands beside the variants.
FILE_FLAGS = ("speculative_adaptive_config",)
ENGINE_FILES = ("sim_profile", "ca_file", "client_cert_file", "client_key_file")
VARIANTS = Path(variants.__file__).parent


def server_spec(conf: Config, kind: str) -> ServerSpec:
    """What decides a Launch's server, checked; `kind` is the engine (auto is checked like sim). Raises ConfigError."""
    engine = "sim" if kind == "auto" else kind
    spec = ServerSpec(
        engine=engine,
        variant=conf.variant.name,
        args=_flags(conf, engine),
        env={**conf.engine.env, **conf.variant.env},
        model_name=conf.model.name,
        model_path=_home(conf.model.path),
        draft_path=_home(conf.model.draft_path),
        tp=conf.model.tp,
        moe=conf.model.moe,
        python=interpreter(conf.variant.python or conf.engine.python),
        version=conf.engine.version or (_simulated(conf.variant.since) if engine == "sim" else None),
        since=conf.variant.since,
        sim_speed=conf.engine.sim_speed,
        sim_profile=_absolute(conf.engine.sim_profile),
        tls=tls_of(conf),
        api_key_env=conf.engine.api_key_env,
        ready_s_max=conf.engine.ready_s_max,
        hang_s_max=conf.engine.hang_s_max,
        stop_s_max=conf.engine.stop_s_max,
        urls=urls(conf.engine),
        cores=tuple(conf.engine.cores or ()),
    )
    try:
        check(spec)
    except SpecError as error:
        raise ConfigError(str(error)) from None
    return spec


def _flags(conf: Config, engine: str) -> dict[str, Any]:
    """The variant's flags over the engine's, whichever of its names each was given by."""
    merged: dict[str, Any] = {}
    for group, args in (("engine", conf.engine.args), ("variant", conf.variant.args)):
        if engine != "vllm" and (same := twice(args)):
            raise ConfigError(f"{group}.args.{same[0]} and {group}.args.{same[1]} are one flag; give one of them")
        merged |= args if engine == "vllm" else canonical(args)
    return {name: _file(name, value) for name, value in merged.items()}


def _home(name: str | None) -> str | None:
    """A leading ~ as the user's folder: no shell sees what stands in a file."""
    return str(Path(name).expanduser()) if name and name.startswith("~") else name


def interpreter(given: str | list[str] | None) -> tuple[str, ...]:
    """The words that start an interpreter: a path, a command in one text, or its words; none for this one."""
    if not given:
        return ()
    if isinstance(given, str):
        given = [given] if Path(str(_home(given))).is_file() else _words(given)
    return tuple(str(_home(word)) for word in given)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"engine.python={command}: {error}; give its words as a list, [word,word]") from None


def _simulated(since: str | None) -> str | None:
    """The simulated version on which a variant runs that the oldest one does not know; None: the oldest."""
    late = [version for version in SIMULATED_VERSIONS if since and parse_version(version) >= parse_version(since)]
    return late[0] if late and late[0] != SIMULATED_VERSIONS[0] else None


def _file(flag: str, value: Any) -> Any:
    """The file of a flag that takes one, absolute: the user's own, else the one of that name beside the variants."""
    if flag not in FILE_FLAGS or not isinstance(value, str):
        return value
    own, beside = Path(str(_home(value))), VARIANTS / value
    return str(beside if not own.is_file() and beside.is_file() else own.absolute())


def tls_of(conf: Config) -> Tls:
    """How https connections are secured; files absolute."""
    engine = conf.engine
    ca, certificate, key = map(_absolute, (engine.ca_file, engine.client_cert_file, engine.client_key_file))
    return Tls(ca, certificate, key, engine.tls_verify)


def warnings(conf: Config) -> tuple[str, ...]:
    """What is to be known of its server before anything starts."""
    return tuple(remarks(tls_of(conf), urls(conf.engine)))


def _absolute(name: str | None) -> str | None:
    """A file named on the driver's command line, for processes that run elsewhere."""
    return str(Path(name).absolute()) if name else None


def require_weights(conf: Config, kind: str) -> None:
    """Refuse a real start without weights. Raises ConfigError naming the keys."""
    if missing := missing_keys(server_spec(conf, kind)):
        keys = " and ".join(f"{key}=..." for key in missing)
        instead = "engine=sim for the simulator, launch.dry_run=true to see the command"
        raise ConfigError(f"engine {kind} needs the weights of {conf.model.name}: add {keys} (or {instead})")


def check_inputs(conf: Config) -> None:
    """Refuse what would only be missed later: files, and the key's variable. Raises ConfigError."""
    args = {**conf.engine.args, **conf.variant.args}
    files = [(f"variant.args.{flag}", _file(flag, args.get(flag))) for flag in FILE_FLAGS]
    named = [(f"engine.{name}", getattr(conf.engine, name)) for name in ENGINE_FILES]
    for key, name in (*named, *files):
        if isinstance(name, str) and name and not Path(name).is_file():
            raise ConfigError(f"{key}={name}: there is no such file; name one that exists")
    _check_tls(conf)
    variable = conf.engine.api_key_env
    if variable and not conf.cluster.address and not os.environ.get(variable):
        raise ConfigError(f"engine.api_key_env={variable}: that variable is not set; export it before the run")
    if conf.engine.kind == "sim" and conf.engine.version not in (None, *SIMULATED_VERSIONS):
        raise ConfigError(
            f"engine.version={conf.engine.version}: the simulator speaks {' and '.join(SIMULATED_VERSIONS)}"
        )


def _check_tls(conf: Config) -> None:
    """Certificates that no worker could use are refused here, and not by each of them."""
    if (tls := tls_of(conf)) == VERIFIED:
        return
    try:
        context(tls)
    except OSError as error:
        raise ConfigError(str(error)) from None


def resolve_engine(conf: Config, gpus: Sequence[int]) -> str:
    """The engine by the GPUs of each node: for auto, enough on one means sglang and none anywhere sim.

    Raises ConfigError naming both numbers where there are some but too few, or where a real start lacks weights.
    """
    kind, best = conf.engine.kind, max(gpus, default=0)
    if kind == "auto":
        kind = "sglang" if best > 0 else "sim"
    if kind in STARTED:
        if best < (wanted := server_spec(conf, kind).gpus):
            more = f" ({wanted} with all its replicas and stages)" if wanted != conf.model.tp else ""
            asked = f"{conf.model.name} needs model.tp={conf.model.tp} GPUs{more} on one node, the best has {best}"
            raise ConfigError(f"{asked}; set model.tp, or add engine=sim")
        require_weights(conf, kind)
    return kind
