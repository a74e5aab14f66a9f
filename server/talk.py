"""What an actor asks its servers apart from the load when it ends them, or doubts them. None of it raises."""

import contextlib

from server.ask import Access, ask

# A healthy server answers at once; from one that hangs nothing is to be had.
ABORT_S = 2.0
HEALTH_S = 3.0


def abort(url: str, access: Access) -> None:
    """Have SGLang drop the requests under way, which it would otherwise wait for without an end of its own."""
    with contextlib.suppress(OSError):
        ask(url, "/abort_request", body={"abort_all": True}, timeout_s=ABORT_S, access=access)


def health(url: str, access: Access) -> str:
    """What /health says, in words."""
    try:
        return f"/health answers {ask(url, '/health', timeout_s=HEALTH_S, access=access).status}"
    except OSError:
        return f"/health does not answer within {HEALTH_S:g} s"
