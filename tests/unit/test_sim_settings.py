"""Flags, environment and faults of the simulator: what they resolve to, and what is refused."""

from pathlib import Path

import pytest

import server.sim
from server.sim import faults, flags, profile
from server.sim.settings import Settings, SettingsError, resolve, steps_at

SHIPPED = profile.parse((Path(server.sim.__file__).parent / "profile.yaml").read_text())
EAGLE = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 "
V2 = {"SGLANG_ENABLE_SPEC_V2": "True"}
NO_V2 = {"SGLANG_ENABLE_SPEC_V2": "0"}
FUSION = " --enable-flashinfer-allreduce-fusion"
SYNC = " --disable-overlap-schedule"


def resolved(
    argv: str, environ: dict[str, str] | None = None, version: str = "0.5.9", fault: str | None = None
) -> Settings:
    given = flags.build_parser(version).parse_args([*argv.split(), "--sim-version", version])
    return resolve(given, environ or {}, SHIPPED, faults.parse([fault] if fault else []))


@pytest.mark.parametrize(
    ("version", "argv", "environ", "curve", "measured", "sync"),
    [
        ("0.5.9", "", {}, "baseline", True, False),
        ("0.5.9", "", V2, "baseline", True, False),
        ("0.5.9", FUSION, {}, "baseline", False, False),
        ("0.5.9", EAGLE + "--speculative-eagle-topk 4", {}, "tree_sync", True, True),
        ("0.5.9", EAGLE + "--speculative-eagle-topk 4", NO_V2, "tree_sync", True, True),
        ("0.5.9", EAGLE + "--speculative-eagle-topk 2", NO_V2, "tree_sync", False, True),
        ("0.5.9", EAGLE + "--speculative-eagle-topk 4" + FUSION, NO_V2, "tree_sync_fusion", False, True),
        ("0.5.9", EAGLE + "--speculative-eagle-topk 1", V2, "chain_overlap", True, False),
        ("0.5.9", EAGLE + "--speculative-eagle-topk 1" + SYNC, V2, "chain_overlap", True, False),
        ("0.5.9", EAGLE + "--speculative-eagle-topk 1", {}, "chain_sync", False, True),
        ("0.5.9", "--speculative-algorithm EAGLE3", V2, "chain_overlap", True, False),
        ("0.5.9", "--disable-custom-all-reduce", {}, "baseline", False, False),
        ("0.5.9", "--moe-a2a-backend deepep", {}, "baseline", False, False),
        ("0.5.9", "--speculative-algorithm NGRAM", V2, "baseline", False, True),
        ("0.5.23", "--speculative-algorithm NGRAM", {}, "baseline", False, False),
        ("0.5.23", EAGLE + "--speculative-eagle-topk 4", V2, "tree_sync", False, False),
        ("0.5.23", EAGLE + "--speculative-eagle-topk 4" + SYNC, {}, "tree_sync", False, True),
        ("0.5.23", EAGLE + "--speculative-eagle-topk 1", {}, "chain_overlap", False, False),
        ("0.5.23", EAGLE + "--speculative-eagle-topk 1" + SYNC, {}, "chain_sync", False, True),
    ],
)
def test_curve(version: str, argv: str, environ: dict[str, str], curve: str, measured: bool, sync: bool) -> None:
    """The curve and the resolved overlap follow from flags and environment as each version reads them."""
    settings = resolved(argv, environ, version)
    assert (settings.curve, settings.curve_measured) == (curve, measured)
    assert settings.flags["disable_overlap_schedule"] is sync


@pytest.mark.parametrize(
    ("argv", "cap"),
    [("", 4096), (EAGLE, 48), (EAGLE + "--max-running-requests 256", 256), ("--max-running-requests 7", 7)],
)
def test_running_cap(argv: str, cap: int) -> None:
    """Speculation caps running requests at 48 unless told otherwise."""
    assert resolved(argv).flags["max_running_requests"] == cap


def test_tree_with_spec_v2_is_refused() -> None:
    """0.5.9 refuses a tree with the overlap scheduler in its own words."""
    with pytest.raises(SettingsError, match="Spec v2 currently only supports topk = 1"):
        resolved(EAGLE + "--speculative-eagle-topk 4", V2)


def test_chain_forces_its_draft_tokens() -> None:
    """With topk 1 the draft tokens become steps + 1, and the log says so."""
    settings = resolved(EAGLE + "--speculative-eagle-topk 1 --speculative-num-draft-tokens 16")
    assert settings.flags["speculative_num_draft_tokens"] == 4
    assert any("adjusted" in note for note in settings.notes)


def test_fusion_reads_back_under_the_version_s_name() -> None:
    """Later versions show the fusion's backend and reset the old flag."""
    new = resolved(FUSION, version="0.5.23").flags
    assert resolved(FUSION).flags["enable_flashinfer_allreduce_fusion"] is True
    assert (new["enable_flashinfer_allreduce_fusion"], new["flashinfer_allreduce_fusion_backend"]) == (False, "auto")


@pytest.mark.parametrize("asked", ["", EAGLE])
def test_other_variant_shows_and_runs_other_speculation(asked: str) -> None:
    """The fault turns speculation on where it was off and off where it was on."""
    settings = resolved(asked, fault="other_variant")
    assert settings.speculates is (not asked)
    assert (settings.flags["speculative_algorithm"] is None) is bool(asked)


def test_adaptive_steps_follow_the_padded_batch(tmp_path: Path) -> None:
    """A threshold of 32 already switches speculation off at 25, since the batch is padded to the graph grid."""
    file = tmp_path / "adaptive.json"
    file.write_text('{"1": {"candidate_steps": [3]}, "32": {"candidate_steps": [0]}}')
    argv = EAGLE + f"--speculative-eagle-topk 1 --speculative-adaptive --speculative-adaptive-config {file}"
    settings = resolved(argv, version="0.5.23")
    assert [steps_at(settings, batch) for batch in (1, 24, 25, 250)] == [3, 3, 0, 0]


@pytest.mark.parametrize(
    ("version", "argv"),
    [
        ("0.5.9", "--no-such-flag"),
        ("0.5.9", "--max-running 5"),
        ("0.5.9", "--speculative-adaptive"),
        ("0.5.23", "--cuda-graph-max-bs 256"),
        ("0.5.9", "--sim-speed 0"),
        ("0.5.9", "--sim-speed nan"),
        ("0.5.9", "--sim-noise -1"),
        ("0.5.9", "--port x"),
    ],
)
def test_flags_that_exit_2(version: str, argv: str) -> None:
    """An unknown, abbreviated, other version's or senseless flag exits 2 as argparse does."""
    with pytest.raises(SystemExit) as end:
        flags.build_parser(version).parse_args(argv.split())
    assert end.value.code == 2


def test_noise_varies_launches_and_only_by_seed() -> None:
    """The same seed gives the same speed, another seed another, none with noise 0."""
    one, same, other = (resolved(f"--random-seed {seed}").launch_factor for seed in (1, 1, 2))
    assert one == same != other
    assert abs(one - 1) < 0.02
    assert resolved("--sim-noise 0").launch_factor == 1.0


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("die_after", (5, 0)),
        ("kill_scheduler:0:30", (0, 30)),
        ("hang:0:30", (0, 30)),
        ("die-after:0.5", (0.5, 0)),
        ("stall:0.2:1", (0.2, 1)),
        ("503:0.25", (0.25,)),
        ("huge_event:1:2", (1, 2)),
        ("orphan", ()),
    ],
)
def test_faults_are_read(text: str, numbers: tuple[float, ...]) -> None:
    """Dashes and underscores are one, and missing numbers have defaults."""
    (fault,) = faults.parse([text]).values()
    assert fault.numbers == numbers


@pytest.mark.parametrize("text", ["explode", "stall:5:1", "503:2", "hang:x", "orphan:1", "die_after:-1", ""])
def test_senseless_faults_are_refused(text: str) -> None:
    """An unknown kind or an impossible number is refused."""
    with pytest.raises(faults.FaultError):
        faults.parse([text])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_a_share_is_exact(share: float) -> None:
    """Of 1000 requests exactly the share is struck."""
    (fault,) = faults.parse([f"503:{share}"]).values()
    assert sum(faults.hits(fault, ordinal) for ordinal in range(1000)) == round(1000 * share)
