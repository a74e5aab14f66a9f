"""What breaks other programs built on Hydra: commas, quoting, paths, sweeps, packaging (cases J01 to J11; J03 is
tests/ray/test_grid.py's).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from running import STARTED, TINY, Ended, Run, eventually, lines_of

from loadgen.__main__ import compose, main, variants
from loadgen.overrides import prepare

ROOT = Path(__file__).parent.parent.parent
BUILD_S_MAX = 120.0
SAME_SECOND_TRIES = 3
EARLY_IN_A_SECOND_S = 1.2  # soon, and most of that second is still to come
BASELINE = "+variant=baseline"
DRY = "launch.dry_run=true"
HCA = "mlx5_0:1,mlx5_1:1"

Told = tuple[int, str, str]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """The command in this process, for what starts nothing: code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Told:
        code = main(list(arguments))
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def jobs(out: str) -> int:
    """How many runs a dry run shows."""
    return out.count("server.sim")


def test_j01_a_comma_in_a_value(say: Callable[..., Told]) -> None:
    """Plain it is refused with the quoted form; under -m it is two jobs; quoted it is one text in the environment."""
    plain, several, quoted = f"variant.env.NCCL_IB_HCA={HCA}", "-m", f"variant.env.NCCL_IB_HCA='{HCA}'"
    code, _, err = say(BASELINE, DRY, plain)
    assert (code, err.count("\n")) == (2, 1)
    assert f"\"variant.env.NCCL_IB_HCA='{HCA}'\"" in err
    assert "-m" in err
    code, out, _ = say(several, BASELINE, DRY, plain)
    assert (code, jobs(out)) == (0, 2)
    code, out, _ = say(several, BASELINE, DRY, quoted)
    assert (code, jobs(out)) == (0, 1)
    assert f"NCCL_IB_HCA={HCA} " in out


def test_j02_a_variant_with_and_without_plus(say: Callable[..., Told]) -> None:
    """Both forms work, also in a sweep; an unknown one lists those there are."""
    for arguments, runs in ((["variant=baseline"], 1), ([BASELINE], 1), (["-m", "variant=baseline,eagle_topk1_v2"], 2)):
        code, out, _ = say(*arguments, DRY)
        assert (code, jobs(out)) == (0, runs)
    code, _, err = say("variant=nosuch")
    assert code == 2
    assert ", ".join(variants()) in err


# Says that its modules are loaded, and begins when it is told the time.
AT_THE_SAME_TIME = """
import pathlib, sys, time
from loadgen.__main__ import main
ready, due = map(pathlib.Path, sys.argv[1:3])
ready.touch()
while not due.exists() or time.time() < float(due.read_text() or "inf"): time.sleep(0.001)
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture(scope="module")
def two_sweeps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Ended]]:
    """Two sweeps over two models, begun in the same second in one folder, with paths relative to it."""
    load = ("-m", BASELINE, *TINY, "model.name=Qwen/A,Qwen/B", f"tags.note={'x' * 300}", "hydra.job.chdir=true")
    for _ in range(SAME_SECOND_TRIES):
        folder = tmp_path_factory.mktemp("sweeps") / "work"
        folder.mkdir()
        (folder / "p.jsonl").write_text('{"id": "one", "prompt": "What is a tide?"}\n{"id": "two", "prompt": "Why?"}\n')
        program, due = (sys.executable, "-c", AT_THE_SAME_TIME), folder.parent / "due"
        ready = [folder.parent / f"ready_{name}" for name in "ab"]
        texts = ("workload.source=jsonl", "workload.path=./p.jsonl")
        runs = [
            Run((str(mark), str(due), *load, *texts, f"tags.run={name}"), folder, {}, program)
            for name, mark in zip("ab", ready, strict=True)
        ]
        STARTED.extend(runs)
        eventually(lambda: all(mark.exists() for mark in ready), BUILD_S_MAX, "both loaded")  # noqa: B023
        due.write_text(str(int(time.time()) + EARLY_IN_A_SECOND_S))
        ended = [run.end() for run in runs]
        if len({path.name.removesuffix("-2") for path in folder.glob("outputs/*/*")}) == 1:
            return folder, ended
    raise AssertionError("the two never began in one second")


def points_of(root: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(root.rglob("point.json"))]


@pytest.mark.slow  # two commands at once with two servers each, here and in the other two that look at what they left
def test_j04_two_sweeps_in_one_second(two_sweeps: tuple[Path, list[Ended]]) -> None:
    """Each gets a folder of its own; all four results are on disk, none mixed."""
    folder, ended = two_sweeps
    assert {one.code for one in ended} <= {0, 6}, ended
    roots = sorted(folder.glob("outputs/*/*"))
    assert len(roots) == 2
    for root in roots:
        assert sorted(point["model"] for point in points_of(root)) == ["Qwen/A", "Qwen/B"]
        assert len({point["tags"]["run"] for point in points_of(root)}) == 1
        assert len(lines_of(root / "ledger.jsonl")) == 2
    assert {points_of(root)[0]["tags"]["run"] for root in roots} == {"a", "b"}


@pytest.mark.parametrize(
    "given",
    [
        "model.path=/data/a=1/m",
        "tags.x=#1",
        'tags.x=a{"a":1}',
        "model.name=(beta)",
        "workload.path=a,b",
        "tags.x=a'b",
    ],
)
def test_j05_what_the_grammar_refuses_is_shown_quoted(given: str, say: Callable[..., Told]) -> None:
    """The message repeats the override with its value in quotes; what it shows is accepted."""
    key, _, value = given.partition("=")
    code, _, err = say(BASELINE, DRY, given)
    assert (code, err.count("\n")) == (2, 1)
    quoted = "{}='{}'".format(key, value.replace("'", "\\'"))
    assert f'"{quoted}"' in err
    code, _, err = say(BASELINE, quoted, "--cfg", "job")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("given", ["tags.x=50%", "model.path=org/m@main", "tags.x=a b", "tags.x=1e3", "tags.x='1e3'"])
def test_j05_what_passes_stays_as_it_is(given: str, say: Callable[..., Told]) -> None:
    """Texts reach the configuration unchanged."""
    code, out, _ = say(BASELINE, given, "--cfg", "job")
    assert code == 0
    assert given.partition("=")[2].strip("'") in out


@pytest.mark.slow
def test_j06_override_text_is_no_folder_name(two_sweeps: tuple[Path, list[Ended]]) -> None:
    """Slashes and 300 characters in values: both runs measured, their folders one level deep, values exact."""
    folder, _ = two_sweeps
    for root in folder.glob("outputs/*/*"):
        found = [path.relative_to(root).parts for path in sorted(root.rglob("point.json"))]
        assert found == [("0", "c2", "point.json"), ("1", "c2", "point.json")]
        assert {point["tags"]["note"] for point in points_of(root)} == {"x" * 300}
    names = duckdb.sql(f"select distinct model from '{folder}/outputs/**/requests.parquet' order by 1").fetchall()
    assert names == [("Qwen/A",), ("Qwen/B",)]


OUTSIDE = """
import loadgen, server, conf
from loadgen.__main__ import main
print(loadgen.__file__, server.__file__, conf.__file__, flush=True)
for asked in ("--help", "--cfg job +variant=baseline", "+variant=eagle_dynamic launch.dry_run=true"):
    assert main(asked.split()) == 0
"""


@pytest.mark.slow  # a build with an environment of its own, for what only a change of the packaging breaks
def test_j07_the_wheel_brings_its_configuration(tmp_path: Path) -> None:
    """Installed from a wheel and run outside the checkout: help, composition, and a variant of the user's own."""
    source, place = tmp_path / "source", tmp_path / "site"
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in files.stdout.splitlines():
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    whole: dict[str, Any] = {"check": True, "capture_output": True, "timeout": BUILD_S_MAX}
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", str(place), str(source)]
    subprocess.run(install, **whole)
    own = tmp_path / "my" / "variant"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("name: mine\nargs: {max_running_requests: 77}\nenv: {}\npython: null\n")

    def outside(*arguments: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(place)}
        told = subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=env, text=True, **whole)
        return str(told.stdout)

    where, _, told = outside("-c", OUTSIDE).partition("\n")
    assert all(str(place) in path for path in where.split())
    assert "variant" in told
    assert "max_tokens: 512" in told
    beside = f"{place}/conf/variant/eagle_dynamic.json"
    assert Path(beside).is_file()
    assert f"--speculative-adaptive-config {beside}" in told
    assert "--max-running-requests 77" in outside("-m", "loadgen", "--config-dir", "my", "+variant=mine", DRY)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("+rat=4", "there is no key rat"),
        ("+load.concurency=8", "did you mean load.concurrency?"),
        ("++serv.port=1", "there is no key serv"),
        ("+hydra.ouput_subdir=null", "ouput_subdir"),
    ],
)
def test_j09_a_typo_behind_a_plus(given: str, said: str, say: Callable[..., Told]) -> None:
    """A key that nothing reads is refused, with its nearest relative."""
    code, _, err = say(BASELINE, DRY, given)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_j10_a_sweep_over_variants_with_different_flags(say: Callable[..., Told]) -> None:
    """With ++ a flag is set in each variant; without it the sentence says so."""
    sim = (DRY, "engine=sim")
    code, out, _ = say("-m", "+variant=baseline,eagle_topk1_v2", "++variant.args.max_queued_requests=3", *sim)
    assert (code, out.count("--max-queued-requests 3")) == (0, 2)
    code, _, err = say("-m", "+variant=baseline,eagle_topk1_v2", "variant.args.speculative_num_steps=2", *sim)
    assert (code, err.count("\n")) == (2, 1)
    assert "write ++variant.args.speculative_num_steps=..." in err


@pytest.mark.slow
def test_j11_relative_paths_mean_where_the_command_was_typed(two_sweeps: tuple[Path, list[Ended]]) -> None:
    """With hydra.job.chdir=true too the prompts are read there and the results lie there."""
    folder, _ = two_sweeps
    assert sorted(path.name for path in folder.iterdir()) == ["outputs", "p.jsonl"]
    seen = duckdb.sql(f"select prompt_id from '{folder}/outputs/**/requests.parquet'").fetchall()
    assert {prompt_id.partition("#")[0] for (prompt_id,) in seen} == {"one", "two"}


@pytest.mark.parametrize("chdir", ["true", "false"])
def test_j11_a_chosen_folder_is_relative_to_it_too(chdir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """hydra.run.dir=./res means the same place whether or not Hydra changes folders."""
    monkeypatch.chdir(tmp_path)
    made = compose(prepare([BASELINE, "hydra.run.dir=./res", f"hydra.job.chdir={chdir}"]))
    assert (made.root, made.runs[0].folder) == (tmp_path / "res", tmp_path / "res")
