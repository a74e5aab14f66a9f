"""What cannot be meant is refused: exit 2, one sentence, nothing left."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from running import TINY, Ended, Run, below_us

from loadgen.__main__ import main

BASELINE = "+variant=baseline"
REFUSED = [
    ([], "no variant was chosen; add +variant=NAME with one of: baseline, "),
    (["+variant=nosuch"], "there are: baseline, "),
    ([BASELINE, "+hydra/launcher=nosuch"], "nosuch"),
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
    ([BASELINE, "output.uri='ftp://x'"], "output.uri=ftp://x: give the address of a folder on another file system"),
    ([BASELINE, "cluster.workers=5000", "engine=sim"], "cluster.workers=5000 needs 5000 CPUs, this machine has "),
    ([BASELINE, "resume=true"], "resume=true"),
    ([BASELINE, "hydra.run.dir=/proc/nowhere/x"], "hydra.run.dir"),
    (["--no-such-option"], "--help"),
    ([BASELINE, "-m", "load.concurrency=0,1"], "load.concurrency=0"),
    ([BASELINE, "-m", "block=0,x"], "block"),
    (["-m", "+variant=baseline,nosuch"], "variant/nosuch"),
]

# R19: what would run code, leave the folders of a run, or make a figure a lie; +key=, ++key= and in a sweep alike.
ATTACKS = [
    (["+variant=../../x"], "never a path"),
    (["+variant=/etc/passwd"], "never a path"),
    (["+variant=baseline\0x"], "never a path"),
    ([BASELINE, "+study=../../x"], "never a path"),
    ([BASELINE, "engine=../engine/sim"], "never a path"),
    ([BASELINE, "-m", "engine=sim,../engine/sim"], "never a path"),
    ([BASELINE, "++variant._target_=os.system"], "_target_"),
    ([BASELINE, "++load._target_=os.system"], "there is no key load._target_"),
    ([BASELINE, "+_target_=os.system"], "_target_"),
    ([BASELINE, "++variant.args._target_={_target_: os.system}"], "variant.args._target_"),
    ([BASELINE, "++hydra.launcher._target_=os.system"], "can run code"),
    ([BASELINE, "+hydra.callbacks.x._target_=os.system"], "can run code"),
    ([BASELINE, "+hydra.callbacks={x: {_target_: os.system}}"], "can run code"),
    ([BASELINE, "hydra.job_logging.handlers.x={(): os.system}"], "can run code"),
    ([BASELINE, "hydra.searchpath=[file:///tmp]"], "can run code"),
    ([BASELINE, "+engine@hydra=sim"], "can run code"),
    ([BASELINE, "tags.x=${oc.env:OPENAI_API_KEY}"], "looks like a secret"),
    ([BASELINE, "tags.x=${oc.env:HF_TOKEN,none}"], "looks like a secret"),
    ([BASELINE, "-m", "hydra/launcher=joblib"], "joblib"),
    ([BASELINE, "variant.name=../../x"], "lower-case letters, digits and underscores"),
    ([BASELINE, "variant.name=/tmp/x"], "lower-case letters, digits and underscores"),
    ([BASELINE, "variant.name=a b"], "lower-case letters, digits and underscores"),
    ([BASELINE, "++variant.args='; rm -rf x'"], "variant.args"),
    ([BASELINE, "++variant.args.x={a: 1}"], "variant.args.x"),
    ([BASELINE, "++variant.args.x=[{a: 1}]"], "variant.args.x"),
    ([BASELINE, "++variant.args.port=1"], "port"),
    ([BASELINE, "++variant.args.'a;rm'=1"], ""),
    ([BASELINE, "variant.env.LD PRELOAD=x"], ""),
    ([BASELINE, "++variant.env={'A;B': x}"], "cannot be read"),
    ([BASELINE, "engine.python=[]"], "engine.python"),
    ([BASELINE, "tags.x=!!python/object/apply:os.system"], ""),
    ([BASELINE, "tags.x=${oc.create:1}"], ""),
    ([BASELINE, "tags.x=${oc.decode:!!python/object/apply:os.system}"], ""),
    ([BASELINE, "+workload.isll=3"], "there is no key workload.isll"),
    ([BASELINE, "workload.isll=3"], "there is no key workload.isll"),
    ([BASELINE, "load.concurrency=nan"], "load.concurrency"),
    ([BASELINE, "load.concurrency=1e309"], "load.concurrency"),
    ([BASELINE, "load.concurrency=0"], "load.concurrency=0"),
    ([BASELINE, "load.concurrency=-1"], "load.concurrency=-1"),
    ([BASELINE, "load.concurrency=true"], "load.concurrency=True"),
    ([BASELINE, "load.concurrency='1; rm'"], "load.concurrency"),
    ([BASELINE, "load.window_s=nan"], "load.window_s=nan"),
    ([BASELINE, "load.window_min_s=1e309"], "load.window_min_s=inf"),
    ([BASELINE, "engine.sim_speed=nan"], "engine.sim_speed=nan"),
    ([BASELINE, "engine.sim_speed=0"], "engine.sim_speed=0"),
    ([BASELINE, "workload.temperature=-inf"], "workload.temperature=-inf"),
    ([BASELINE, "slo.ttft_p99_ms=inf"], "slo.ttft_p99_ms=inf"),
    ([BASELINE, "load.failed_share_max=nan"], "load.failed_share_max=nan"),
]
# R20: nothing is unpickled.
PICKLES = [
    *(
        ([BASELINE, "workload.source=jsonl", f"workload.path=a.{suffix}"], "only JSON is read")
        for suffix in ("pkl", "PKL", "pickle", "npy", "npz", "pt", "pth", "joblib", "bin", "safetensors", "pkl.gz")
    ),
    ([BASELINE, "workload.source=sharegpt", "workload.path=a.pkl"], "only JSON is read"),
    ([BASELINE, "--experimental-rerun=x.pickle"], "--experimental-rerun"),
    ([BASELINE, "--experimental-rerun", "x.pickle"], "--experimental-rerun"),
    ([BASELINE, "hydra/callbacks=pickle"], "can run code"),
]


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "outputs")


Refused = Callable[[list[str], str], None]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """One line that begins "loadgen: " and says what to change; nothing runs, nothing is left on disk."""
    monkeypatch.chdir(tmp_path)
    return lambda arguments, said: check(arguments, said, tmp_path, capsys)


def named(cases: Sequence[tuple[list[str], str]]) -> list[str]:
    return [" ".join(arguments[-1:]) or "none" for arguments, _ in cases]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=named(REFUSED))
def test_a_mistake_is_one_sentence_with_exit_2(arguments: list[str], said: str, refused: Refused) -> None:
    """As a person types it."""
    refused(arguments, said)


@pytest.mark.parametrize(("arguments", "said"), ATTACKS, ids=named(ATTACKS))
def test_r19_configuration_runs_no_code_and_tells_no_lies(arguments: list[str], said: str, refused: Refused) -> None:
    """As somebody types it who means harm, or lets others write what is typed."""
    refused([*arguments, "launch.dry_run=true"], said)


@pytest.mark.parametrize(("arguments", "said"), PICKLES, ids=named(PICKLES))
def test_r20_nothing_that_may_be_a_pickle_is_read(arguments: list[str], said: str, refused: Refused) -> None:
    """By its name; a file that lies about it is text that is no JSON."""
    refused([*arguments, "launch.dry_run=true"], said)


def check(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
