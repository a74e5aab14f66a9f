"""Whether a Ray cluster answers at an address, told within seconds: Ray itself tries for half a minute.

A process of its own asks, since Ray ends one that lacks a token. It must not know what is done in the cluster.
"""

import os
import socket
import subprocess
import sys

from loadgen.errors import ClusterError, ConfigError

CONNECT_S = 3.0
ASK_S_MAX = 20.0  # Ray's import on a busy machine is most of it
AUTO = "auto"
ASK = """
import sys
from ray._private import services
from ray._raylet import GcsClient
address = services.canonicalize_bootstrap_address_or_die(sys.argv[1])
print("found", address, flush=True)
GcsClient(address=address).internal_kv_keys(b"loadgen", namespace=b"loadgen", timeout=5)
print("answered", flush=True)
"""
NO_TOKEN = ("InvalidAuthToken", "AuthenticationError", "authentication token", "Unauthenticated")


def require(address: str) -> str:
    """The address at which the cluster answers, host:port. Raises ClusterError or ConfigError, one sentence."""
    if address != AUTO:
        _require_listener(*split(address), address)
    try:
        asked = subprocess.run(
            [sys.executable, "-c", ASK, address], capture_output=True, text=True, timeout=ASK_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"what listens at cluster.address={address} does not answer as a Ray cluster within {ASK_S_MAX:g} s; "
            "give host:port of its head"
        ) from None
    lines = asked.stdout.splitlines()
    if lines[-1:] == ["answered"]:
        return lines[-2].removeprefix("found ")
    if any(sign in asked.stderr + asked.stdout for sign in NO_TOKEN):
        raise ClusterError(_token(address))
    if not lines:
        raise ClusterError(
            "no Ray cluster runs on this machine (cluster.address=auto): start one by `ray start`, give "
            "cluster.address=host:port, or leave cluster=ray out to run on this machine alone"
        )
    told = (asked.stderr.strip().splitlines() or ["no answer"])[-1][:200]
    raise ClusterError(f"the cluster at cluster.address={address} does not answer ({told})")


def _token(address: str) -> str:
    """What is to be done about a token, by what this shell has."""
    mode, given = os.environ.get("RAY_AUTH_MODE"), any(map(os.environ.get, ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")))
    wants = f"the cluster at cluster.address={address} wants its token"
    if mode and mode != "token":
        return f"{wants}, and RAY_AUTH_MODE={mode} sends none: set RAY_AUTH_MODE=token and give the token"
    if given:
        return f"{wants}, and the one given here is another: set RAY_AUTH_TOKEN to the token of the cluster's head"
    return (
        f"{wants}: set RAY_AUTH_MODE=token, with its head's ~/.ray/auth_token in the same place here, or name the "
        "token by RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
    )


def split(address: str) -> tuple[str, int]:
    """Host and port. Raises ConfigError where it is neither host:port nor auto."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise ConfigError(f"cluster.address={address}: give host:port of a Ray cluster's head, or auto")
    return host.strip("[]"), int(port)


def _require_listener(host: str, port: int, address: str) -> None:
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        told = error.strerror or str(error)
        raise ClusterError(
            f"nothing answers at cluster.address={address} ({told}); check the address, and that `ray start --head` "
            "runs there"
        ) from None
