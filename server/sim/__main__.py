"""`python -m server.sim`: starts SGLang's process tree, binds the port last, and ends everything again.

It must not know what a request or a step is.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from server.sim import children, faults, flags, profile, scheduler, settings
from server.sim.log import say, write


def main(argv: Sequence[str]) -> int:
    """Run one server until it is told to end. Returns the exit status: 2 for flags, 1 for a failed start."""
    parser = flags.build_parser(flags.version_of(argv))
    given = parser.parse_args(argv)
    try:
        asked_faults = faults.parse(given.sim_fault)
        hardware = profile.parse(Path(given.sim_profile or profile.SHIPPED).read_text(encoding="utf-8"))
    except (faults.FaultError, profile.ProfileError, OSError) as error:
        parser.error(str(error))
    try:
        resolved = settings.resolve(given, os.environ, hardware, asked_faults)
    except settings.SettingsError as error:
        _announce(given.sim_version, given.sim_speed, "no curve")
        write(f"ValueError: {error}")
        return 1
    _spare_cores(given.sim_spare_cores)
    return _launch(resolved)


def _announce(version: str, speed: float, curve: str) -> None:
    say(f"SIMULATION: no GPU and no model; SGLang {version} dialect, clock x{speed:g}, {curve}.")


def _spare_cores(count: int) -> None:
    """Leave the last cores to a client on this machine: on one core it would only read when a burst was written."""
    cores = sorted(os.sched_getaffinity(0))
    if 0 < count < len(cores):
        os.sched_setaffinity(0, cores[:-count])


def _launch(resolved: settings.Settings) -> int:
    if "ignore_sigterm" in resolved.faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    measured = "measured" if resolved.curve_measured else "not measured with these flags"
    _announce(resolved.version, resolved.speed, f"curve {resolved.curve} ({measured})")
    shown = (f"{name}={value!r}" for name, value in resolved.flags.items() if not name.endswith("api_key"))
    say(f"server_args=ServerArgs({', '.join(shown)})")
    for note in resolved.notes:
        say(note)
    dies = faults.seconds(resolved.faults, "die_at_start")
    if dies is not None:
        say(
            "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: simulated failure at start",
            "TP0",
        )
        say("Received sigquit from a child process. It usually means the child failed.")
        return int(dies)
    near, far = socket.socketpair()
    pids = [
        children.spawn("sglang::scheduler_TP0", lambda: _schedule(resolved, near, far)),
        children.spawn("sglang::detokenizer", lambda: _detokenize(near, far)),
    ]
    far.close()
    try:
        return _serve_when_ready(resolved, near)
    except KeyboardInterrupt:
        return 130
    finally:
        children.end(pids)


def _schedule(resolved: settings.Settings, near: socket.socket, far: socket.socket) -> None:
    near.close()
    scheduler.run(resolved, far)


def _detokenize(near: socket.socket, far: socket.socket) -> None:
    near.close()
    far.close()
    while True:
        time.sleep(3600)


def _serve_when_ready(resolved: settings.Settings, link: socket.socket) -> int:
    # The front end's modules load while the scheduler starts.
    from server.sim import serve

    if b"\n" not in link.recv(64):
        say("Rank 0 scheduler is dead. Please check if there are relevant logs.")
        return 1
    return serve.run(resolved, link)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
