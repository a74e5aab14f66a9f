"""One server's process: its launch under a guard, its family, its log, and its death.

It must not know of HTTP beyond the port, of Ray, or of what is measured. Readiness stands in server.ready, the end in
server.stop.
"""

import contextlib
import io
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from server import guard, oom, ports, variant
from server.failures import Failure, in_words
from server.log import tail
from server.spec import ServerSpec

# A guard starts within 0.1 s; a machine that is out of memory or swaps may need a hundred times that.
GUARD_S_MAX = 20.0
POLL_S = 0.05
PARENT_LOOK_S = 0.5
LOGS_MAX = 1000
SEED_MAX = 2**30  # SGLang draws its own below this

STATE_PREFIX = "loadgen-guard-"
# In the environment of every process of a server: whose it is, wherever it went.
TAG = "LOADGEN_LAUNCH"


class StartError(Exception):
    """A server that did not come up: `reason` in a sentence, the last lines of its log, its exit status if it ended.

    Its text is the reason with the class of the failure, and the advice.
    """

    def __init__(
        self, reason: str, log_tail: str = "", exit_status: int | None = None, failure: Failure | None = None
    ) -> None:
        said = in_words(reason, failure)
        super().__init__(f"{said}; {failure.advice}" if failure else said)
        self.reason, self.log_tail, self.exit, self.failure = reason, log_tail, exit_status, failure


@dataclass(frozen=True)
class Member:
    """One process of a server's tree; pid and start together name it for ever."""

    pid: int
    started: int  # clock ticks since boot
    title: str

    def lives(self) -> bool:
        """Whether this very process still runs."""
        return guard.start_ticks(self.pid) == self.started


@dataclass(frozen=True)
class Running:
    """A launched server. `family` are its processes at readiness, `heard` the ports they listened on; empty before."""

    spec: ServerSpec
    host: str
    port: ports.Port
    nccl_port: ports.Port
    seed: int
    argv: tuple[str, ...]
    gpus: tuple[str, ...]
    log: Path
    state: Path
    orders: io.FileIO  # write end of the guard's pipe; its end tells the guard that we are gone
    guard: Member
    server: Member
    started_at: str
    oom_kills: Mapping[str, int]  # before the launch, by place
    family: tuple[Member, ...] = ()
    heard: frozenset[int] = frozenset()

    @property
    def url(self) -> str:
        """Where the server answers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port.number}"


# --- launch ---


def launch(
    spec: ServerSpec,
    folder: Path,
    host: str,
    gpus: Sequence[str] = (),
    log_name: str = "server.log",
    base: Mapping[str, str] = os.environ,
    name: str = "",
) -> Running:
    """Start a server under a guard, on a free port of `host`, with its output in a new file in `folder`.

    `base` is the environment that the server's is made from; secrets in it stay out. `name` is the launch's, by which
    its processes can be found when all that knew them is gone.

    Returns at once; the server is not ready yet. SpecError for a spec that cannot run, StartError if no guard starts.
    """
    variant.check(spec)
    _require_cores(spec.cores)
    port, nccl_port = ports.free_port(host), ports.free_port(host)
    seed = secrets.randbelow(SEED_MAX)
    argv = variant.argv(spec, host=host, port=port.number, seed=seed, nccl_port=nccl_port.number)
    log = _new_log(folder, log_name)
    state = Path(tempfile.mkdtemp(prefix=f"{STATE_PREFIX}{name}-" if name else STATE_PREFIX))
    read_end, write_end = os.pipe()
    orders, oom_kills = io.FileIO(write_end, "w"), oom.kills()
    try:
        _start_guard(argv, _environment(spec, gpus, base) | {TAG: str(state)}, log, state, read_end, spec.cores)
        facts = _wait_for_guard(state, log)
    except BaseException:
        orders.close()
        shutil.rmtree(state, ignore_errors=True)
        raise
    finally:
        os.close(read_end)
    return Running(
        spec=spec,
        host=host,
        port=port,
        nccl_port=nccl_port,
        seed=seed,
        argv=tuple(argv),
        gpus=tuple(gpus),
        log=log,
        state=state,
        orders=orders,
        guard=Member(facts["guard"], guard.start_ticks(facts["guard"]) or 0, "guard"),
        # A server that has ended already has no start; no process has start 0.
        server=Member(facts["pid"], facts["started"] or 0, "server"),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        oom_kills=oom_kills,
    )


def _require_cores(cores: Sequence[int]) -> None:
    if missing := sorted(set(cores) - set(range(os.cpu_count() or 1))):
        raise StartError(f"engine.cores names {missing}, this node has cores 0 to {(os.cpu_count() or 1) - 1}")


def _environment(spec: ServerSpec, gpus: Sequence[str], base: Mapping[str, str]) -> dict[str, str]:
    environment = variant.environment(spec, base, gpus=gpus)
    if spec.engine == "sim":
        # `python -m` puts the working folder first, where another `server` may lie: leave it out and name ours.
        root = str(Path(__file__).resolve().parent.parent)
        path = environment.get("PYTHONPATH")
        environment |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}
    return environment


def _new_log(folder: Path, name: str) -> Path:
    """Create the log under its name, or with a number behind it where that is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Path(name)
    for number in range(1, LOGS_MAX):
        path = folder / (name if number == 1 else f"{wanted.stem}_{number}{wanted.suffix}")
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            return path.resolve()
    raise StartError(f"{folder} holds {LOGS_MAX} logs named like {name}; use another folder")


def _start_guard(
    argv: list[str], environment: dict[str, str], log: Path, state: Path, orders: int, cores: Sequence[int]
) -> None:
    allowed = ",".join(map(str, cores))
    words = [sys.executable, "-I", "-S", guard.__file__, str(orders), str(state), str(log), allowed, *argv]
    with log.open("ab") as output, contextlib.suppress(subprocess.TimeoutExpired):
        # What returns is the guard's first half, which ends as soon as it has forked.
        subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(orders,),
            start_new_session=True,
            timeout=GUARD_S_MAX,
            check=False,
        )


def _wait_for_guard(state: Path, log: Path) -> dict[str, Any]:
    deadline_s = time.monotonic() + GUARD_S_MAX
    while time.monotonic() < deadline_s:
        if facts := read_json(state / "server.json"):
            return facts
        time.sleep(POLL_S)
    raise StartError(f"the server's guard did not start within {GUARD_S_MAX:.0f} s; see {log}", tail(log))


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


# --- while it runs ---


def family(running: Running) -> tuple[Member, ...]:
    """Every process that descends from the server now, the server first."""
    pids = set(guard.descendants(running.guard.pid)) if running.guard.lives() else _session(running.server.pid)
    others = [Member(pid, guard.start_ticks(pid) or 0, title(pid)) for pid in sorted(pids - {running.server.pid})]
    return (running.server, *(member for member in others if member.started))


def heard(members: Iterable[Member]) -> frozenset[int]:
    """The ports on which these processes listen."""
    return frozenset().union(*(ports.listening(member.pid) for member in members if member.lives()))


def _session(leader: int) -> set[int]:
    """Pids in a session: what can still be found of a family whose guard, which adopts orphans, was killed."""
    return {pid for pid in pids() if guard.stat_fields(pid)[3:4] == [str(leader)]}


def strays(state: Path, log: Path) -> tuple[Member, ...]:
    """Living processes of the launch with that folder and log, wherever they have gone, guard included."""
    return _marked(rf"{TAG}={re.escape(str(state))}", log)


def named(name: str, log: Path) -> tuple[Member, ...]:
    """The same by the launch's name, where its folder is not known."""
    return _marked(rf"{TAG}=.*/{STATE_PREFIX}{re.escape(name)}-[^/]*", log)


def _marked(tag: str, log: Path) -> tuple[Member, ...]:
    mark = re.compile(tag.encode())
    found = [pid for pid in pids() if any(map(mark.fullmatch, environment_of(pid))) or _writes_to(pid, log)]
    return tuple(Member(pid, started, title(pid)) for pid in found if (started := guard.start_ticks(pid)))


def _writes_to(pid: int, log: Path) -> bool:
    """Whether its output goes to the log: what gave itself a title has written that over its environment."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{descriptor}").removesuffix(" (deleted)") == str(log):
                return True
    return False


def end_with_parent() -> None:
    """End this process soon after its parent, of which a zombie may stay where nobody collects the dead.

    Ray's workers take such a raylet for alive for a minute, as in containers whose first process is no init, and a
    server would outlive its killed driver by as long.
    """
    parent = Member(os.getppid(), guard.start_ticks(os.getppid()) or 0, "parent")

    def watch() -> None:
        while parent.lives():
            time.sleep(PARENT_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def pids() -> Iterator[int]:
    """All processes that there are now."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def environment_of(pid: int) -> list[bytes]:
    """The variables that a process was started with; none for processes of others, or that write over theirs."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def title(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline()).strip()[:80] or psutil.Process(pid).name()
    except psutil.Error:
        return "ended"
