"""What cannot be meant is refused: exit 2, one sentence, nothing left."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import TINY, Ended, Run, below_us

from loadgen.__main__ import main

BASELINE = "+variant=baseline"
REFUSED = [
    ([], "no variant was chosen; add +variant=NAME with one of: baseline, "),
    (["+variant=nosuch"], "there are: baseline, "),
    (["+variant=../../x"], ""),
    ([BASELINE, "++variant._target_=os.system"], "_target_"),
    ([BASELINE, "++load._target_=os.system"], "there is no key load._target_"),
    ([BASELINE, "+hydra/launcher=nosuch"], "nosuch"),
    ([BASELINE, "variant.name=../../x"], "lower-case letters, digits and underscores"),
    ([BASELINE, "variant.name=/tmp/x"], "lower-case letters, digits and underscores"),
    ([BASELINE, "++variant.args='; rm -rf x'"], "variant.args"),
    ([BASELINE, "++variant.args.x={a: 1}"], "variant.args.x"),
    ([BASELINE, "++variant.args.port=1"], "port"),
    ([BASELINE, "tags.x=!!python/object/apply:os.system"], ""),
    ([BASELINE, "+workload.isll=3"], "there is no key workload.isll"),
    ([BASELINE, "workload.isll=3"], "there is no key workload.isll"),
    ([BASELINE, "load.concurrency=nan"], "load.concurrency"),
    ([BASELINE, "load.concurrency=1e309"], "load.concurrency"),
    ([BASELINE, "load.concurrency=0"], "load.concurrency=0"),
    ([BASELINE, "load.concurrency=-1"], "load.concurrency=-1"),
    ([BASELINE, "load.window_s=nan"], "load.window_s=nan"),
    ([BASELINE, "load.window_min_s=1e309"], "load.window_min_s=inf"),
    ([BASELINE, "load.requests=2", "load.concurrency=4"], "load.requests=2 is below the concurrency 4"),
    ([BASELINE, "load.concurrency=1,2"], "add -m"),
    ([BASELINE, "load=open"], "add load.rate=6"),
    ([BASELINE, "load=open", "load.trace=nosuch.jsonl"], "load.trace=nosuch.jsonl cannot be read"),
    ([BASELINE, "engine=nosuch"], "there are: auto, "),
    ([BASELINE, "engine=external"], "add engine.url=http://host:port"),
    ([BASELINE, "engine.client_key_file=k.pem"], "add engine.client_cert_file=FILE"),
    ([BASELINE, "engine.tls_verify=false", "engine.ca_file=ca.pem"], "leave one of them out"),
    ([BASELINE, "engine.tls_verify=maybe"], "engine.tls_verify"),
    ([BASELINE, "engine=sglang"], "model.path=..."),
    (["+variant=eagle_topk1_v2", "engine=sglang", "model.path=/m"], "model.draft_path=..."),
    ([BASELINE, "workload.source=jsonl", "workload.path=nosuch.jsonl"], "nosuch.jsonl"),
    ([BASELINE, "workload.source=jsonl", "workload.path=a.pkl"], "only JSON is read"),
    ([BASELINE, "workload.source=jsonl", "workload.path=a.npy"], "only JSON is read"),
    ([BASELINE, "workload.source=jsonl", "workload.path=a.pt"], "only JSON is read"),
    ([BASELINE, "output.uri='s3://x'"], "not built yet"),
    ([BASELINE, "cluster.workers=5000", "engine=sim"], "cluster.workers=5000 needs 5000 CPUs, this machine has "),
    ([BASELINE, "resume=true"], "resume=true"),
    ([BASELINE, "hydra.run.dir=/proc/nowhere/x"], "hydra.run.dir"),
    ([BASELINE, "--experimental-rerun=x.pickle"], "--experimental-rerun"),
    (["--no-such-option"], "--help"),
    ([BASELINE, "-m", "load.concurrency=0,1"], "load.concurrency=0"),
    ([BASELINE, "-m", "block=0,x"], "block"),
    (["-m", "+variant=baseline,nosuch"], "variant/nosuch"),
]


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "outputs")


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[" ".join(case[0][-1:]) or "none" for case in REFUSED])
def test_a_mistake_is_one_sentence_with_exit_2(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line that begins "loadgen: " and says what to change; nothing runs, nothing is left on disk."""
    monkeypatch.chdir(tmp_path)
    before = set(below_us())
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("loadgen: ")
    assert told.err.count("\n") == 1
    assert told.err.endswith("\n")
    assert said in told.err
    assert "Traceback" not in told.err
    assert set(below_us()) <= before
    assert files_below(tmp_path) == []


def test_a_mistake_as_a_shell_sees_it(cli: Callable[..., Ended]) -> None:
    """The same through a real process: code 2, one line on stderr, nothing on stdout."""
    ended = cli(BASELINE, "+load.concurency=8")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "loadgen: there is no key load.concurency; did you mean load.concurrency?\n"
    assert files_below(ended.folder) == []


@pytest.mark.parametrize("name", ["server", "conf"])
def test_a_folder_that_hides_ours_is_refused(name: str, cli: Callable[..., Ended], tmp_path: Path) -> None:
    """A package of the working folder with the name of one of ours: exit 2, a sentence that names it."""
    hiding = tmp_path / "work" / name
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").touch()
    ended = cli(BASELINE, "launch.dry_run=true", folder=tmp_path / "work")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"loadgen: {name} was found at {hiding}")
    assert ended.err.count("\n") == 1


def test_a_folder_with_results_is_refused(cli: Callable[..., Ended], tmp_path: Path) -> None:
    """A chosen folder that holds a ledger is not written to, and says how to go on."""
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "ledger.jsonl").write_text("{}\n")
    ended = cli(BASELINE, f"hydra.run.dir={taken}", *TINY)
    assert ended.code == 2
    assert "already holds results" in ended.err
    assert ended.err.count("\n") == 1
    assert files_below(taken) == ["ledger.jsonl"]


@pytest.mark.parametrize("arguments", [["--help"], ["--cfg", "job", BASELINE], [BASELINE, "launch.dry_run=true"]])
def test_questions_start_and_leave_nothing(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help, the composed configuration and a dry run: exit 0, an answer on stdout, no file."""
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert told.out.strip()
    assert told.err == ""
    assert files_below(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_r05_results_that_stdout_does_not_take(start: Callable[..., Run]) -> None:
    """A disk that became full under `> FILE` is storage, exit 5 in one sentence, and not the interpreter's own end."""
    full = ("sh", "-c", 'exec "$0" -m loadgen "$@" > /dev/full', sys.executable)
    ended = start(BASELINE, "launch.dry_run=true", program=full).end()
    assert ended.code == 5
    assert ended.err == (
        "loadgen: cannot write stdout: No space left on device; make room; what was measured is kept\n"
    )


def test_a_grid_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of one workload read its prompts once and say once what is to be known of them."""
    grid = ["-m", "+variant=baseline,baseline_cache", "block=0,1", "workload=random,diverse", "launch.dry_run=true"]
    assert main(grid) == 0
    assert capsys.readouterr().err.count("warning: prompts of random words") == 1
