"""The process between the actor and its server: it lives as long as the actor, and leaves nothing behind.

Run as a script (`python -I -S guard.py ORDERS STATE LOG CORES PROGRAM...`): ORDERS is the read end of a pipe whose
write end only the actor has, STATE a folder for `server.json` and `exit.json` that the guard removes in the end, LOG
the file that the server writes to, CORES those that it may use (`0,1`; empty: any). It double-forks, so that it is no
child of the Ray worker (Ray kills those with SIGKILL), starts the server as its own child in a session of its own, and
waits until the server ends, an order comes (TERM, KILL) or the pipe ends because the actor is gone. In each case the
server's group and every descendant get killed. Standard library only, to start fast. It must not know what the server
is.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator

ORDER_TERM = b"T"
ORDER_KILL = b"K"

# Nobody needs a server whose actor is gone: time to close its files, and yet all gone within two seconds.
ABANDONED_S = 1.5
# An upper bound for a server that drains after TERM; whoever ordered TERM orders KILL when its own patience ends.
TERM_S_MAX = 120.0
# KILL takes effect at once, but a process in a system call of a driver may need a while to vanish.
KILL_S_MAX = 20.0
POLL_S = 0.02

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CANNOT_RUN = 127


def main(words: list[str]) -> None:
    """Fork away from the caller and guard one server until it is gone."""
    orders, state, log, cores, program = int(words[0]), words[1], words[2], words[3], words[4:]
    if os.fork():
        os._exit(0)
    # The server must not hold the pipe's end, or see it.
    os.set_inheritable(orders, False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_on_child()
    pid = start(program, log, [int(core) for core in cores.split(",") if core])
    write_json(state, "server.json", {"guard": os.getpid(), "pid": pid, "started": start_ticks(pid), "log": log})
    status = watch(pid, orders, wake)
    if status is not None:
        write_json(state, "exit.json", {"exit": status})
    left, status = sweep(pid, status)
    write_json(state, "exit.json", {"exit": status, "left": left})
    while os.read(orders, 1):
        pass
    shutil.rmtree(state, ignore_errors=True)


def prctl(option: int, value: int) -> None:
    """prctl(2); a kernel that does not know the option is no reason to give up."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends or somebody asks the guard itself to end."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    os.set_blocking(read_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    # Handlers, because an ignored signal would not wake; SIGTERM is what a shutting-down machine sends.
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return read_end


def start(program: list[str], log: str, cores: list[int]) -> int:
    """Start the server in a session of its own with its output in `log`, on `cores` where there are any; its pid."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(CANNOT_RUN)
        _default_signals()
        if cores:
            os.sched_setaffinity(0, cores)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(descriptor, target)
        os.execvp(program[0], program)  # noqa: S606 - a list of words is what is wanted
    except OSError as error:
        os.write(2, f"cannot start {program[0]}: {error.strerror}\n".encode())
    os._exit(CANNOT_RUN)


def _default_signals() -> None:
    """Undo what Ray workers, shells and Python itself do to the signals that a child inherits."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def watch(pid: int, orders: int, wake: int) -> int | None:
    """Wait until the server has ended or has to be killed; its exit status, or None if it still runs."""
    deadline: float | None = None
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    poller.register(orders, select.POLLIN | select.POLLHUP)
    while (status := reap(pid)) is None:
        remaining_s = None if deadline is None else deadline - time.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            return None
        ready = [descriptor for descriptor, _ in poller.poll(None if remaining_s is None else remaining_s * 1000 + 1)]
        patience_s = None
        if orders in ready:
            order = os.read(orders, 1)
            patience_s = {ORDER_TERM: TERM_S_MAX, ORDER_KILL: 0.0}.get(order, ABANDONED_S)
            if not order:
                poller.unregister(orders)
        if wake in ready and signal.SIGTERM in os.read(wake, 4096):
            patience_s = ABANDONED_S
        if patience_s is not None:
            deadline = _sooner(deadline, patience_s)
            # A process that somebody has stopped hears of SIGTERM only when it goes on.
            for number in (signal.SIGTERM, signal.SIGCONT):
                _signal(os.killpg, pid, number)
    return status


def _sooner(deadline: float | None, patience_s: float) -> float:
    new = time.monotonic() + patience_s
    return new if deadline is None else min(deadline, new)


def reap(pid: int) -> int | None:
    """Collect every child that has ended, adopted orphans too; the server's exit status if it is among them."""
    status = None
    while True:
        try:
            ended, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if ended == 0:
            return status
        if ended == pid:
            status = os.waitstatus_to_exitcode(raw)


def sweep(pid: int, status: int | None) -> tuple[list[int], int | None]:
    """Kill the server's group and every descendant until none is left; pids that would not go, and the exit status."""
    deadline = time.monotonic() + KILL_S_MAX
    while True:
        left = list(descendants(os.getpid()))
        if left:
            _signal(os.killpg, pid, signal.SIGKILL)
        for other in left:
            _signal(os.kill, other, signal.SIGKILL)
        ended = reap(pid)
        status = status if ended is None else ended
        if not left or time.monotonic() > deadline:
            return left, status
        time.sleep(POLL_S)


def _signal(send: Callable[[int, int], None], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(pid, number)


def descendants(root: int) -> Iterator[int]:
    """Pids of all processes below `root`, whatever their group or session."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_fields(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    waiting = [root]
    while waiting:
        found = children.get(waiting.pop(), [])
        waiting.extend(found)
        yield from found


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on (state, parent, group, ...); empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name in brackets may hold blanks and brackets itself.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot, which with its pid names it for ever; None if it has ended."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def write_json(folder: str, name: str, content: object) -> None:
    """Write a small file so that a reader sees all of it or nothing; nobody reads it if the folder is gone."""
    path = os.path.join(folder, name)
    try:
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(path + ".tmp", path)
    except FileNotFoundError:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
