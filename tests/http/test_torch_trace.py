"""What becomes of a profile that is asked of a server: traces that come at once, on the word to stop, late or never."""

import gzip
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from server import torch_trace
from server.ask import Access
from server.spec import ServerSpec
from server.torch_trace import take

TRACE = json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}).encode()
SIM = ServerSpec("sim", "baseline", {}, {}, version="0.5.23")  # given a moment where a real one is given minutes


@pytest.fixture(autouse=True)
def in_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file rests sooner than a trace of a gigabyte."""
    for name, value_s in (("REST_S", 0.2), ("SIMULATED_S_MAX", 0.2), ("POLL_S", 0.05)):
        monkeypatch.setattr(torch_trace, name, value_s)


class Profiled:
    """A server with SGLang's two addresses; `on` says what each does with the folder that it was given."""

    def __init__(self, on: dict[str, Callable[[Path], int]]) -> None:
        self.asked: list[tuple[str, dict[str, Any] | None]] = []
        outer, self.folder = self, Path()

        class Answering(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.path, json.loads(body) if body else None))
                if body:
                    outer.folder = Path(json.loads(body)["output_dir"])
                status = on.get(self.path, lambda _: 404)(outer.folder)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def serve() -> Iterator[Callable[..., Profiled]]:
    made: list[Profiled] = []

    def make(**on: Callable[[Path], int]) -> Profiled:
        made.append(Profiled({f"/{name}_profile": act for name, act in on.items()}))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def write(*names: str, content: bytes | None = None) -> Callable[[Path], int]:
    def act(folder: Path) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).write_bytes(gzip.compress(TRACE) if content is None else content)
        return 200

    return act


def asked(server: Profiled, folder: Path, **fields: Any) -> dict[str, Any]:
    return take(server.url, Access(), ServerSpec(**{**vars(SIM), **fields}), folder, 5)


def test_the_first_rank_of_several(serve: Callable[..., Profiled], tmp_path: Path) -> None:
    """All ranks are awaited, rank 0 is read, and nobody is told to stop what ended by itself."""
    server = serve(start=write("17.5-TP-1.trace.json.gz", "17.5-TP-10.trace.json.gz", "17.5-TP-0.trace.json.gz"))
    found = asked(server, tmp_path / "t", tp=3)
    assert found["trace"] == str(tmp_path / "t/17.5-TP-0.trace.json.gz")
    assert (found["traces"], found["kinds"]["matrix"]) == (3, 1.0)
    assert server.asked == [
        (
            "/start_profile",
            {
                "output_dir": str(tmp_path / "t"), "num_steps": 5, "activities": ["CPU", "GPU"],
                "with_stack": False, "record_shapes": False,
            },
        )
    ]  # fmt: skip


def test_an_old_server_traces_its_stack_and_a_cpu_no_gpu(serve: Callable[..., Profiled], tmp_path: Path) -> None:
    """Before 0.5.14 only Python's frames say which forward is whose."""
    server = serve(start=write("1-TP-0.trace.json.gz"))
    asked(server, tmp_path, version="0.5.9", args={"device": "cpu"})
    body = server.asked[0][1] or {}
    assert (body["with_stack"], body["activities"]) == (True, ["CPU"])


def test_a_server_that_lacks_steps_is_told_to_stop(serve: Callable[..., Profiled], tmp_path: Path) -> None:
    """And writes what it has."""
    server = serve(start=lambda _: 200, stop=write("1-TP-0.trace.json.gz"))
    assert asked(server, tmp_path / "t")["traces"] == 1
    assert [path for path, _ in server.asked] == ["/start_profile", "/stop_profile"]


def test_no_trace_and_why(serve: Callable[..., Profiled], tmp_path: Path) -> None:
    """No such address, a server that writes nothing, one that is not there: a reason each, nothing raised."""
    assert asked(serve(), tmp_path)["why"] == "/start_profile answers 404"
    silent = serve(start=lambda _: 200, stop=lambda _: 500)
    found = asked(silent, tmp_path / "none")
    assert found == {"trace": None, "why": f"the server answers, and writes nothing to {tmp_path / 'none'}"}
    gone = take("http://127.0.0.1:9", Access(), SIM, tmp_path / "none", 5)
    assert gone["why"].startswith("/start_profile: ")


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"{}"), gzip.compress(b'{"traceEvents": [{]}')])
def test_what_is_no_trace_is_told_with_its_name(serve: Callable[..., Profiled], tmp_path: Path, content: bytes) -> None:
    """Whatever stands in the file."""
    found = asked(serve(start=write("1-TP-0.trace.json.gz", content=content)), tmp_path)
    assert found["trace"] is None
    assert found["why"].startswith(f"{tmp_path}/1-TP-0.trace.json.gz: ")


def test_a_trace_that_is_still_being_written(serve: Callable[..., Profiled], tmp_path: Path) -> None:
    """It rests for longer than a moment, cut off; the rest comes."""
    whole = gzip.compress(TRACE)

    def slowly(folder: Path) -> int:
        path = folder / "1-TP-0.trace.json.gz"
        path.write_bytes(whole[:20])

        def later() -> None:
            time.sleep(3 * torch_trace.REST_S)
            path.write_bytes(whole)

        threading.Thread(target=later, daemon=True).start()
        return 200

    assert asked(serve(start=slowly), tmp_path)["kinds"]["matrix"] == 1.0
