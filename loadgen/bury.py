"""The end of a server whose actor is gone: somebody else looks for what is left of it, and ends that."""

import dataclasses
import functools
from pathlib import Path

from loadgen import cluster, store, warden
from loadgen.errors import ClusterError, StorageError
from loadgen.launched import Launched
from loadgen.nodes import LOOPBACK
from server import gpu, stop
from server.process import Member

FORGET_S_MAX = 10.0
STOP_S_MAX = 170.0  # after the server's own drain: KILL, ports and device memory free again


def bury(launched: Launched) -> tuple[str, ...]:
    """Have somebody else end what is left of a server whose actor is gone; what stays, in words."""
    if warden.lost():
        return _here(launched)
    outside = dataclasses.replace(launched.spec, engine="external")
    try:
        with store.marked(launched.folder) as mark:
            witness = cluster.place_server(outside, launched.folder, "", "", launched.places, mark)
            try:
                log = launched.endpoint.get("log") or str(launched.log.resolve())
                left = tuple(witness.ask("bury", launched.name, log, launched.endpoint, wait_s_max=STOP_S_MAX))
                witness.ask("forget", wait_s_max=FORGET_S_MAX)
                return left
            finally:
                witness.end()
    except (ClusterError, StorageError) as error:
        return (f"the server of launch {launched.id}, which nobody could look for: {error}",)


def _here(launched: Launched) -> tuple[str, ...]:
    """The same where Ray itself is lost, which was one of this machine alone: nobody else can be asked."""
    family, heard, memory = launched.endpoint.get("known", ((), (), {}))
    log = Path(launched.endpoint.get("log") or launched.log.resolve())
    held = functools.partial(gpu.memory_held, list(memory), memory)
    return stop.bury(launched.name, log, [Member(*one) for one in family], LOOPBACK, heard, held).left
