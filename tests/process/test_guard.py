"""The guard: whatever happens to its actor or its server, nothing of the server stays."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import FAKE_SERVER, eventually, is_gone, pids_in

from server import guard

# Holds the write end of the guard's pipe as an actor does, and can be killed as one.
HOLDER = """
import os, subprocess, sys, time
read_end, write_end = os.pipe()
subprocess.run([sys.executable, "-I", "-S", sys.argv[1], str(read_end), *sys.argv[2:]], pass_fds=(read_end,),
               start_new_session=True)
os.close(read_end)
for line in sys.stdin:
    os.write(write_end, line[:1].encode())
"""


class Holder:
    """A process that launched a guard, and what the guard wrote down."""

    def __init__(self, folder: Path, fake: dict[str, object], **popen: object) -> None:
        self.state, self.log, self.pids = folder / "state", folder / "log", folder / "pids"
        self.state.mkdir()
        words = [sys.executable, "-c", HOLDER, guard.__file__, str(self.state), str(self.log), ""]
        environment = {**os.environ, "FAKE": json.dumps({"bind": False, "pids": str(self.pids), **fake})}
        program = [sys.executable, str(FAKE_SERVER)]
        self.process = subprocess.Popen([*words, *program], stdin=subprocess.PIPE, env=environment, text=True, **popen)

    def order(self, letter: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(letter + "\n")
        self.process.stdin.flush()

    def told(self, name: str) -> dict[str, object]:
        return dict(json.loads(eventually(lambda: (self.state / name).exists() and (self.state / name).read_text())))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize(
    "fake",
    [
        {},
        {"ignore_term": True},
        {"grandchild": True, "ignore_term": True},
        {"escaped": True, "ignore_term": True},
        {"grandchild": True, "escaped": True},
    ],
)
def test_r08_nothing_survives_the_death_of_the_holder(tmp_path: Path, fake: dict[str, object]) -> None:
    """Holder killed with -9: the server, orphans and one in its own session go, then the guard and its files."""
    holder = Holder(tmp_path, fake)
    facts = holder.told("server.json")
    pids = pids_in(holder.pids)
    assert len(pids) == 1 + len(set(fake) - {"ignore_term"})
    holder.end()
    eventually(lambda: all(is_gone(pid) for pid in [*pids, facts["guard"]]), limit_s=15)
    assert not holder.state.exists()


def test_is_no_child_of_the_holder(tmp_path: Path) -> None:
    """The guard is double-forked, so that Ray does not find it among an actor's children."""
    holder = Holder(tmp_path, {})
    facts = holder.told("server.json")
    assert guard.stat_fields(facts["guard"])[1] != str(holder.process.pid)
    assert set(guard.descendants(facts["guard"])) == {facts["pid"]}
    holder.end()
    eventually(lambda: is_gone(facts["guard"]))


@pytest.mark.parametrize("status", [0, 3])
def test_reports_the_exit_status(tmp_path: Path, status: int) -> None:
    """A server that ends leaves its exit status in a file, and its leftover children are killed."""
    holder = Holder(tmp_path, {"exit": status, "grandchild": True})
    pids = pids_in(holder.pids)
    eventually(lambda: "left" in holder.told("exit.json"))
    assert holder.told("exit.json") == {"exit": status, "left": []}
    assert all(is_gone(pid) for pid in pids)
    holder.end()
    eventually(lambda: not holder.state.exists())


def test_reports_the_signal_that_killed(tmp_path: Path) -> None:
    """A server that was killed has a negative status."""
    holder = Holder(tmp_path, {})
    os.kill(int(holder.told("server.json")["pid"]), signal.SIGKILL)
    assert holder.told("exit.json")["exit"] == -signal.SIGKILL
    holder.end()


def test_obeys_orders(tmp_path: Path) -> None:
    """TERM is patient with a server that ignores it; KILL is not."""
    holder = Holder(tmp_path, {"ignore_term": True})
    pids = pids_in(holder.pids)
    holder.order("T")
    holder.order("K")
    assert holder.told("exit.json")["exit"] == -signal.SIGKILL
    assert all(is_gone(pid) for pid in pids)
    holder.end()


def test_i02_a_dead_parent_that_nobody_collects(tmp_path: Path) -> None:
    """Killed, and left as a zombie: its child sees that it is gone, as an actor does whose raylet is."""
    child = (
        "import os, time; from server.process import end_with_parent; end_with_parent(); print(os.getpid(), flush=True)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child + '; time.sleep(600)'!r}])"
    words = [sys.executable, "-c", parent]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(guard.__file__).parent.parent) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        eventually(lambda: is_gone(pid), limit_s=10)
        assert guard.stat_fields(process.pid)[:1] == ["Z"]


def test_says_what_cannot_be_started(tmp_path: Path) -> None:
    """A program that does not exist ends like one that failed, with a line in the log."""
    state, log = tmp_path / "state", tmp_path / "log"
    state.mkdir()
    read_end, write_end = os.pipe()
    words = [sys.executable, "-I", "-S", guard.__file__, str(read_end), str(state), str(log), "", "/no/such/program"]
    subprocess.run(words, pass_fds=(read_end,), check=True)
    eventually(lambda: (state / "exit.json").exists())
    assert "cannot start /no/such/program: No such file" in log.read_text()
    os.close(read_end)
    os.close(write_end)
    eventually(lambda: not state.exists())


def test_gives_the_server_default_signals(tmp_path: Path) -> None:
    """Ray workers block SIGINT and some shells ignore it; the server gets it back."""
    holder = Holder(tmp_path, {}, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]))
    pid = int(holder.told("server.json")["pid"])
    eventually(lambda: holder.pids.exists())
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0
    assert not int(status["SigIgn"], 16) & 1 << (signal.SIGINT - 1)
    holder.end()


def test_kill_of_the_guard_kills_the_server(tmp_path: Path) -> None:
    """Even without its guard a server does not run on unseen."""
    holder = Holder(tmp_path, {})
    facts = holder.told("server.json")
    os.kill(int(facts["guard"]), signal.SIGKILL)
    eventually(lambda: is_gone(facts["pid"]))
    holder.end()


def test_a_server_stays_on_its_cores(tmp_path: Path) -> None:
    """A server that may use one core is started on it, whatever the guard itself may use."""
    (state := tmp_path / "state").mkdir()
    core = max(os.sched_getaffinity(0))
    read_end, write_end = os.pipe()
    shown = "import os; print(sorted(os.sched_getaffinity(0)), flush=True)"
    words = [sys.executable, "-I", "-S", guard.__file__, str(read_end), str(state), str(tmp_path / "log"), str(core)]
    subprocess.run([*words, sys.executable, "-c", shown], pass_fds=(read_end,), check=True)
    os.close(read_end)
    log = tmp_path / "log"
    assert eventually(lambda: log.exists() and log.read_text()) == f"[{core}]\n"
    os.close(write_end)
    eventually(lambda: not state.exists())
