"""Names: each is resolved once a Point by each worker, held at its address, and costs no request anything."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from named import FIRST, LATER, SLOW_S

from loadgen.names import Names

HERE = Path(__file__).parent
RUN_S_MAX = 60.0
NS = 1_000_000_000


@pytest.fixture
def apart() -> Iterator[str]:
    """A network of its own, whose name server is expected on its loopback."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("a network of its own wants root and iproute2")
    name = f"lg{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network of its own can be made here: {made.stderr.strip()}")
    conf = Path("/etc/netns") / name
    try:
        conf.mkdir(parents=True)
        (conf / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
        shutil.rmtree(conf, ignore_errors=True)


def test_r11_a_name_server_that_is_slow_and_changes_its_mind(apart: str) -> None:
    """The two seconds are in dns_ns, in no other time; each Point asks once and stays where it was sent."""
    path = os.pathsep.join([str(HERE), str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])
    words = ["ip", "netns", "exec", apart, sys.executable, str(HERE / "named.py")]
    told = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    first, later = found["points"]
    assert found["asked"] == [1, 2]
    assert {row["address"] for row in first} == {FIRST}
    assert {row["address"] for row in later} == {LATER}
    assert {row["outcome"] for row in first + later} == {"truncated"}  # by its script it has no end mark
    assert all(row["dns_ns"] >= SLOW_S * NS for row in first)
    assert all(row["dns_ns"] < SLOW_S * NS for row in later)
    assert all(row["connect_ns"] < SLOW_S * NS for row in first)
    assert all(row["first_token_ns"] - row["sent_ns"] < SLOW_S * NS for row in first)


async def test_r11_of_several_addresses_the_first_that_was_reached_stays() -> None:
    """A name with two addresses is held at that of its first connection; a failed question is not asked again."""
    names = Names(5.0)
    found = await names.find("localhost", 80)
    address = found[-1][4][0]
    names.pin("localhost", 80, address)
    assert [one[4][0] for one in await names.find("localhost", 80)] == [address]
    names.pin("localhost", 80, "192.0.2.1")
    assert [one[4][0] for one in await names.find("localhost", 80)] == [address]
    assert (names.took_ns("localhost", 80) or 0) > 0
    with pytest.raises(OSError) as first:
        await names.find("does-not-exist.invalid", 80)
    with pytest.raises(OSError) as again:
        await names.find("does-not-exist.invalid", 80)
    assert first.value is again.value
    assert names.took_ns("does-not-exist.invalid", 80) is None
