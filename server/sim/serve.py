"""The front end's life: loop, port, readiness, timed faults, SIGTERM. It must not know what requests mean."""

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress
from functools import partial

import uvloop

from server.sim import link
from server.sim.front import Front
from server.sim.log import say, write
from server.sim.settings import Settings

DRAIN_S = 1.0  # SGLang drains without a deadline; nobody waits for a simulation.
SWEEP_S = 1.0  # How often idle connections are looked for.
BACKLOG = 2048  # uvicorn's.
READY = "The server is fired up and ready to roll!"


def run(settings: Settings, scheduler: socket.socket) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, scheduler))


async def _serve(settings: Settings, scheduler: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    front = Front(settings)
    front.link = await link.connect(scheduler, front.step, front.scheduler_lost)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    if "ignore_sigterm" not in settings.faults:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    host, port = settings.flags["host"], settings.flags["port"]
    write(f"INFO:     Started server process [{os.getpid()}]")
    try:
        server = await loop.create_server(front.connect, host, port, backlog=BACKLOG)
    except OSError as error:
        # SGLang warms up before it binds, against whoever holds the port: it calls itself ready and then dies.
        say(READY)
        write(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('{host}', {port}): {error}")
        return 1
    write(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
    say(READY)
    _arm(loop, front)
    sweeper = loop.create_task(_sweep(front))
    await stop.wait()
    sweeper.cancel()
    server.close()
    await _drain(front)
    return 0


def _arm(loop: asyncio.AbstractEventLoop, front: Front) -> None:
    """Set off the timed faults of the front end."""
    for kind, strike in (("die_after", _die), ("hang", lambda: setattr(front, "hanging", True))):
        if kind in front.settings.faults:
            after_s, request = front.settings.faults[kind].numbers
            if request:
                front.awaited[int(request)] = partial(loop.call_later, after_s, strike)
            else:
                loop.call_later(after_s, strike)


def _die() -> None:
    say("SIGQUIT received. signum=3, frame=None. It usually means one child failed.")
    os.kill(os.getpid(), signal.SIGKILL)


async def _sweep(front: Front) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        now_s = time.monotonic()
        for connection in list(front.connections):
            connection.close_if_idle(now_s)


async def _drain(front: Front) -> None:
    """Let answers in work end, for at most DRAIN_S, and not without a scheduler that could end them."""
    front.stop()
    with suppress(TimeoutError):
        await asyncio.wait_for(front.drained.wait(), DRAIN_S)
    for connection in list(front.connections):
        connection.transport.abort()
