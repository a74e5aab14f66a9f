"""The end of a server whose actor is gone: somebody else looks for what is left of it, and ends that."""

import dataclasses

from loadgen import cluster, store, warden
from loadgen.errors import ClusterError, StorageError
from loadgen.launched import Launched
from loadgen.nodes import LOOPBACK
from server import stop

FORGET_S_MAX = 10.0
STOP_S_MAX = 170.0  # after the server's own drain: KILL, ports and device memory free again


def bury(launched: Launched) -> tuple[str, ...]:
    """Have somebody else end what is left of a server whose actor is gone; what stays, in words."""
    known = (launched.name, launched.endpoint.get("log") or str(launched.log.resolve()), launched.endpoint)
    if warden.trouble():  # Ray was one of this machine alone: nobody else can be asked
        return stop.bury_told(*known, LOOPBACK)
    outside = dataclasses.replace(launched.spec, engine="external")
    try:
        with store.marked(launched.folder) as mark:
            witness = cluster.place_server(outside, launched.folder, "", "", launched.places, mark)
            try:
                left = tuple(witness.ask("bury", *known, wait_s_max=STOP_S_MAX))
                witness.ask("forget", wait_s_max=FORGET_S_MAX)
                return left
            finally:
                witness.end()
    except (ClusterError, StorageError) as error:
        return (f"the server of launch {launched.id}, which nobody could look for: {error}",)
