"""Whether a server is the one that was asked for, judged by what it tells about itself in /server_info.

Pure. One table of claims (server.claims) serves the check and the list of what will be checked. What a server does not
tell is "not proven", which is another thing than a contradiction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from server.claims import ABSENT, DECISIVE, Info, claims
from server.spec import ServerSpec


@dataclass(frozen=True)
class Contradiction:
    """One flag for which the server tells something else than was asked, and what to do if that is not the usual."""

    flag: str
    asked: Any
    told: Any
    advice: str = ""


def contradictions(
    spec: ServerSpec, server_info: Info | None, max_concurrency: int
) -> tuple[list[Contradiction], list[str]]:
    """Flags that the server contradicts, and flags of which it tells nothing; both empty for the server asked for.

    `max_concurrency` is the highest number of requests that will be in flight at once.
    """
    wrong, _, quiet = _held(spec, server_info or {}, max_concurrency)
    return wrong, quiet


def remarks(spec: ServerSpec, server_info: Info | None) -> list[str]:
    """What a server of ours has decided by itself, in words: no contradiction, since each variant gets the same."""
    _, noted, _ = _held(spec, server_info or {}, 1)
    return [f"the server set {one.flag} = {one.told} by itself; the variant did not ask for it" for one in noted]


def contradictions_of_all(
    spec: ServerSpec, infos: Mapping[str, Info | None], max_concurrency: int
) -> tuple[list[Contradiction], list[str]]:
    """The same for several servers by their addresses, which take turns: each is named with what only it tells.

    `max_concurrency` is that of all of them together.
    """
    share = -(-max_concurrency // len(infos))
    found = {url: contradictions(spec, info, share) for url, info in infos.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    wrong = [replace(one, flag=f"{url}: {one.flag}") for url, (some, _) in found.items() for one in some]
    quiet = [set(flags) for _, flags in found.values()]
    everywhere = set.intersection(*quiet)
    partly = [f"{url}: {flag}" for url, (_, flags) in found.items() for flag in flags if flag not in everywhere]
    return wrong, [*sorted(everywhere), *partly]


def checks(spec: ServerSpec, max_concurrency: int) -> list[tuple[str, Any]]:
    """What will be read back: each flag with the value that it must have."""
    return [(claim.flag, claim.asked) for claim in claims(spec, max_concurrency, None) if claim.ours]


def decisive(flag: str) -> bool:
    """Whether a server of ours that does not tell this flag may not be believed."""
    return flag in DECISIVE


def _held(
    spec: ServerSpec, info: Info, max_concurrency: int
) -> tuple[list[Contradiction], list[Contradiction], list[str]]:
    """Contradictions, what a server of ours decided by itself, and flags that are not told."""
    wrong: list[Contradiction] = []
    noted: list[Contradiction] = []
    quiet: list[str] = []
    for claim in claims(spec, max_concurrency, info.get("version")):
        told = claim.told(info)
        if told is ABSENT:
            quiet += [] if claim.quiet else [claim.flag]
        elif not claim.holds(told):
            (wrong if claim.ours else noted).append(Contradiction(claim.flag, claim.asked, told, claim.advice))
    return wrong, noted, quiet
