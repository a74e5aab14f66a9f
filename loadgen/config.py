"""The configuration's schema: what can be asked, typed, with defaults; and what follows from it alone.

Pure. `checks` makes a Config out of what Hydra composed; conf/ says what each key means.
"""

import dataclasses
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from loadgen.errors import ConfigError

BASELINE = "baseline"  # the variant that all others are held against
CONCURRENCY_MAX = 100_000  # streams; beyond it one Point would need more descriptors than hosts commonly allow
LEVEL_S_MAX = 86_400  # seconds of a window, or until the last request of a plan is due; nobody waits for longer
RATE_MAX = 100_000  # requests a second; beyond it one could not be told from the next by the clock of a busy loop


@dataclass
class Model:
    name: str = MISSING
    path: str | None = None
    draft_path: str | None = None
    tp: int = 1
    nodes: int = 1
    moe: bool | None = None


@dataclass
class Engine:
    kind: str = MISSING
    api: str = "chat"
    url: Any = None  # an address or a list; `urls` is the checked form
    args: dict[str, Any] = field(default_factory=dict)  # what all variants share on this engine; a variant's win
    env: dict[str, str] = field(default_factory=dict)
    cores: list[int] | None = None
    python: Any = None  # an interpreter, or the words of a command; `engine.interpreter` is the checked form
    version: str | None = None
    sim_speed: float = 10.0
    sim_profile: str | None = None
    profile: Any = False  # true or false, nothing else
    profile_steps: int = 20
    api_key_env: str | None = None
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    tls_verify: bool = True
    ready_s_max: float = 3600.0
    warm_up_s_max: float = 600.0
    hang_s_max: float = 120.0
    stop_s_max: float = 30.0


@dataclass
class Variant:
    name: str = MISSING
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    python: Any = None
    since: str | None = None


@dataclass
class Workload:
    name: str = MISSING
    source: str = MISSING
    path: str | None = None
    text: str | None = None
    max_tokens: int = 512
    ignore_eos: bool = True
    temperature: float = 0.0
    seed: int = 0
    input_tokens: Any = None  # a number or a distribution, as `lengths.parse` reads it
    output_tokens: Any = None
    prefix_tokens: int | None = None
    prefix_groups: int = 8
    turns: int = 1
    think_s: float = 0.0
    body: dict[str, Any] = field(default_factory=dict)


@dataclass
class Load:
    kind: str = MISSING
    concurrency: Any = None  # a number or a list; `levels` is the checked form
    requests: Any = None
    rate: Any = None  # the same in open loop
    arrival: str = "poisson"
    burstiness: float | None = None
    trace: str | None = None
    trace_speed: float = 1.0
    max_in_flight: int | None = None
    stagger_s: float | None = None
    window_durations: float = 1.0
    window_requests: int = 24
    window_min_s: float = 5.0
    window_s: float | None = None
    failed_share_max: float = 0.01
    short_share_max: float = 0.01
    search: str | None = None
    search_factor: float | None = None
    search_blocks_max: int = 8
    search_points_max: int = 16
    search_s_max: float | None = None
    connect_s_max: float = 10.0
    first_token_s_max: float = 600.0
    stall_s_max: float = 120.0
    total_s_max: float = 3600.0


@dataclass
class Cluster:
    address: str | None = None
    server: str | None = None
    clients: list[str] | None = None
    workers: int | None = None
    clean: bool = False


@dataclass
class Output:
    uri: str | None = None
    text: bool = False
    quiet: bool = False


@dataclass
class Slo:
    ttft_p99_ms: float | None = None
    tpot_p99_ms: float | None = None


@dataclass
class Fault:
    """A fault, and how a Point that suffers it has to end; see `chaos`."""

    fault: str = MISSING
    expect: str = "FAILED"
    rule: str | None = None
    when: str = "window"
    within_s: float = 60.0


@dataclass
class LaunchOptions:
    dry_run: bool = False


@dataclass
class Config:
    """One run: a Variant under a Workload at every level of a Load."""

    model: Model = MISSING
    engine: Engine = MISSING
    workload: Workload = MISSING
    load: Load = MISSING
    cluster: Cluster = field(default_factory=Cluster)
    output: Output = field(default_factory=Output)
    slo: Slo = field(default_factory=Slo)
    launch: LaunchOptions = field(default_factory=LaunchOptions)
    block: int = 0
    study: str | None = None
    resume: bool = False
    audit: str | None = None
    drift: list[int] = field(default_factory=list)  # concurrencies; see `drift`
    chaos: list[Fault] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    variant: Variant = MISSING


@dataclass(frozen=True)
class Level:
    """One level of a load: `concurrency` streams, or `rate` requests a second; neither is a trace.

    `requests` is None where a window decides, or where a trace is replayed to its end.
    """

    concurrency: int | None
    requests: int | None
    rate: float | None = None

    @property
    def open(self) -> bool:
        """Requests come by a clock, whatever became of the earlier ones."""
        return self.concurrency is None

    @property
    def counted(self) -> bool:
        """A fixed number of requests, and so no window."""
        return self.requests is not None or (self.open and self.rate is None)

    @property
    def folder(self) -> str:
        """What the folder of its Point is called."""
        if not self.open:
            return f"c{self.concurrency}"
        return "trace" if self.rate is None else f"r{self.rate:g}"

    @property
    def words(self) -> str:
        """The level for a person."""
        return in_words(self.concurrency, self.rate)


def in_words(concurrency: int | None, rate: float | None, trace: str | None = None) -> str:
    """A level for a person, as the dataset has it; the rate of a `trace` is its mean."""
    if concurrency is not None:
        return f"concurrency {concurrency}"
    if rate is None or trace:
        return "trace" + (f" of {rate:.3g}/s" if rate else "")
    return f"rate {rate:g}/s"


def unknown_key(key: str) -> str:
    """The sentence for a key that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(key, [name for name, _ in schema_keys()], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "see conf/ for the keys there are"
    return f"there is no key {key}; {hint}"


def schema_keys(schema: Any = Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of the schema with its declared type, dotted: ('load.concurrency', Any)."""
    for item in dataclasses.fields(schema):
        name = prefix + item.name
        yield name, item.type
        if dataclasses.is_dataclass(item.type):
            yield from schema_keys(item.type, name + ".")


def urls(engine: Engine) -> tuple[str, ...]:
    """The addresses of external servers, each without a slash at its end; none where we start the server."""
    given = engine.url if isinstance(engine.url, list) else [engine.url] if engine.url else []
    return tuple(str(url).rstrip("/") for url in given)


def levels(load: Load) -> tuple[Level, ...]:
    """The levels of a load, in the order given. Raises ConfigError."""
    if load.trace is not None:
        return (Level(None, *_counts(load, 1)),)
    key = "load.rate" if load.kind == "open" else "load.concurrency"
    given = load.rate if load.kind == "open" else load.concurrency
    asked = given if isinstance(given, list) else [given]
    if not asked:
        raise ConfigError(f"{key} is empty: give a number, or a list as in {key}=[1,16]")
    for value in asked:
        _rate(value) if load.kind == "open" else _whole(key, value, CONCURRENCY_MAX)
    if len(set(asked)) != len(asked):
        raise ConfigError(f"{key}={asked} names a level twice; name each once (repeats are block=0,1,2 under -m)")
    counts = _counts(load, len(asked))
    if load.kind == "open":
        return tuple(Level(None, count, float(rate)) for rate, count in zip(asked, counts, strict=True))
    for level, count in zip(asked, counts, strict=True):
        if count is not None and count < level:
            raise ConfigError(
                f"load.requests={count} is below the concurrency {level}; ask for at least {level} requests"
            )
    return tuple(Level(level, count) for level, count in zip(asked, counts, strict=True))


def _counts(load: Load, levels: int) -> list[int | None]:
    """The fixed number of requests of each level, None where a window decides."""
    counts = load.requests if isinstance(load.requests, list) else [load.requests] * levels
    if len(counts) != levels:
        raise ConfigError(
            f"load.requests has {len(counts)} numbers for {levels} levels; give one number, or one a level"
        )
    for count in counts:
        if count is not None:
            _whole("load.requests", count, 100_000_000)
    return counts


def _rate(value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= RATE_MAX:  # NaN is not above 0
        raise ConfigError(
            f"load.rate={value}: give requests a second, above 0, at most {RATE_MAX}, or a list as in load.rate=[2,6]"
        )


def _whole(key: str, value: Any, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        raise ConfigError(f"{key}={value}: give a whole number from 1 to {high}, or a list of them as in {key}=[1,16]")


def as_dict(config: Config) -> dict[str, Any]:
    """The checked configuration as plain values, for launch.json and for finding the same one again."""
    return dataclasses.asdict(config)
