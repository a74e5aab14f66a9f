"""What is read from a server's own pages: metrics, facts without secrets, and the memory of its devices."""

import http.server
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from server import gpu, telemetry
from server.ask import base_url, names_secret, redacted
from server.telemetry import kept

PAGE = """# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="a \\"b\\" {c}",tp_rank="0"} 3.0
sglang:num_running_reqs{model_name="x",tp_rank="1"} 4.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{is_streaming="true"} 1e3
sglang:generation_tokens_total{is_streaming="false"} 24
# TYPE sglang:e2e_request_latency_seconds histogram
sglang:e2e_request_latency_seconds_bucket{le="+Inf"} 2
sglang:e2e_request_latency_seconds_sum 1.5
sglang:e2e_request_latency_seconds_count 2
vllm:num_requests_waiting{engine="0"} 9
"""


def test_kept_keeps_labels() -> None:
    """Of a page only the named samples become rows, each with its own labels."""
    assert kept(PAGE)[0] == ("sglang:num_running_reqs", {"model_name": 'a "b" {c}', "tp_rank": "0"}, 3.0)
    assert [name for name, _, _ in kept(PAGE)] == [
        *["sglang:num_running_reqs"] * 2,
        *["sglang:generation_tokens_total"] * 2,
        "vllm:num_requests_waiting",
    ]


@pytest.mark.parametrize("text", ["", "<html>not here</html>", "a{b=", '{"json": 1}', "sglang:token_usage x\n", "\0"])
def test_no_metrics_are_no_samples(text: str) -> None:
    """Whatever a server sends instead of metrics, there is simply nothing."""
    assert kept(text) == []


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({"api_key": "canary", "admin_api_key": None, "port": 1}, {"port": 1}),
        ({"hf_token": "canary", "ssl_keyfile_password": "canary"}, {}),
        (
            {"speculative_num_draft_tokens": 4, "max_total_tokens": 9},
            {"speculative_num_draft_tokens": 4, "max_total_tokens": 9},
        ),
        ({"tokenizer_path": "t", "skip_tokenizer_init": False}, {"tokenizer_path": "t", "skip_tokenizer_init": False}),
        ({"a": [{"secret": "canary", "b": 1}]}, {"a": [{"b": 1}]}),
        ({"launch_command": "x --api-key canary --port 1"}, {"launch_command": "x --api-key *** --port 1"}),
        ({"launch_command": "x --admin-api-key='can ary'"}, {"launch_command": "x --admin-api-key=***"}),
        ({"argv": ["x", "--api-key", "canary", "1"]}, {"argv": ["x", "--api-key", "***", "1"]}),
        ({"c": "--max-total-tokens 5"}, {"c": "--max-total-tokens 5"}),
        ({"note": "uses the-known-one here"}, {"note": "uses *** here"}),
    ],
)
def test_redacted(told: dict[str, Any], shown: dict[str, Any]) -> None:
    """Nothing that a server tells brings a secret into a file, and no flag that is needed gets lost."""
    assert redacted(told, ("the-known-one",)) == shown


def test_names_secret() -> None:
    """Names end like a secret's; those that only hold the word are none."""
    assert all(names_secret(name) for name in ("api_key", "KEY", "hf-token", "client.secret", "apikey"))
    assert not any(names_secret(name) for name in ("num_draft_tokens", "tokenizer", "keyboard", "key_value_heads"))


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_base_url(url: str) -> None:
    """Users copy /v1 along, or a slash."""
    assert base_url(url) == "http://h:1"


def test_memory_that_is_freed_late() -> None:
    """A device that is busy for a while after the stop is waited for, and then nothing is held."""
    free_at_s = time.monotonic() + 0.3

    def read(gpus: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(gpus, 10**9 if time.monotonic() > free_at_s else 60 * 10**9)

    assert gpu.memory_held(["0"], {"0": 10**9}, read, limit_s=30) == []
    assert time.monotonic() > free_at_s


def test_memory_that_is_kept() -> None:
    """At the limit each device that still holds memory is named; one that cannot be read is not accused."""
    held = gpu.memory_held(["0", "1"], {"0": 0}, lambda _: {"0": 2**33, "1": 2**33}, limit_s=0)
    assert held == ["GPU 0 still has 8.0 GiB in use"]


def test_no_gpu_is_no_error() -> None:
    """On a machine without a driver there is nothing to tell."""
    assert gpu.samples([]) == []
    assert gpu.memory_held([], {}) == []
    assert {"gpus", "links"} <= gpu.facts().keys()
    assert [gpu.numa_node(bus) for bus in (None, "", "x", "00000000:FF:1F.7", b"00000000:FF:1F.7")] == [None] * 5


def test_what_is_left_of_a_dead_server_is_not_asked() -> None:
    """A front end without its scheduler takes the question and never answers; a living one gives its last counters."""
    asked: list[str] = []

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'sglang:generation_tokens_total{a="b"} 7\n')

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sampler = telemetry.Sampler(f"http://127.0.0.1:{server.server_port}", ())
        sampler.stop()
        sampler.rows()
        before = len(asked)
        assert sampler.rows(alive=False) == []
        assert len(asked) == before
        assert [row["value"] for row in sampler.rows()] == [7]
        assert len(asked) == before + 1
        server.shutdown()
