"""A program for a network of its own: a name server that is slow and then says something else, and two Points.

Prints what the name server was asked and the rows of both Points, as JSON.
"""

import asyncio
import json
import socket
import struct
from dataclasses import replace
from typing import Any

import uvloop
from scripted import STREAM_HEAD, Answer, c, scripted
from test_worker import PLAN, exhausted, shard, until

NAME = "server.loadgen.test"
SLOW_S = 2.0
A = 1
FIRST, LATER = "127.0.0.1", "127.0.0.2"
CLOSING = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")  # each request opens a connection
SHOWN = ("address", "dns_ns", "connect_ns", "tls_ns", "sent_ns", "first_token_ns", "outcome")


class Server(asyncio.DatagramProtocol):
    """Answers for one name: slowly the first time, and with another address every later time."""

    def __init__(self) -> None:
        self.asked = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        end = data.index(b"\0", 12) + 5
        (kind,) = struct.unpack("!H", data[end - 4 : end - 2])
        address = FIRST if self.asked == 0 else LATER
        delay_s = SLOW_S if self.asked == 0 else 0.0
        self.asked += kind == A
        record = b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 0, 4) + socket.inet_aton(address) if kind == A else b""
        head = data[:2] + struct.pack("!HHHHH", 0x8180, 1, bool(record), 0, 0)
        reply = head + data[12:end] + record
        asyncio.get_running_loop().call_later(delay_s if record else 0.0, self.transport.sendto, reply, addr)


async def main() -> None:
    """Two Points, one after the other."""
    loop = asyncio.get_running_loop()
    _, names = await loop.create_datagram_endpoint(Server, local_addr=("127.0.0.1", 53))
    answer = Answer([(20, c("A"))], head=CLOSING)
    asked, points = [], []
    async with scripted(answer, host=FIRST) as first:
        port = int(first.url.rpartition(":")[2])
        async with scripted(answer, host=LATER, port=port):
            for _ in range(2):
                given = shard(f"http://{NAME}:{port}", plan=replace(PLAN, requests=12))
                board = await until(exhausted).drive(given)
                asked.append(names.asked)
                points.append([{name: row[name] for name in SHOWN} for row in board.rows])
    print(json.dumps({"asked": asked, "points": points}))


if __name__ == "__main__":
    uvloop.run(main())
