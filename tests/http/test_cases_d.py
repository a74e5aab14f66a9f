"""What broke other tools, group D: connections, their limits, and what is left behind at the server."""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from case import ms, near, refusal
from scripted import Answer, Request, c, plain, scripted, well
from test_worker import LIMITS, PLAN, exhausted, shard, until

from loadgen.config import Load
from loadgen.shard import limits
from loadgen.stream import session
from server.actor import ServerActor
from server.spec import ServerSpec

ALLOWED_FILES = 64
# A worker of its own, because a hard limit cannot be raised again. Its rows and what it raises go to stdout.
FEW_DESCRIPTORS = """
import asyncio, json, resource, sys
sys.path[:0] = {path!r}
from test_worker import LIMITS, exhausted, shard, until
from loadgen.errors import ConfigError
from loadgen.stream import exchange, session
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))

async def burst():
    async with session(LIMITS) as http:
        asks = (exchange(http, {url!r}, {{}}, b"{{}}", LIMITS, "chat") for _ in range(200))
        return [str(trace.error) for trace in await asyncio.gather(*asks) if trace.outcome == "connect"]

async def main():
    if {burst}:
        return await burst()
    board = until(exhausted)
    from dataclasses import replace
    given = shard({url!r}, concurrency=200)
    try:
        await board.drive(replace(given, plan=replace(given.plan, requests=200)))
    except ConfigError as error:
        return [str(error), len(board.beats)]
    return board.outcomes

print(json.dumps(asyncio.run(main())))
"""


async def test_d01_no_silent_cap_on_a_request() -> None:
    """The library's 300 s are off; what ends a request is the load's own, and part of the stored configuration."""
    async with session(LIMITS) as http:
        assert (http.timeout.total, http.timeout.sock_read, http.timeout.sock_connect) == (None, None, None)
    given = limits(Load(total_s_max=7200.0, stall_s_max=90.0))
    assert (given.total_s, given.stall_s, given.first_token_s, given.connect_s) == (7200.0, 90.0, 600.0, 10.0)


async def test_d02_no_pool_of_a_hundred() -> None:
    """150 streams of one worker are 150 requests at the server."""
    async with scripted(well(500)) as server:
        given = shard(server.url, concurrency=150, plan=replace(PLAN, requests=150))
        board = await until(exhausted).drive(given)
    assert (server.peak, board.outcomes) == (150, {"ok": 150})


async def few_descriptors(url: str, soft: int, hard: int, burst: bool = False) -> str:
    """What a worker of 200 streams says under these limits of open files."""
    code = FEW_DESCRIPTORS.format(path=sys.path, url=url, soft=soft, hard=hard, burst=burst)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    told, _ = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 0
    return told.decode()


async def test_d05_out_of_descriptors() -> None:
    """Too few for the streams: refused before anything is sent. A soft limit is raised; a lack is not the server's."""
    async with scripted(well(100)) as server:
        refused = await few_descriptors(server.url, ALLOWED_FILES, ALLOWED_FILES)
        assert "200 streams of one worker need" in refused
        assert f"allows {ALLOWED_FILES}; raise ulimit -n" in refused
        assert refused.strip().endswith(", 0]")
        assert server.requests == []
        assert '{"ok": 200}' in await few_descriptors(server.url, ALLOWED_FILES, 4096)
        lack = await few_descriptors(server.url, ALLOWED_FILES, ALLOWED_FILES, burst=True)
    assert "this machine, not the server: " in lack


async def test_d06_several_endpoints_are_asked_in_turns() -> None:
    """Request by request, so each gets its half whatever connections are kept and however slow it is."""
    async with scripted(well(5)) as one, scripted(well(40)) as other:
        given = shard(one.url, base_urls=(one.url, other.url), concurrency=8, plan=replace(PLAN, requests=200))
        board = await until(exhausted).drive(given)
    assert (len(one.requests), len(other.requests)) == (100, 100)
    asked_of = {seq % 2: row["endpoint"] for row in board.rows if (seq := row["seq"]) >= 0}
    assert asked_of == {0: one.url, 1: other.url}
    assert Counter(row["endpoint"] for row in board.rows) == {one.url: 100, other.url: 100}
    assert "engine.url" in refusal(engine={"url": f"{one.url},{other.url}"})
    assert "names a server twice" in refusal(engine={"url": [one.url, one.url + "/"]})
    assert refusal(engine={"url": [one.url, other.url]}) == ""


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", "localhost"), ("::1", "[::1]")])
async def test_d07_localhost_and_ipv6(host: str, name: str) -> None:
    """Whatever a name is tried as first, connecting has its own column and TTFT knows nothing of it."""
    try:
        async with scripted(well(50), host=host) as server:
            url = f"http://{name}:{server.url.rpartition(':')[2]}"
            board = await until(exhausted).drive(shard(url, concurrency=1, plan=replace(PLAN, requests=3)))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert board.outcomes == {"ok": 3}
    rows = sorted(board.rows, key=lambda row: row["seq"])
    assert rows[0]["connect_ns"] > 0
    assert [row["connect_ns"] for row in rows[1:]] == [None, None]
    assert all(near(ms(row, "first_token_ns"), 50) for row in rows)


def _actor(url: str) -> ServerActor:
    """The actor of a server at `url`, outside Ray: its constructor would start one to ask for GPUs."""
    actor = ServerActor.__new__(ServerActor)
    actor._spec, actor._urls = ServerSpec(engine="external", variant="baseline", urls=(url,)), (url,)
    return actor


async def test_d08_a_cut_request_is_given_up_at_the_server() -> None:
    """A stop closes the connections, and the next Point's flush waits until the server has nothing pending."""
    busy_until = 0.0

    def answer(request: Request, _number: int) -> Answer:
        if request.path == "/flush_cache":
            busy = time.monotonic() < busy_until
            return plain("400 Bad Request", b"pending requests") if busy else plain("200 OK", b"Cache flushed.")
        return Answer([(10, c("A"))], end="hang")

    async with scripted(answer) as server:
        board = await until(lambda beat: beat["in_flight"] == 4).drive(shard(server.url))
        assert board.outcomes == {"cut": 4}
        async with asyncio.timeout(10):
            while server.in_flight:
                await asyncio.sleep(0.01)
        busy_until = time.monotonic() + 0.5
        assert await asyncio.to_thread(_actor(server.url).flush)
        assert time.monotonic() >= busy_until
