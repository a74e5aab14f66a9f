"""Configuration: strict both ways, each mistake one sentence that names the key and what to change."""

from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from loadgen.checks import parse
from loadgen.config import Config, as_dict, levels
from loadgen.errors import ConfigError
from loadgen.overrides import prepare
from loadgen.secret import refuse_secrets


def made(*overrides: str) -> Config:
    with initialize_config_module("conf", version_base="1.3"):
        composed = compose("config", overrides=prepare(overrides))
    container: Any = OmegaConf.to_container(composed, resolve=True)
    return parse(container, ["baseline", "eagle_topk1_v2"])


def test_defaults() -> None:
    """What a user gets who only names a variant."""
    config = made("+variant=eagle_topk1_v2")
    assert [level.concurrency for level in levels(config.load)] == [1, 2, 5, 10, 30, 70, 100, 250]
    assert (config.workload.max_tokens, config.workload.ignore_eos, config.workload.temperature) == (512, True, 0.0)
    assert (config.model.name, config.model.tp, config.engine.kind, config.engine.api) == (
        "kimi_k25",
        8,
        "auto",
        "chat",
    )
    assert (config.load.window_durations, config.load.window_requests, config.load.window_min_s) == (1.0, 24, 5.0)


OPEN = ("+variant=baseline", "load=open", "load.rate=6")
EXTERNAL = ("engine=external", "engine.url='http://h:1'")
TRACE = ("+variant=baseline", "load=open", "load.trace=t.csv")
REFUSED = [
    ([], "no variant was chosen; add +variant=NAME with one of: baseline"),
    (["+variant=baseline", "+workload.isll=3"], "there is no key workload.isll"),
    (["+variant=baseline", "+load.concurency=8"], "did you mean load.concurrency?"),
    (["+variant=baseline", "+rat=4"], "there is no key rat"),
    (["+variant=baseline", "++serv.port=1"], "there is no key serv"),
    (["+variant=baseline", "+variant._target_=os.system"], "there is no key variant._target_"),
    (["+variant=baseline", "variant.name=../../x"], "lower-case letters, digits and underscores"),
    (["+variant=baseline", "load.concurrency=0"], "load.concurrency=0: give a whole number from 1"),
    (["+variant=baseline", "load.concurrency=1.5"], "load.concurrency=1.5"),
    (["+variant=baseline", "load.concurrency=true"], "load.concurrency=True"),
    (["+variant=baseline", "load.concurrency=nan"], "load.concurrency=nan"),
    (["+variant=baseline", "load.concurrency=[]"], "load.concurrency is empty"),
    (["+variant=baseline", "load.concurrency=[4,4]"], "names a level twice"),
    (["+variant=baseline", "load.requests=4", "load.concurrency=8"], "load.requests=4 is below the concurrency 8"),
    (["+variant=baseline", "load.requests=[4,5]", "load.concurrency=[1]"], "load.requests has 2 numbers for 1 levels"),
    (["+variant=baseline", "load.kind=open"], "load.concurrency is for closed loop, and this load is open"),
    (["+variant=baseline", "load.rate=3"], "load.rate is for open loop, and this load is closed: add load=open"),
    (["+variant=baseline", "load.trace=t.csv"], "load.trace is for open loop"),
    (["+variant=baseline", "load.max_in_flight=3"], "load.max_in_flight is for open loop"),
    (["+variant=baseline", "load=open"], "add load.rate=6 (requests a second) or load.trace=FILE"),
    (
        ["+variant=baseline", "load=open", "load.rate=[6,0.03]"],
        "not one request is due in a window of 30 s; raise the rate",
    ),
    ([*OPEN[:2], "load.rate=0.3", "load.window_s=2"], "not one request is due in a window of 2 s"),
    ([*OPEN[:2], "load.rate=1e-320", "load.requests=5"], "takes longer than a day: lower load.requests"),
    ([*OPEN, "load.requests=50", "load.window_s=5"], "which has no window: leave it or load.window_s out"),
    (["+variant=baseline", "load.requests=500", "load.window_s=5"], "which has no window"),
    ([*OPEN, "load.concurrency=4"], "load.concurrency is for closed loop"),
    ([*OPEN, "load.stagger_s=4"], "load.stagger_s is for closed loop"),
    ([*OPEN, "load.window_min_s=9"], "load.window_min_s is for closed loop, and this load is open: use load.window_s"),
    ([*OPEN, "load.rate=0"], "load.rate=0: give requests a second, above 0"),
    ([*OPEN, "load.rate=-1"], "load.rate=-1"),
    ([*OPEN, "load.rate=nan"], "load.rate=nan"),
    ([*OPEN, "load.rate=inf"], "load.rate=inf"),
    ([*OPEN, "load.rate=fast"], "load.rate=fast"),
    ([*OPEN, "load.rate=[]"], "load.rate is empty"),
    ([*OPEN, "load.rate=[2,2]"], "load.rate=[2, 2] names a level twice"),
    ([*OPEN, "load.requests=[1,2]"], "load.requests has 2 numbers for 1 levels"),
    ([*OPEN, "load.requests=0"], "load.requests=0: give a whole number from 1"),
    ([*OPEN, "load.arrival=uniform"], "load.arrival=uniform: choose one of constant, poisson, gamma"),
    ([*OPEN, "load.arrival=gamma"], "give both, as load.arrival=gamma load.burstiness=0.5"),
    ([*OPEN, "load.burstiness=2"], "give both, as load.arrival=gamma load.burstiness=0.5"),
    ([*OPEN, "load.arrival=gamma", "load.burstiness=0"], "load.burstiness=0.0: give a finite number"),
    ([*OPEN, "load.max_in_flight=0"], "load.max_in_flight=0: give a finite number, 1 or more"),
    ([*OPEN, "load.trace=t.csv"], "leave load.rate out (load.trace_speed=2 replays faster)"),
    ([*OPEN, "load.trace_speed=2"], "load.trace_speed is for load.trace=FILE"),
    ([*TRACE, "load.trace_speed=0"], "load.trace_speed=0.0: give a finite number, above 0"),
    ([*TRACE, "load.window_s=9"], "a trace is replayed as it is: leave load.window_s out"),
    ([*TRACE, "workload.output_tokens=9"], "load.trace gives the lengths already: leave workload.output_tokens out"),
    ([*TRACE, "load.arrival=constant"], "a trace is replayed as it is: leave load.arrival out"),
    (["+variant=baseline", "load.window_s=nan"], "load.window_s=nan: give a finite number"),
    (["+variant=baseline", "load.window_min_s=1e309"], "load.window_min_s=inf"),
    (["+variant=baseline", "load.window_s=abc"], "load.window_s"),
    (["+variant=baseline", "load.failed_share_max=1.5"], "at most 1"),
    (["+variant=baseline", "engine.sim_speed=0"], "engine.sim_speed=0"),
    (["+variant=baseline", "engine=vllm", "engine.api=generate"], "engine.api=generate is SGLang's"),
    (["+variant=baseline", "audit=answers"], "audit=answers: choose one of outputs"),
    (["+variant=baseline", "audit=outputs", "workload.temperature=0.5"], "drawn answers differ anyway"),
    (
        ["+variant=baseline", "engine.profile=p.yaml"],
        "true or false; the simulator's file is engine.sim_profile=p.yaml",
    ),
    (["+variant=baseline", "engine.profile=1"], "engine.profile=1: give true or false"),
    (["+variant=baseline", "engine.profile=null"], "engine.profile=None: give true or false"),
    (["+variant=baseline", "engine=vllm", "engine.profile=true"], "only an SGLang that is started here is profiled"),
    (["+variant=baseline", "engine.profile_steps=0"], "engine.profile_steps=0: give a finite number, 1 or more"),
    (["+variant=baseline", "engine.api=grpc"], "engine.api=grpc: choose one of chat, completions, generate"),
    (["+variant=baseline", "engine=external"], "add engine.url=http://host:port"),
    (["+variant=baseline", "engine=external", "engine.url=host:1"], "give scheme, host and port only"),
    (["+variant=baseline", "engine=external", "engine.url='http://u@host:1'"], "holds a user or password"),
    (["+variant=baseline", "engine.url='http://h:1'"], "add engine=external"),
    (["+variant=baseline", "engine.version='0.6'"], "write it in full"),
    (["+variant=baseline", "slo.ttft_p99_ms=0"], "slo.ttft_p99_ms=0.0: give a finite number, above 0"),
    (["+variant=baseline", "slo.tpot_p99_ms=nan"], "slo.tpot_p99_ms=nan"),
    (["+variant=baseline", "slo.ttft_p99_ms=fast"], "slo.ttft_p99_ms"),
    (["+variant=baseline", "load=search", "load.search=knee"], "load.search=knee: choose one of crossover, slo"),
    (["+variant=baseline", "load=search", "load.search=slo"], "needs an objective: add slo.ttft_p99_ms=200"),
    (["+variant=baseline", "load=search", "block=1"], "adds blocks itself: leave block out"),
    (["+variant=baseline", "load=search", "load.concurrency=4"], "begins with a ladder: give two levels"),
    (["+variant=baseline", "load=search", "load.requests=[64,64,64,64]"], "give one number as load.requests"),
    (["+variant=baseline", "load=search", "load.search_factor=1"], "load.search_factor=1.0: give a finite number"),
    (["+variant=baseline", "load=search", "load.search_blocks_max=2"], "load.search_blocks_max=2: give a finite"),
    (["+variant=baseline", "load=search", "load.search_s_max=0"], "load.search_s_max=0.0: give a finite number"),
    (["+variant=baseline", "load=search", *EXTERNAL], "and engine=external starts none"),
    (["+variant=baseline", "load.search_points_max=9"], "load.search_points_max is for a search"),
    ([*OPEN, "load.search=crossover"], "load.search=crossover looks for a concurrency, and this load is open"),
    ([*TRACE, "load.search=slo", "slo.ttft_p99_ms=9"], "chooses levels, and a trace is one"),
    (["+variant=baseline", "workload.max_tokens=0"], "workload.max_tokens=0"),
    (["+variant=baseline", "workload.source=jsonl"], "add workload.path=FILE"),
    (["+variant=baseline", "workload.source=jsonl", "workload.path=a.pkl"], "only JSON is read"),
    (["+variant=baseline", "workload.body={n: 2}"], "one choice a request"),
    (["+variant=baseline", "workload.body={stream: false}"], "only streaming"),
    (["+variant=baseline", "workload.body={max_tokens: 5}"], "workload.body.max_tokens"),
    (["+variant=baseline", "block=1.5"], "block"),
    (["+variant=baseline", "cluster.workers=0"], "cluster.workers=0"),
    (["+variant=baseline", "output.uri=results"], "output.uri=results: give the address of a folder on another file"),
    (["+variant=baseline", "output.uri='s3://'"], "as in s3://bucket/loadgen"),
    (["+variant=baseline", "output.uri='http://bucket/x'"], "output.uri=http://bucket/x: give the address"),
    (["+variant=baseline", "output.uri='s3://AK/x@b/p'"], "output.uri holds a user or password; leave it out"),
    (["+variant=baseline", "output.uri='s3://b/p?sig=a&se=1'"], "output.uri has the option sig; known are endpoint_ov"),
    (["+variant=baseline", "model.nodes=2"], "not built yet"),
    (["+variant=baseline", "++variant.args.x={a: 1}"], "variant.args.x"),
    (["+variant=baseline", "++variant.env.A-B=1"], "variant.env.A-B"),
]


@pytest.mark.parametrize(
    ("overrides", "said"), REFUSED, ids=[" ".join(case[0][1:]) or "no variant" for case in REFUSED]
)
def test_mistakes_are_one_sentence(overrides: list[str], said: str) -> None:
    """Every mistake is refused with a sentence that names it; the sentence is one line."""
    with pytest.raises(ConfigError) as caught:
        made(*overrides)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_levels_take_a_number_or_a_list() -> None:
    """A count may be one for all levels or one a level."""
    config = made("+variant=baseline", "load.concurrency=[1,16]", "load.requests=[10,32]")
    assert [(level.concurrency, level.requests) for level in levels(config.load)] == [(1, 10), (16, 32)]
    assert [
        level.requests for level in levels(made("+variant=baseline", "load.concurrency=4", "load.requests=9").load)
    ] == [9]


def test_l02_secrets_in_files_are_refused_without_being_repeated() -> None:
    """A key in a YAML file is refused like one on the command line; null and numbers are harmless."""
    with pytest.raises(ConfigError) as caught:
        refuse_secrets({"variant": {"env": {"HF_TOKEN": "hf_canary000"}}})
    assert "canary" not in str(caught.value)
    assert "variant.env.HF_TOKEN" in str(caught.value)
    refuse_secrets(as_dict(made("+variant=baseline", "engine.api_key_env=OPENAI_API_KEY")))
