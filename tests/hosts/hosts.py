"""Hosts on one machine: each has its own network, names, processes, monotonic clock and /tmp, joined by a bridge.

Made of Linux namespaces, so root is needed. A host ends, with all that runs on it, when its first process does.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from loadgen.footprint import titles

ROOT = Path(__file__).parent.parent.parent
NETWORK = "10.77.0"
PORT = 6399
START_S_MAX = 60.0
TOKEN = "d3b07384d113edec49eaa6238ad5ff00" * 2
# The first process of a host adopts its orphans and collects them; what it has set up holds for all others.
INIT = """
import os, signal, subprocess, sys
def run(*words): subprocess.run(words, check=True)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
name, home, hidden, shared = sys.argv[1], sys.argv[2], sys.argv[3].split(":"), sys.argv[4]
run("hostname", name)
if shared:
    run("mount", "--bind", shared, shared)
keep = os.open(shared, os.O_PATH) if shared else None
run("mount", "-t", "tmpfs", "none", "/tmp")
if shared.startswith("/tmp/"):
    os.makedirs(shared)
    run("mount", "--bind", f"/proc/self/fd/{keep}", shared)
for folder in filter(None, hidden):
    run("mount", "-t", "tmpfs", "none", folder)
os.makedirs(home, exist_ok=True)
print("up", flush=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    signal.pause()
"""


def missing() -> str | None:
    """Why hosts cannot be made here; None where they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for tool in ("ip", "unshare", "nsenter", "gcc"):
        if not shutil.which(tool):
            return f"{tool} is missing (iproute2, util-linux, gcc)"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--pid", "--time", "--fork", "true"], capture_output=True, text=True
    )
    return f"namespaces cannot be made: {tried.stderr.strip()}" if tried.returncode else None


@dataclass
class Host:
    """One host: `address` on the bridge, `pid` of its first process as the machine sees it."""

    name: str
    address: str
    init: subprocess.Popen[str]
    home: Path
    cable: str
    bridge: str

    @property
    def pid(self) -> int:
        """The first process itself: what we started is unshare, which waits for it."""
        return int(Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()[0])

    def words(self, *command: str) -> list[str]:
        """The command line that runs `command` on this host."""
        return ["nsenter", "--target", str(self.pid), "--all", "--wd=/", *command]

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a user of this host, who is in a cluster with a token."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "XDG_"))}
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
        return {**kept, "HOME": str(self.home), "TMPDIR": "/tmp", "RAY_worker_niceness": "0", **token, **more}

    def seen(self, path: str) -> Path:
        """A path of this host as the machine sees it."""
        return Path(f"/proc/{self.pid}/root{path}")

    def processes(self, title: str) -> list[psutil.Process]:
        """What runs on this host under a title that begins so."""
        return [one for one, whole in titles(psutil.Process(self.pid)) if whole.startswith(title)]

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end; its error is the test's."""
        done = subprocess.run(
            self.words(*command), env=self.environment(**env), capture_output=True, text=True, timeout=START_S_MAX
        )
        assert done.returncode == 0, f"{self.name}: {' '.join(command)}: {done.stdout}{done.stderr}"
        return done

    def ray(self, *words: str, **env: str) -> None:
        """Run Ray's own command on this host."""
        self.run(sys.executable, "-c", "from ray.scripts.scripts import main; main()", *words, **env)

    def end(self) -> None:
        """Take the host away at once, as if its power were cut."""
        with contextlib.suppress(OSError, IndexError):
            os.kill(self.pid, signal.SIGKILL)
        self.init.wait()


def _ip(*words: str, space: str | None = None) -> None:
    inside = ["nsenter", "--target", space, "--net"] if space else []
    subprocess.run([*inside, *words], check=True, capture_output=True)


@contextlib.contextmanager
def joined(
    names: Sequence[str], place: Path, hidden: Sequence[Path] = (), shared: Path | None = None
) -> Iterator[list[Host]]:
    """Hosts of these names on one bridge, nothing running on them yet.

    `hidden` folders are empty there but on the first one; `shared` is a folder that all of them have.
    """
    bridge = f"lg{os.getpid() % 100000}"
    hosts: list[Host] = []
    _ip("ip", "link", "add", bridge, "type", "bridge")
    try:
        _ip("ip", "link", "set", bridge, "up")
        for number, name in enumerate(names, 1):
            mask = ":".join(map(str, hidden)) if number > 1 else ""
            hosts.append(_host(name, number, bridge, place, mask, str(shared or "")))
        yield hosts
    finally:
        for host in hosts:
            host.end()
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def _host(name: str, number: int, bridge: str, place: Path, hidden: str, shared: str) -> Host:
    home = place / f"home-{name}"
    words = ["unshare", "--net", "--mount", "--uts", "--pid", "--time", f"--monotonic={number * 10_000}", "--fork"]
    init = subprocess.Popen(
        [*words, "--kill-child", "--mount-proc", sys.executable, "-c", INIT, name, str(home), hidden, shared],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        return _plugged(init, name, number, bridge, home)
    except BaseException:
        init.kill()  # and with it all that it has started
        raise


def _plugged(init: subprocess.Popen[str], name: str, number: int, bridge: str, home: Path) -> Host:
    cable = f"{bridge}-{number}"
    assert init.stdout
    assert init.stdout.readline() == "up\n", f"host {name} did not come up"
    host = Host(name, f"{NETWORK}.{number}", init, home, cable, bridge)
    _ip("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
    _ip("ip", "link", "set", cable, "master", bridge, "up")
    _ip("ip", "addr", "add", f"{host.address}/24", "dev", "eth0", space=str(host.pid))
    _ip("ip", "link", "set", "eth0", "up", space=str(host.pid))
    _ip("ip", "link", "set", "lo", "up", space=str(host.pid))
    return host


@contextlib.contextmanager
def slow_cable(host: Host, round_trip_ms: float) -> Iterator[None]:
    """All that goes to this host and comes from it takes its time, as `tc netem delay` would have it."""
    inside, outside = f"{host.cable}i", f"{host.cable}o"
    words = [sys.executable, str(Path(__file__).with_name("cable.py")), inside, outside, str(round_trip_ms)]
    cable = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert cable.stdout
        assert cable.stdout.readline() == "up\n"
        space = str(host.pid)
        _ip("ip", "link", "set", inside, "netns", space)
        _ip("ip", "link", "set", outside, "master", host.bridge, "up")
        mac = host.run("cat", "/sys/class/net/eth0/address").stdout.strip()  # others have it in their tables
        _ip("ip", "link", "set", inside, "address", mac, space=space)
        _ip("ip", "link", "set", host.cable, "down")
        _ip("ip", "addr", "flush", "dev", "eth0", space=space)
        _ip("ip", "addr", "add", f"{host.address}/24", "dev", inside, space=space)
        _ip("ip", "link", "set", inside, "up", space=space)
        yield
    finally:
        cable.kill()
        cable.wait()
        _ip("ip", "addr", "add", f"{host.address}/24", "dev", "eth0", space=str(host.pid))
        _ip("ip", "link", "set", host.cable, "up")


def cluster(hosts: Sequence[Host], server: Host, env: Mapping[str, Mapping[str, str]]) -> None:
    """Start Ray on the hosts, the head on the first one, `server` labelled; `env` adds to a host's environment."""
    head = hosts[0]
    for host in hosts:
        common = [f"--node-ip-address={host.address}", "--num-cpus=1", "--disable-usage-stats"]
        common += [f"--object-store-memory={100 * 1024 * 1024}"]
        common += ["--labels=loadgen=server"] if host is server else []
        to = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        where = to if host is head else [f"--address={head.address}:{PORT}"]
        host.ray("start", *where, *common, **env.get(host.name, {}))
