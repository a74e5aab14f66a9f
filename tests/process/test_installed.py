"""The engine's version is read from the interpreter that will run it, before a server is started."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import eventually, is_gone, pids_in

from server import installed
from server.installed import settled
from server.preflight import Place, look
from server.spec import ServerSpec, SpecError


def made(folder: Path, version: str | None = None) -> tuple[str, ...]:
    """A command that starts this interpreter with an engine of that version installed; none without one."""
    site = folder / f"site-{version}"
    site.mkdir()
    if version:
        info = site / f"sglang-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    return ("env", f"PYTHONPATH={site}", sys.executable)


def spec(python: tuple[str, ...], version: str | None = None) -> ServerSpec:
    return ServerSpec("sglang", "baseline", model_path="/m", python=python, version=version)


def test_the_installed_version_is_the_server_s(tmp_path: Path) -> None:
    """Several interpreters, several versions; a patch of the version that was asked for is that version."""
    for version in ("0.5.9", "0.5.23"):
        assert settled(spec(made(tmp_path, version)), os.environ).version == version
    assert settled(spec(made(tmp_path, "0.5.12.post1"), "0.5.12"), os.environ).version == "0.5.12.post1"


def test_another_version_than_asked_is_refused(tmp_path: Path) -> None:
    """Both versions and the interpreter are named, and what to set."""
    with pytest.raises(SpecError) as caught:
        settled(spec(made(tmp_path, "0.5.23"), "0.5.9"), os.environ)
    assert "engine.version=0.5.9 was asked for, but env PYTHONPATH=" in str(caught.value)
    assert "has sglang 0.5.23; set engine.version=0.5.23 or leave it out" in str(caught.value)
    with pytest.raises(SpecError, match=r"was asked for, but .* has sglang 0\.1\.dev11"):
        settled(spec(made(tmp_path, "0.1.dev11"), "0.5.9"), os.environ)


def test_a_variant_that_the_installed_version_lacks_is_refused_by_it(tmp_path: Path) -> None:
    """What could not be known before the interpreter was asked is still known before a server is started."""
    late = ServerSpec("sglang", "eagle_dynamic", {"speculative_adaptive": True}, since="0.5.14")
    with pytest.raises(SpecError, match="speculative_adaptive needs SGLang 0"):
        settled(replace(late, python=made(tmp_path, "0.5.12")), os.environ)


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (("/no/such/python",), "/no/such/python cannot be run (No such file or directory); install it there"),
        (("env", "PYTHONPATH=", sys.executable), "engine sglang is not installed in env PYTHONPATH= "),
        (("sh", "-c", "echo no container daemon >&2; exit 125"), "ended with 125 when asked for sglang: no container"),
        (("true",), "ended with 0 when asked for sglang: it said nothing"),
    ],
)
def test_an_interpreter_without_the_engine_is_named(python: tuple[str, ...], said: str) -> None:
    """What is wrong with it, and the keys that name another one."""
    with pytest.raises(SpecError) as caught:
        settled(spec(python), os.environ)
    assert said in str(caught.value)
    assert "variant.python or engine.python" in str(caught.value)


def test_an_interpreter_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk that hangs ends the start, not the run; what a script had started meanwhile goes with it."""
    monkeypatch.setattr(installed, "READ_S_MAX", 0.5)
    begun_s = time.monotonic()
    with pytest.raises(SpecError, match=r"did not tell what it has installed within 0\.5 s"):
        settled(spec(("sh", "-c", f"sleep 60 & echo [$!] > {tmp_path}/pids; wait")), os.environ)
    assert time.monotonic() - begun_s < 20
    eventually(lambda: all(map(is_gone, pids_in(tmp_path / "pids"))))


def test_whoever_asks_leaves_no_interpreter_behind(tmp_path: Path) -> None:
    """Ctrl-C kills the actor that looks at the machine; an interpreter that hung lived on."""
    pids = tmp_path / "pids"
    words = ("sh", "-c", f"sleep 60 & echo [$$, $!] > {pids}.part; mv {pids}.part {pids}; wait")
    ask = f"installed.version(spec.ServerSpec('sglang', 'baseline', python={words!r}), os.environ)"
    program = f"import os; from server import installed, spec; {ask}"
    asking = subprocess.Popen([sys.executable, "-c", program])
    eventually(pids.exists)
    asking.kill()
    asking.wait()
    eventually(lambda: all(map(is_gone, pids_in(pids))))


def test_the_variant_s_variables_are_the_interpreter_s(tmp_path: Path) -> None:
    """And not those of what watches it: a variant may well name a library that only its engine can load."""
    site = made(tmp_path, "0.5.14")[1].removeprefix("PYTHONPATH=")
    variables = {"PYTHONPATH": site, "LD_PRELOAD": "/no/such/library.so", "PADDING": "x" * 70_000}
    asked = replace(spec((sys.executable,)), env=variables)
    assert settled(asked, os.environ).version == "0.5.14"


def test_what_an_interpreter_leaves_running_is_ended(tmp_path: Path) -> None:
    """A wrapper that starts a daemon beside the interpreter held the pipe, and so the answer, for a minute."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nsleep 60 &\necho [$!] > {tmp_path}/pids\nexec {" ".join(made(tmp_path, "0.5.14"))} "$@"\n'
    )
    python.chmod(0o755)
    assert settled(spec((str(python),)), os.environ).version == "0.5.14"
    eventually(lambda: all(map(is_gone, pids_in(tmp_path / "pids"))))


def test_interpreters_that_do_not_answer_are_asked_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid of several hung interpreters is refused in the time of one: the look itself is waited for so long."""
    monkeypatch.setattr(installed, "READ_S_MAX", 1.0)
    specs = [spec(("sh", "-c", "sleep 60", str(number))) for number in range(20)]
    begun_s = time.monotonic()
    rows = look(specs, Place(tmp_path, "127.0.0.1", (), 1, 1, os.environ))
    assert time.monotonic() - begun_s < 15
    assert sum(row.state == "refused" and "within 1 s" in row.advice for row in rows) == 20


def test_what_an_interpreter_prints_besides_is_not_its_version(tmp_path: Path) -> None:
    """Containers greet."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "== welcome, version 9 =="\nexec {" ".join(made(tmp_path, "0.5.14"))} "$@"\n')
    python.chmod(0o755)
    assert settled(spec((str(python),)), os.environ).version == "0.5.14"


def test_the_simulator_is_not_asked() -> None:
    """It is ours, and speaks the version that it is told."""
    simulated = ServerSpec("sim", "baseline", python=("/no/such/python",))
    assert settled(simulated, os.environ) == simulated
