"""Which server is meant: by GPUs, by what a real start needs, and what is refused before anything starts."""

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from loadgen.checks import parse
from loadgen.config import Config
from loadgen.engine import check_inputs, require_weights, resolve_engine, server_spec
from loadgen.errors import ConfigError
from loadgen.overrides import prepare
from server.spec import resolved_args


def made(*overrides: str) -> Config:
    with initialize_config_module("conf", version_base="1.3"):
        composed = compose("config", overrides=prepare(overrides))
    return parse(OmegaConf.to_container(composed, resolve=True), [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "gpus", "kind"),
    [
        ([], [0], "sim"),
        ([], [], "sim"),
        (["model.path=/m"], [8], "sglang"),
        (["model.path=/m", "model.tp=2"], [0, 2], "sglang"),
        (["engine=sim"], [8], "sim"),
        (["engine=sglang_cpu", "model=tiny"], [], "sglang"),
    ],
)
def test_auto_goes_by_the_gpus_of_a_node(overrides: list[str], gpus: list[int], kind: str) -> None:
    """Enough GPUs on one node means sglang, none anywhere the simulator; a choice that was made stands."""
    assert resolve_engine(made("+variant=baseline", *overrides), gpus) == kind


@pytest.mark.parametrize(
    ("overrides", "gpus", "said"),
    [
        (["+variant=baseline"], [4, 4], "needs model.tp=8 GPUs on one node, the best has 4"),
        (["+variant=baseline", "engine=sglang", "model.path=/m"], [], "the best has 0"),
        (["+variant=baseline"], [8], "add model.path=..."),
        (["+variant=eagle_topk1_v2"], [8], "add model.path=... and model.draft_path=..."),
    ],
)
def test_too_little_is_refused_with_both_numbers(overrides: list[str], gpus: list[int], said: str) -> None:
    """Never a quiet fallback to the simulator where there are GPUs."""
    with pytest.raises(ConfigError, match=said.replace("...", r"\.\.\.")):
        resolve_engine(made(*overrides), gpus)


def test_a_draft_is_needed_only_where_the_target_has_none() -> None:
    """EAGLE finds its draft in the target's own weights, EAGLE3 does not."""
    require_weights(
        made("+variant=eagle_topk1_v2", "model.path=/m", "++variant.args.speculative_algorithm=EAGLE"), "sglang"
    )
    with pytest.raises(ConfigError, match=r"model\.draft_path"):
        require_weights(made("+variant=eagle_topk1_v2", "model.path=/m"), "sglang")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["engine.sim_profile=nosuch.yaml"], "engine.sim_profile=nosuch.yaml: there is no such file"),
        (["engine.ca_file=nosuch.pem"], "engine.ca_file=nosuch.pem"),
        (["engine.client_cert_file=nosuch.pem"], "engine.client_cert_file=nosuch.pem"),
        ([f"engine.ca_file={__file__}"], "engine.ca_file=.*give certificates in PEM"),
        (["engine.api_key_env=LOADGEN_TEST_UNSET"], "LOADGEN_TEST_UNSET: that variable is not set"),
        (["engine=sim", "engine.version=0.5.14"], "the simulator speaks 0.5.9 and 0.5.23"),
    ],
)
def test_missing_inputs_are_refused_before_anything_starts(overrides: list[str], said: str) -> None:
    """Files and variables that a worker would only miss minutes later."""
    with pytest.raises(ConfigError, match=said):
        check_inputs(made("+variant=baseline", *overrides))


def test_files_are_absolute_for_processes_that_run_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name means the folder in which the command was typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").touch()
    keys = ("sim_profile", "ca_file", "client_cert_file", "client_key_file")
    spec = server_spec(made("+variant=baseline", *(f"engine.{key}=p.yaml" for key in keys)), "sim")
    named = (spec.sim_profile, spec.tls.ca_file, spec.tls.client_cert_file, spec.tls.client_key_file)
    assert set(named) == {str(tmp_path / "p.yaml")}


def test_a_variant_that_cannot_run_is_refused() -> None:
    """A tree on the overlap scheduler of 0.5.9 ends SGLang at start; it is told before."""
    with pytest.raises(ConfigError, match="eagle_topk4_v1"):
        server_spec(made("+variant=eagle_topk4_v1", "variant.env.SGLANG_ENABLE_SPEC_V2=1"), "sim")


def test_an_engines_flags_lie_between_what_all_share_and_the_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """engine.args and engine.env are every variant's, and each variant may say otherwise; a CPU takes no GPU."""
    monkeypatch.setenv("LOADGEN_REAL", "/made")
    spec = server_spec(
        made(
            "+variant=baseline", "engine=sglang_cpu", "model=tiny", "engine.cores=[0]", "++variant.args.dtype=bfloat16"
        ),
        "sglang",
    )
    flags = resolved_args(spec)
    assert (flags["device"], flags["dtype"], flags["attention_backend"]) == ("cpu", "bfloat16", None)
    assert flags["max_running_requests"] == 256
    assert (spec.python, spec.model_path) == (("/made/sglang/bin/python",), "/made/tiny")
    assert (spec.gpus, spec.cores, spec.env["SGLANG_USE_CPU_ENGINE"]) == (0, (0,), "1")


def test_a_path_in_a_file_may_begin_with_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell expands ~ in YAML, so we do."""
    monkeypatch.delenv("LOADGEN_REAL", raising=False)
    spec = server_spec(made("+variant=baseline", "engine=sglang_cpu", "model=tiny"), "sglang")
    assert spec.model_path == f"{Path.home()}/.cache/loadgen-real/tiny"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("engine.cores=[0,0]", "name each core once"),
        ("engine.cores=[-1]", "name each core once"),
        ("engine.cores=[]", "name each core once"),
        ("++engine.args.Bad=1", "engine.args.Bad"),
        ("++engine.env.a-b=x", "engine.env.a-b"),
        ("engine.env={X: 1.5}", "was read as a number"),
    ],
)
def test_an_engines_flags_are_checked_like_a_variants(override: str, said: str) -> None:
    """What cannot be meant is refused by name."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        made("+variant=baseline", override)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("++variant.args={cuda_graph_max_bs: 8, cuda_graph_max_bs_decode: 16}", "are one flag; give one of them"),
        ("engine.args={ep: 8, expert_parallel_size: 8}", "engine.args.ep and engine.args.expert_parallel_size are one"),
        ("engine.python='/a/\"python'", "No closing quotation; give its words as a list"),
        ("variant.env.A=null", "variant.env.A=null is no value for it; give one, or take it out with ~variant.env.A"),
    ],
)
def test_what_is_said_twice_or_not_at_all(override: str, said: str) -> None:
    """Of two names for one flag only the last would count."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        server_spec(made("+variant=baseline", override), "sglang")


def test_a_variant_s_flag_beats_the_engine_s_under_any_name() -> None:
    """Both graph sizes of 0.5.9 are one flag, and so are the two names of a draft's path."""
    flags = ("engine.args.cuda_graph_max_bs=8", "++variant.args.cuda_graph_max_bs_decode=16")
    draft = "++variant.args.speculative_draft_model=/draft"
    args = resolved_args(server_spec(made("+variant=eagle_topk1_v2", *flags, draft), "sglang"))
    assert args["cuda_graph_max_bs"] == 16
    assert "cuda_graph_max_bs_decode" not in args
    assert args["speculative_draft_model_path"] == "/draft"
