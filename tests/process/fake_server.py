"""A server for the tests of server/: takes SGLang's argv, answers like it, and misbehaves as the JSON in $FAKE says.

say: lines to print · exit: end at once with this status · env: print these variables · ignore_term · grandchild,
escaped: fork one (in the group / in a session of its own, both ignore TERM) · bind: false never binds · seed: tell
this one · health_503_s, generation_503_s: refuse for so long after the start · titled: fork a child with an engine's
title · nameless: forked ones have no environment · tokens: that a generation yields · info: more for /server_info ·
pids: file to write all pids to · port: bind another one · neighbour: an escaped orphan listens on the next port ·
linger_s: keep the socket for so long after TERM · bind_nccl: listen on that port too · flood: print so many lines, then
say_last · slow_generation_s: answer after so long · POST /fork: an escaped orphan; it answers the pid
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAKE = json.loads(os.environ.get("FAKE", "{}"))
BEGAN_S = time.monotonic()
REQUESTS: list[str] = []
sockets: list[socket.socket] = []


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--nccl-port", type=int, default=0)
    parser.add_argument("--random-seed", type=int, default=0)
    return parser.parse_known_args()[0]


def fork_sleeper(own_session: bool, title: str = "", port: int = 0) -> int:
    """A child that ignores TERM and sleeps for ever, listening on a port if one is given."""
    pid = os.fork()
    if pid == 0:
        become_sleeper(own_session, title, port)
    return pid


def become_sleeper(own_session: bool, title: str, port: int) -> None:
    if own_session:
        os.setsid()
    listen = f"import socket; held = socket.create_server(('127.0.0.1', {port}))\n" if port else ""
    program = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)"
    program = listen + program
    environment = {} if FAKE.get("nameless") else os.environ
    os.execve(sys.executable, [title or sys.executable, "-I", "-S", "-c", program], environment)


def orphan(own_session: bool, port: int = 0) -> int:
    """A sleeper whose parent has ended."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, str(fork_sleeper(own_session, port=port)).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read_end, 20))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, content: object) -> None:
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def early(self, key: str) -> bool:
        return time.monotonic() - BEGAN_S < FAKE.get(key, 0)

    def do_GET(self) -> None:
        options = parse()
        if self.path == "/health":
            self.answer(503 if self.early("health_503_s") else 200, "")
        elif self.path == "/server_info":
            seed = FAKE.get("seed", options.random_seed)
            told = {
                "random_seed": seed,
                "version": "0.5.9",
                "api_key": "canary",
                "launch_command": "x --api-key canary",
            }
            told |= FAKE.get("info", {})
            self.answer(200, {**told, "authorization_seen": self.headers.get("Authorization")})
        elif self.path == "/v1/models":
            self.answer(200, {"data": [{"id": "fake-model"}]})
        elif self.path == "/metrics":
            lines = ['sglang:num_running_reqs{tp_rank="0"} 3.0', 'sglang:num_running_reqs{tp_rank="1"} 4.0', "other 1"]
            self.answer(200, "\n".join(lines) + "\n")
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        REQUESTS.append(self.path)
        if self.path == "/flush_cache":
            self.answer(200, "")
        elif self.path == "/fork":
            self.answer(200, {"pid": orphan(own_session=True)})
        elif FAKE.get("slow_generation_s"):
            time.sleep(FAKE["slow_generation_s"])
        elif self.early("generation_503_s"):
            self.answer(503, {})
        else:
            self.answer(200, {"usage": {"completion_tokens": FAKE.get("tokens", 8)}})


def main() -> None:
    options = parse()
    if FAKE.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in FAKE.get("say", []):
        print(line, flush=True)
    for number in range(FAKE.get("flood", 0)):
        print(f"step {number + 1}")
    for line in FAKE.get("say_last", []):
        print(line, flush=True)
    for name in FAKE.get("env", []):
        print(f"{name}={os.environ.get(name)}", flush=True)
    pids = [os.getpid()]
    if FAKE.get("grandchild"):
        pids.append(orphan(own_session=False))
    if FAKE.get("escaped"):
        pids.append(orphan(own_session=True))
    if FAKE.get("neighbour"):
        pids.append(orphan(own_session=True, port=options.port + 1))
    if FAKE.get("linger_s"):
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(FAKE["linger_s"]), os._exit(0)))
    if FAKE.get("bind_nccl"):
        sockets.append(socket.create_server((options.host, options.nccl_port)))
    if FAKE.get("titled"):
        pids.append(fork_sleeper(own_session=False, title="sglang::scheduler_TP0"))
    if FAKE.get("pids"):
        with open(FAKE["pids"] + ".tmp", "w") as file:
            json.dump(pids, file)
        os.replace(FAKE["pids"] + ".tmp", FAKE["pids"])
    if "exit" in FAKE:
        sys.exit(FAKE["exit"])
    if FAKE.get("bind", True):
        ThreadingHTTPServer((options.host, FAKE.get("port", options.port)), Handler).serve_forever()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
