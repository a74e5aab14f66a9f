"""Whether a launched server is, and still is, the one that was asked for; and the words for a person if it is not.

Asks the server's actor. What contradicts what is server.proof's, the log's words are server.effects', who is who is
server.identity's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadgen.errors import ServerError
from loadgen.launched import Launched
from server import effects, identity
from server.claims import CAP
from server.proof import Contradiction, contradictions_of_all

INFO_S_MAX = 20.0  # /server_info of a busy server
ALIVE_S_MAX = 10.0  # answered from memory

Infos = Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True)
class Proven:
    """What was found at the end of a Point: what each server tells, what it contradicts, what it does not tell.

    `replaced`: why it is not the server that was started; None while it is.
    """

    infos: Infos
    wrong: list[Contradiction]
    quiet: list[str]
    replaced: str | None


def again(launched: Launched, max_concurrency: int) -> Proven:
    """Prove the server once more: the same process and seed, the resolved flags, what its log says of them."""
    ours, urls = launched.spec.engine != "external", launched.endpoint["urls"]
    told = launched.server.ask("proof", wait_s_max=INFO_S_MAX * len(urls))
    infos: dict[str, Any] = told["infos"]
    wrong, quiet = _held(launched, infos, told["said"], max_concurrency)
    for url, now in infos.items():
        known = {one.flag for one in wrong}
        wrong += [one for one in identity.changed(launched.told_at_start(url), now) if one.flag not in known]
    if ours and None in infos.values():
        return Proven(infos, wrong, [], told["replaced"] or "it did not answer /server_info at the end")
    others = (identity.replaced(launched.told_at_start(url), now) for url, now in infos.items())
    return Proven(infos, wrong, quiet, told["replaced"] or next(filter(None, others), None))


def warnings(launched: Launched, max_concurrency: int) -> list[str]:
    """What speaks against the server before its first Point, in words; the Points will say it again."""
    infos = {url: launched.told_at_start(url) for url in launched.endpoint["urls"]}
    wrong, _ = _held(launched, infos, launched.endpoint.get("said", []), max_concurrency)
    return [
        f"{launched.spec.variant}: the server tells {one.flag} = {one.told}, asked was {one.asked}: "
        f"its Points {'above that ' if one.flag.endswith(CAP) else ''}will be INVALID"
        for one in wrong
    ]


def require_alive(launched: Launched) -> None:
    """Raise ServerError for a server that has ended since it called itself ready."""
    look = launched.server.ask("look", wait_s_max=ALIVE_S_MAX)
    if not look["alive"]:
        where = "look at that server" if launched.spec.engine == "external" else f"read server{launched.stem}.log"
        raise ServerError(f"it was ready, and then: {look['reason']}; {where}")


def _held(
    launched: Launched, infos: Infos, said: list[str], max_concurrency: int
) -> tuple[list[Contradiction], list[str]]:
    wrong, quiet = contradictions_of_all(launched.spec, infos, max_concurrency)
    known = {one.flag for one in wrong}
    silenced = effects.silenced(launched.spec, said, launched.endpoint.get("version"))
    return [*wrong, *(one for one in silenced if one.flag not in known)], quiet
