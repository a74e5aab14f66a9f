"""`--cfg job` and dry runs as a user types them: every variant, and what is refused with a reason."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Ended

from loadgen.__main__ import main, variants

DRY = ("engine=sglang", "launch.dry_run=true")
ANSWERED_S_MAX = 30.0  # 10 s are promised on a quiet machine


ALL = tuple(variants())


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (("baseline", "eagle_topk4_v1", "eagle_dynamic", "nccl_tuned"), "0.5.23"),
        *(pytest.param(ALL, version, marks=pytest.mark.slow) for version in ("0.5.14", "0.5.20", "0.5.23")),
    ],
)
def test_variants_in_one_grid(names: tuple[str, ...], version: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its command; none of them needs a cluster, a model or an engine."""
    assert main(["-m", f"+variant={','.join(names)}", *DRY, f"engine.version={version}"]) == 0
    told = capsys.readouterr()
    assert told.out.count("-m sglang.launch_server") == len(names)
    assert told.out.count("checked in /server_info: ") == len(names)


def test_the_configuration_of_a_variant_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """--cfg job tells all that would run, also of a variant that the default version does not have."""
    assert main(["--cfg", "job", "+variant=eagle_dynamic"]) == 0
    assert "since: 0.5.14" in capsys.readouterr().out


def test_a_dry_run_is_quick_and_alone(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """The old name on a new version: its command, its nearest, no warning, no file."""
    begun_s = time.monotonic()
    ended = cli("+variant=eagle_topk4_v1", *DRY, "engine.version=0.5.23", "engine.python=/no/such/python")
    assert time.monotonic() - begun_s < ANSWERED_S_MAX
    assert (ended.code, ended.err) == (0, "")
    assert "/no/such/python -m sglang.launch_server" in ended.out
    assert "note: eagle_topk4_v1 on sglang 0.5.23 runs as tree_sync, its nearest: the v1 worker ended" in ended.out
    assert "spec_mode tree_sync" in ended.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["+variant=eagle_dynamic", "engine.version=0.5.12"], "speculative_adaptive needs SGLang 0.5.14"),
        (["+variant=no_fusion", "engine.version=0.5.9"], "has no switch against it"),
        (["+variant=eagle_tree_overlap", "engine.version=0.5.12"], "one of 0.5.13 and later; set engine.version"),
        (["+variant=expert_parallel", "model=llama31_8b"], "the model llama31_8b has none (model.moe=false)"),
        (["+variant=baseline", "engine.python=[]"], "as in engine.python=[docker,run,"),
        (["+variant=baseline", "variant.since=soon"], "variant.since=soon: write it in full"),
        (["+variant=eagle_dynamic", "variant.args.speculative_adaptive_config=no.json"], "there is no such file"),
    ],
)
def test_what_cannot_run_is_exit_2_with_the_reason(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, before anything starts."""
    assert main([*arguments, *DRY]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1
