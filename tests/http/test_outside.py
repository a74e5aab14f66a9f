"""Servers that already run: each is probed, proven, flushed and watched by its own address."""

import asyncio
import json

from scripted import Answer, Request, Script, plain, scripted

from server.actor import ServerActor
from server.ask import OPEN
from server.outside import gone, probe
from server.spec import ServerSpec

JSON = "Content-Type: application/json"


def serving(model: str, **info: object) -> Script:
    """A script for a server of this model that tells this of itself, or nothing."""

    def answer(request: Request, _number: int) -> Answer:
        if request.path == "/server_info" and info:
            return plain("200 OK", json.dumps(info).encode(), JSON)
        if request.path == "/v1/models":
            return plain("200 OK", json.dumps({"data": [{"id": model}]}).encode(), JSON)
        if request.path == "/metrics":
            return plain("200 OK", b'sglang:num_running_reqs{tp_rank="0"} 1.0\n')
        return plain("200 OK" if request.path == "/flush_cache" else "404 Not Found", b"")

    return answer


async def test_several_servers_are_each_asked() -> None:
    """What each tells stands by its address; one that tells nothing of itself is a server all the same."""
    async with scripted(serving("m", version="0.5.9")) as one, scripted(serving("m")) as other:
        told, wrong = await asyncio.to_thread(probe, (one.url, other.url), OPEN)
    assert wrong == ""
    assert told == [
        {"url": one.url, "server_info": {"version": "0.5.9"}, "model_id": "m"},
        {"url": other.url, "server_info": {}, "model_id": "m"},
    ]


async def test_the_one_that_is_wrong_is_named() -> None:
    """A server that does not answer, and one that serves another model."""
    nowhere = "http://127.0.0.1:9"
    async with scripted(serving("m")) as one, scripted(serving("n")) as other:
        _, silent = await asyncio.to_thread(probe, (one.url, nowhere), OPEN)
        _, strange = await asyncio.to_thread(probe, (one.url, other.url), OPEN)
        assert gone((one.url, other.url)) is None
        assert gone((one.url, nowhere)) == f"{nowhere} refuses connections"
    assert silent.startswith(f"nothing answers at {nowhere}: ")
    assert strange == f"{other.url} serves n, {one.url} serves m"


async def test_the_actor_of_several_servers() -> None:
    """Flushed is what all flushed; each is asked again at the end; samples say of which server they are."""
    async with scripted(serving("m", seed=1)) as one, scripted(serving("m", seed=2, api_key="k")) as other:
        actor = ServerActor.__new__(ServerActor)  # its constructor would start a Ray to ask for GPUs
        actor._urls = (one.url, other.url)
        actor._spec = ServerSpec(engine="external", variant="baseline", urls=actor._urls)
        endpoint = await asyncio.to_thread(actor._probe)
        try:
            assert (endpoint["ok"], endpoint["url"], endpoint["urls"]) == (True, one.url, [one.url, other.url])
            assert await asyncio.to_thread(actor.infos) == {one.url: {"seed": 1}, other.url: {"seed": 2}}
            assert await asyncio.to_thread(actor.flush)
            rows = await asyncio.to_thread(actor.telemetry)
        finally:
            for sampler in actor._samplers:
                await asyncio.to_thread(sampler.stop)
    labels = {json.dumps(json.loads(row["labels"])) for row in rows}
    assert labels == {json.dumps({"endpoint": url, "tp_rank": "0"}) for url in (one.url, other.url)}
    assert [request.path for request in other.requests].count("/flush_cache") == 1
