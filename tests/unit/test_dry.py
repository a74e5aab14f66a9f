"""What a dry run tells of every variant on every version that matters, without a cluster, a model or an engine."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from goldens import VERSIONS, composed, spec_of

from loadgen.__main__ import variants
from loadgen.asked import Run
from loadgen.config import Config, Engine, Load
from loadgen.dry import dry_run
from server.proof import checks
from server.variant import ServerSpec, SpecError, argv, check, notes

COMPOSED: Config = composed()
RUN = Run(COMPOSED, Path("out"))


def refusal_of(spec: ServerSpec) -> str | None:
    try:
        check(spec)
    except SpecError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", variants())
def test_command_environment_and_checks_or_the_reason(name: str, version: str) -> None:
    """The line can be typed, every variable and every value that will be read back stands there; or what to change."""
    spec = replace(spec_of(name), version=version)
    if reason := refusal_of(spec):
        assert f"variant {name} on sglang {version}: " in reason
        assert "; set engine.version" in reason
        return
    text = dry_run([(RUN, spec)])
    assert shlex.join(argv(spec, host="127.0.0.1", port=30000, seed=0)) in text
    assert f"runs: sglang {version}, spec_mode " in text
    assert all(f"note: {note}" in text for note in notes(spec))
    asked = dict(checks(spec, 250))
    assert {"speculative_algorithm", "attention_backend", "max_running_requests"} <= set(asked)
    assert all(f"{flag} = {value}" in text for flag, value in asked.items())


def test_variables_stand_before_the_command() -> None:
    """As a shell takes them."""
    text = dry_run([(RUN, replace(spec_of("nccl_tuned"), version="0.5.9"))])
    assert "\n  NCCL_ALGO=Ring NCCL_CUMEM_ENABLE=1 " in text
    assert " python -m sglang.launch_server --model-path MODEL" in text
    assert "its log is held against: " in dry_run([(RUN, replace(spec_of("torch_symm_mem"), version="0.5.9"))])


def test_an_unset_version_is_said() -> None:
    """Which flags are shown where the installed version is not known, and that a start will read it."""
    text = dry_run([(RUN, spec_of("eagle_dynamic"))])
    assert "runs: sglang 0.5.14, spec_mode adaptive; engine.version is not set" in text


def test_a_running_server_has_no_command() -> None:
    """An external server is named; what it tells will still be held against the variant."""
    conf = replace(COMPOSED, engine=Engine("external"), load=Load("closed", concurrency=3))
    text = dry_run(
        [(replace(RUN, config=conf), replace(spec_of("eagle_topk1_v2"), engine="external", urls=("http://h:1",)))]
    )
    assert "a server that is running at http://h:1" in text
    assert "max_running_requests = at least 3" in text
    assert "launch_server" not in text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            {"max_running_requests": 8},
            "note: baseline: max_running_requests=8 is below the load of 250: Points above 8",
        ),
        ({"enable_torch_symm_mem": True}, "does next to nothing without variant.args.disable_custom_all_reduce=true"),
        ({"enable_nccl_nvls": True}, "has enable_nccl_nvls behind SGLang's own all-reduce"),
    ],
)
def test_what_cannot_work_out_is_said_before_the_start(args: dict[str, object], said: str) -> None:
    """Minutes before the first Point is INVALID, or measures the baseline under another name."""
    spec = replace(spec_of("baseline"), version="0.5.9")
    assert said in dry_run([(RUN, replace(spec, args={**spec.args, **args}))])
    assert "note: " not in dry_run([(RUN, spec)])
