"""The simulator over real sockets: both dialects byte by byte, usage, errors, the cache, metrics, faults in streams."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

READY_S_MAX = 30.0
REPLY_S_MAX = 30.0
HELLO = {"messages": [{"role": "user", "content": "hello there, who are you?"}]}
TREE = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4"
CHAT = "/v1/chat/completions"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def simulator(flags: str = "", speed: float = 100) -> Iterator[int]:
    """A running simulator's port."""
    port = free_port()
    argv = [sys.executable, "-m", "server.sim", "--port", str(port), "--sim-speed", str(speed), *flags.split()]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + READY_S_MAX
        while True:
            assert process.poll() is None, "the simulator ended while starting"
            assert time.monotonic() < deadline, "the simulator did not open its port"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.01)
        yield port
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    """A baseline of 0.5.9."""
    with simulator("--enable-metrics --enable-cache-report --random-seed 7 --served-model-name m") as port:
        yield port


@pytest.fixture(scope="module")
def tree() -> Iterator[int]:
    """A speculating server of 0.5.9 with stamps."""
    with simulator(f"{TREE} --enable-metrics --decode-log-interval 1 --sim-stamp --max-running-requests 16") as port:
        yield port


@pytest.fixture(scope="module")
def new() -> Iterator[int]:
    """A speculating chain of 0.5.23 that thinks before it answers."""
    chain = TREE.replace("topk 4", "topk 1")
    with simulator(f"--sim-version 0.5.23 {chain} --reasoning-parser kimi_k2 --incremental-streaming-output") as port:
        yield port


def call(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    wait_s: float = REPLY_S_MAX,
) -> tuple[int, bytes]:
    """Status and whole body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=wait_s)
    raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, raw, headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def events(raw: bytes) -> list[str]:
    """The events of a stream without `data: `."""
    return [part.removeprefix("data: ") for part in raw.decode().split("\n\n") if part]


def stream(port: int, body: dict[str, Any], path: str = CHAT, **headers: str) -> list[Any]:
    """The parsed events of one stream, whose end mark is checked and left out."""
    status, raw = call(
        port, "POST", path, {"stream": True, **body}, {k.replace("_", "-"): v for k, v in headers.items()}
    )
    assert status == 200
    *rest, last = events(raw)
    assert last == "[DONE]"
    return [json.loads(event) for event in rest]


def text_of(chunks: list[Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def metric(port: int, name: str) -> float:
    """One sample of /metrics, labels ignored."""
    found = re.search(rf"^sglang:{name}\{{.*\}} (.+)$", call(port, "GET", "/metrics")[1].decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def normal(raw: bytes) -> list[str]:
    """Events with what differs between requests taken out."""
    shown = re.sub(r'"id":"[0-9a-f]{32}"', '"id":"ID"', raw.decode())
    shown = re.sub(r'"created":\d+', '"created":1', shown)
    shown = re.sub(r'content":" \w+"', 'content":" word"', shown)
    return events(shown.encode())


START = '{"id":"ID","object":"chat.completion.chunk","created":1,"model":"m","choices":['
NOT_YET = '"logprobs":null,"finish_reason":null,"matched_stop":null}]'
LENGTH = '"logprobs":null,"finish_reason":"length","matched_stop":null}]'
TOOLS = '"reasoning_content":null,"tool_calls":null},'
USAGE = '],"usage":{"prompt_tokens":8,"total_tokens":9,"completion_tokens":1,"prompt_tokens_details":null,'


def test_chat_stream_of_0_5_9_is_the_released_one(plain: int) -> None:
    """Role, text, finish, usage and end mark carry every key, null or not, in 0.5.9's order."""
    asked = {**HELLO, "model": "m", "stream": True, "max_tokens": 1, "ignore_eos": True}
    raw = call(plain, "POST", CHAT, {**asked, "stream_options": {"include_usage": True}})[1]
    assert normal(raw) == [
        START + '{"index":0,"delta":{"role":"assistant","content":"",' + TOOLS + NOT_YET + ',"usage":null}',
        START + '{"index":0,"delta":{"role":null,"content":" word",' + TOOLS + NOT_YET + ',"usage":null}',
        START + '{"index":0,"delta":{"role":null,"content":null,' + TOOLS + LENGTH + ',"usage":null}',
        START + USAGE + '"reasoning_tokens":0}}',
        "[DONE]",
    ]


def test_chat_stream_of_0_5_23_leaves_keys_out(new: int) -> None:
    """0.5.23 omits keys, orders them otherwise, and names reasoning alone in a thought's event."""
    asked = {**HELLO, "model": "m", "stream": True, "max_tokens": 1, "ignore_eos": True, "separate_reasoning": False}
    raw = call(new, "POST", CHAT, {**asked, "stream_options": {"include_usage": True}})[1]
    assert normal(raw) == [
        START + '{"index":0,"delta":{"reasoning_content":null,"role":"assistant","content":""},' + NOT_YET + "}",
        START + '{"index":0,"delta":{"reasoning_content":null,"content":" word"},' + NOT_YET + "}",
        START + '{"index":0,"delta":{"reasoning_content":null},' + LENGTH + "}",
        START + USAGE + '"completion_tokens_details":null,"reasoning_tokens":0}}',
        "[DONE]",
    ]


def test_completions_stream(plain: int) -> None:
    """Text, finish, usage and end mark of the older API."""
    asked = {"prompt": "hello", "max_tokens": 3, "ignore_eos": True, "stream_options": {"include_usage": True}}
    chunks = stream(plain, asked, "/v1/completions")
    assert [chunk["object"] for chunk in chunks] == ["text_completion"] * 5
    assert [bool(c["text"]) for chunk in chunks for c in chunk["choices"]] == [True, True, True, False]
    assert chunks[-1]["usage"] == {"prompt_tokens": 2, "total_tokens": 5, "completion_tokens": 3, "reasoning_tokens": 0}
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4


def test_generate_text_is_cumulative_or_a_delta(plain: int, new: int) -> None:
    """/generate repeats the text so far unless incremental output was asked for at launch."""
    asked = {"text": "hello", "sampling_params": {"max_new_tokens": 40, "ignore_eos": True}}
    whole = json.loads(call(plain, "POST", "/generate", asked)[1])
    cumulative, deltas = stream(plain, asked, "/generate"), stream(new, asked, "/generate")
    assert cumulative[-1]["text"] == whole["text"] == "".join(event["text"] for event in deltas)
    assert cumulative[-1]["output_ids"] == [id for event in deltas for id in event["output_ids"]]
    assert all(b["text"].startswith(a["text"]) for a, b in pairwise(cumulative))
    assert [event["meta_info"]["finish_reason"] for event in cumulative[:-1]] == [None] * 39
    assert cumulative[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 40}
    assert "total_retractions" in cumulative[0]["meta_info"]
    assert "num_retractions" in deltas[0]["meta_info"]


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/generate"])
def test_whole_answers_hold_what_the_stream_holds(plain: int, path: str) -> None:
    """Without streaming the same text comes in one body, with its usage."""
    limits = {"max_tokens": 30, "ignore_eos": True}
    asked = {
        **HELLO,
        "prompt": "hi",
        "text": "hi",
        "sampling_params": {"max_new_tokens": 30, "ignore_eos": True},
        **limits,
    }
    status, raw = call(plain, "POST", path, asked)
    whole, chunks = json.loads(raw), stream(plain, asked, path)
    assert status == 200
    if path == CHAT:
        assert whole["choices"][0]["message"]["content"] == text_of(chunks)
        assert whole["choices"][0]["finish_reason"] == "length"
        assert whole["usage"]["completion_tokens"] == 30
    elif path == "/generate":
        assert (whole["text"], whole["meta_info"]["completion_tokens"]) == (chunks[-1]["text"], 30)
    else:
        assert whole["choices"][0]["text"] == "".join(c["text"] for chunk in chunks for c in chunk["choices"])


def test_speculation_sends_several_tokens_an_event_and_the_same_text(plain: int, tree: int) -> None:
    """A variant changes how tokens are bundled, never the answer, and the usage counts tokens rather than events."""
    asked = {**HELLO, "max_tokens": 200, "ignore_eos": True, "stream_options": {"continuous_usage_stats": True}}
    slow, fast = stream(plain, asked), stream(tree, asked)
    assert text_of(slow) == text_of(fast)
    counts = [c["usage"]["completion_tokens"] for c in fast if c.get("usage")]
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert counts[-1] == 200
    assert {b - a for a, b in pairwise(counts)} == {1, 2, 3, 4}
    assert len(fast) < 0.7 * len(slow)


def test_kind_in_the_request_id_decides_acceptance(tree: int) -> None:
    """A prompt of a well accepted kind takes fewer verify steps than a badly accepted one; unknown ones lie between."""

    def steps(kind: str) -> int:
        asked = {"text": "the same prompt", "sampling_params": {"max_new_tokens": 600, "ignore_eos": True}}
        meta = stream(tree, asked, "/generate", X_Request_Id=f"point.7.{kind}")[-1]["meta_info"]
        assert meta["spec_verify_ct"] + meta["spec_accept_token_num"] == 599
        assert meta["spec_accept_length"] == pytest.approx(600 / meta["spec_verify_ct"])
        return int(meta["spec_verify_ct"])

    assert steps("fixed") < steps("code") < steps("nobody-knows") < steps("story")


def test_average_accept_length_is_that_of_the_requests_since_the_flush(tree: int) -> None:
    """/server_info's average follows the verify steps, and a flush forgets it."""
    assert call(tree, "POST", "/flush_cache")[0] == 200
    assert "avg_spec_accept_length" not in json.loads(call(tree, "GET", "/server_info")[1])["internal_states"][0]
    asked = {"text": "a prompt", "sampling_params": {"max_new_tokens": 300, "ignore_eos": True}}
    steps = [stream(tree, {**asked, "text": f"{i}"}, "/generate")[-1]["meta_info"]["spec_verify_ct"] for i in range(3)]
    state = json.loads(call(tree, "GET", "/server_info")[1])["internal_states"][0]
    assert state["avg_spec_accept_length"] == pytest.approx(3 * 299 / sum(steps))
    assert metric(tree, "spec_accept_length") > 1


def test_spec_details_in_chat_of_0_5_23(new: int, tree: int) -> None:
    """0.5.23 adds an event with its speculation where asked; 0.5.9 knows no such thing."""
    asked = {**HELLO, "max_tokens": 100, "ignore_eos": True, "return_spec_tokens_details": True}
    (details,) = (c["sglext"]["spec_tokens_details"] for c in stream(new, asked) if "sglext" in c)
    assert details["spec_verify_ct"] + details["spec_num_correct_drafts"] == 99
    assert not any("sglext" in chunk for chunk in stream(tree, asked))


def test_reasoning_comes_before_the_answer(new: int) -> None:
    """With a reasoning parser the first quarter is reasoning, in events without content."""
    chunks = stream(new, {**HELLO, "max_tokens": 100, "ignore_eos": True, "stream_options": {"include_usage": True}})
    deltas = [c["delta"] for chunk in chunks[1:] for c in chunk["choices"]]
    kinds = ["r" if d["reasoning_content"] else "c" for d in deltas if d["reasoning_content"] or d.get("content")]
    assert re.fullmatch("r+c+", "".join(kinds))
    assert all("content" not in d for d in deltas if d["reasoning_content"])
    assert chunks[-1]["usage"]["reasoning_tokens"] == 25


def test_answers_end_by_themselves_unless_told_to_ignore_it(plain: int) -> None:
    """Without ignore_eos an answer has its own length and ends with `stop`; its last token has no text."""
    asked = {**HELLO, "max_tokens": 2000, "stream_options": {"include_usage": True}}
    chunks = stream(plain, asked)
    (reason,) = (c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"])
    tokens = chunks[-1]["usage"]["completion_tokens"]
    assert reason == "stop"
    assert 50 <= tokens <= 800
    assert len(text_of(chunks).split()) == tokens - 1
    shorter = stream(plain, {**asked, "max_tokens": 20})
    assert (len(text_of(shorter).split()), shorter[-2]["choices"][0]["finish_reason"]) == (20, "length")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b"{not json"),
        (CHAT, b"[]"),
        (CHAT, {}),
        (CHAT, {"messages": []}),
        (CHAT, {"messages": ["hi"]}),
        (CHAT, {**HELLO, "max_tokens": 0}),
        (CHAT, {**HELLO, "max_tokens": -5}),
        (CHAT, {**HELLO, "max_tokens": "many"}),
        (CHAT, {**HELLO, "max_tokens": 10**9}),
        (CHAT, {**HELLO, "stream_options": 3}),
        ("/v1/completions", {}),
        ("/generate", {"text": ["a", "b"]}),
        ("/generate", {"text": "a", "sampling_params": 5}),
    ],
)
def test_bad_requests_get_400_in_sglang_s_shape(plain: int, path: str, body: Any) -> None:
    """What cannot be understood is refused before any stream begins."""
    status, raw = call(plain, "POST", path, body)
    answer = json.loads(raw)
    assert status == 400
    if path == "/generate":
        assert answer["error"]["message"]
    else:
        assert {**answer, "message": ""} == {
            "object": "error",
            "message": "",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/health_generate", 200),
        ("GET", "/get_server_info", 200),
        ("GET", "/model_info", 200),
        ("GET", "/v1/models", 200),
        ("POST", "/flush_cache", 200),
        ("GET", "/flush_cache", 200),
        ("POST", "/start_profile", 200),
        ("POST", "/stop_profile", 200),
        ("POST", "/abort_request", 200),
        ("GET", CHAT, 405),
        ("GET", "/nowhere", 404),
        ("GET", "/health?x=1", 200),
    ],
)
def test_routes(plain: int, method: str, path: str, status: int) -> None:
    """Every endpoint answers by its method; others are 404 or 405."""
    assert call(plain, method, path)[0] == status


def test_server_info_holds_the_resolved_flags(plain: int, tree: int) -> None:
    """Identity, resolved speculation and overlap, the cap, and that all this is simulated at which speed."""
    info, spec = (json.loads(call(port, "GET", "/server_info")[1]) for port in (plain, tree))
    assert (info["random_seed"], info["served_model_name"], info["port"]) == (7, "m", plain)
    assert (info["simulated"], info["sim_speed"], info["version"]) == (True, 100.0, "0.5.9")
    assert (info["disable_overlap_schedule"], spec["disable_overlap_schedule"]) == (False, True)
    assert spec["speculative_num_draft_tokens"] == 37
    assert spec["internal_states"][0]["effective_max_running_requests_per_dp"] == 16
    assert json.loads(call(plain, "GET", "/v1/models")[1])["data"][0]["id"] == "m"


def test_metrics_only_where_enabled_and_counters_exact(plain: int, new: int) -> None:
    """Counters move by exactly what was asked and sent; without the flag there is no /metrics."""
    names = ("prompt_tokens_total", "generation_tokens_total", "num_requests_total", "cached_tokens_total")
    call(plain, "POST", "/flush_cache")
    before = [metric(plain, name) for name in names]
    for _ in range(2):
        stream(plain, {**HELLO, "max_tokens": 33, "ignore_eos": True})
    after = [metric(plain, name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [16, 66, 2, 7]
    assert metric(plain, "num_running_reqs") == 0
    assert call(new, "GET", "/metrics")[0] == 404


def test_cached_tokens_are_reported_until_the_flush(plain: int) -> None:
    """An exact repetition hits all but one prompt token; a flush makes it miss, and a miss is null as in SGLang."""
    asked = {
        "messages": [{"role": "user", "content": "x" * 394}],
        "max_tokens": 5,
        "stream_options": {"include_usage": True},
    }
    call(plain, "POST", "/flush_cache")
    details = [stream(plain, asked)[-1]["usage"]["prompt_tokens_details"] for _ in range(2)]
    call(plain, "POST", "/flush_cache")
    details.append(stream(plain, asked)[-1]["usage"]["prompt_tokens_details"])
    assert details == [None, {"cached_tokens": 99}, None]


class Open:
    """A stream that is being read by hand."""

    def __init__(self, port: int, **body: Any) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=REPLY_S_MAX)
        raw = json.dumps({**HELLO, "stream": True, "ignore_eos": True, **body}).encode()
        self.sock.sendall(
            b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(raw)) + raw
        )
        self.received = b""

    def until(self, mark: bytes) -> bytes:
        """Read on until the mark has come, or the end."""
        while mark not in self.received:
            data = self.sock.recv(65536)
            if not data:
                break
            self.received += data
        return self.received


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + REPLY_S_MAX
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.01)


def test_flush_is_refused_while_a_request_is_pending_and_a_lost_client_frees_it() -> None:
    """A flush during a stream is 400; when the client hangs up, the request is aborted and the flush works."""
    with simulator("--enable-metrics", speed=1) as port:
        reader = Open(port, max_tokens=100_000)
        reader.until(b" ")
        assert call(port, "POST", "/flush_cache")[0] == 400
        reader.sock.close()
        wait_for(lambda: call(port, "POST", "/flush_cache")[0] == 200)
        assert metric(port, "num_aborted_requests_total") == 1


def test_abort_ends_a_stream_by_its_rid() -> None:
    """/abort_request ends the named stream with the finish reason abort."""
    with simulator(speed=1) as port:
        reader = Open(port, max_tokens=100_000, rid="mine")
        reader.until(b'"content":" ')
        assert call(port, "POST", "/abort_request", {"rid": "mine"})[0] == 200
        assert b'"finish_reason":"abort"' in reader.until(b"[DONE]")


def test_keep_alive_pieces_and_pipelining(plain: int) -> None:
    """One connection serves one request after another, however its bytes are cut, and closes where asked to."""
    raw = json.dumps({**HELLO, "max_tokens": 2}).encode()
    request = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(raw)) + raw
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", plain), timeout=REPLY_S_MAX) as sock:
        for place in range(0, len(request), 40):
            sock.sendall(request[place : place + 40])
        sock.sendall(request + last)
        received = b""
        while data := sock.recv(65536):
            received += data
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.count(b'"completion_tokens":2') == 2


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000, 431),
        (b"POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /generate HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
    ],
)
def test_malformed_http_is_refused_and_the_connection_closed(plain: int, raw: bytes, status: int) -> None:
    """What is no request gets one answer and the end of the connection."""
    with socket.create_connection(("127.0.0.1", plain), timeout=REPLY_S_MAX) as sock:
        sock.sendall(raw)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := sock.recv(65536):
                received += data
    assert received.startswith(b"HTTP/1.1 %d " % status)


def test_stamps_are_the_time_of_writing(tree: int) -> None:
    """With --sim-stamp every chat event carries monotonic nanoseconds that never decrease, within the request."""
    before = time.monotonic_ns()
    chunks = stream(tree, {**HELLO, "max_tokens": 100, "ignore_eos": True, "stream_options": {"include_usage": True}})
    stamps = [int(chunk["system_fingerprint"]) for chunk in chunks]
    assert stamps == sorted(stamps)
    assert before < stamps[0] < stamps[-1] < time.monotonic_ns()


def test_cap_queues_the_rest(tree: int) -> None:
    """Sixteen run, the others wait, and the gauges show it."""
    readers = [Open(tree, max_tokens=20_000) for _ in range(20)]
    wait_for(lambda: (metric(tree, "num_running_reqs"), metric(tree, "num_queue_reqs")) == (16, 4))
    for reader in readers:
        reader.sock.close()
    wait_for(lambda: call(tree, "POST", "/flush_cache")[0] == 200)


def test_many_streams_at_once_get_their_own_answers(plain: int) -> None:
    """Sixty concurrent streams end whole, each with its own prompt's text."""
    answers: dict[int, str] = {}

    def ask(place: int) -> None:
        body = {"messages": [{"role": "user", "content": f"prompt {place % 30}"}], "max_tokens": 64, "ignore_eos": True}
        answers[place] = text_of(stream(plain, body))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(REPLY_S_MAX)
    assert len(answers) == 60
    assert all(answers[place] == answers[place + 30] for place in range(30))
    assert len(set(answers.values())) == 30
    assert {len(text.split()) for text in answers.values()} == {64}


def test_api_key_guards_all_but_health_and_metrics() -> None:
    """Without the key 401, with it 200; /health and /metrics are open."""
    with simulator("--api-key secret --enable-metrics") as port:
        codes = [call(port, "GET", path)[0] for path in ("/health", "/metrics", "/server_info", "/v1/models")]
        assert codes == [200, 200, 401, 401]
        assert call(port, "GET", "/server_info", headers={"Authorization": "Bearer secret"})[0] == 200


def test_refusals_strike_the_asked_share() -> None:
    """A quarter of the requests is answered 503, another fault's half 429."""
    with simulator("--sim-fault 503:0.25") as port:
        codes = [call(port, "POST", CHAT, {**HELLO, "max_tokens": 1})[0] for _ in range(8)]
        assert codes.count(503) == 2
        assert codes.count(200) == 6
    with simulator("--sim-fault http-429:0.5") as port:
        assert [call(port, "POST", CHAT, {**HELLO, "max_tokens": 1})[0] for _ in range(4)].count(429) == 2


def test_error_event_in_a_200_stream() -> None:
    """The stream begins well, then carries an error, no finish reason, and the end mark."""
    with simulator("--sim-fault error_event:1") as port:
        parsed = stream(port, {**HELLO, "max_tokens": 50})
        assert parsed[-1]["error"]["code"] == 500
        assert 0 < len(text_of(parsed[:-1]).split()) < 50
        assert not any(c["finish_reason"] for chunk in parsed[:-1] for c in chunk["choices"])
        wait_for(lambda: call(port, "POST", "/flush_cache")[0] == 200)


def test_cut_stream_ends_without_its_last_chunk() -> None:
    """The connection breaks in the middle of the body."""
    with simulator("--sim-fault cut_stream:1") as port:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            call(port, "POST", CHAT, {**HELLO, "max_tokens": 50, "stream": True})


def test_garbage_and_huge_events_keep_the_framing() -> None:
    """Garbage is one event that is no JSON; a huge event is one of the asked size; both streams end whole."""
    with simulator("--sim-fault garbage:1") as port:
        raw = call(port, "POST", CHAT, {**HELLO, "max_tokens": 50, "stream": True})[1]
        parts = raw.split(b"\n\n")
        assert sum(b"\xff\xfe" in part for part in parts) == 1
        assert b"data: [DONE]" in parts
    with simulator("--sim-fault huge_event:1:2") as port:
        raw = call(port, "POST", CHAT, {**HELLO, "max_tokens": 50, "stream": True})[1]
        assert sum(len(part) > 2**21 for part in raw.split(b"\n\n")) == 1


def test_hang_accepts_and_never_answers() -> None:
    """After the asked time, or from the asked request on, the port is open, and nothing ever comes back."""
    with simulator("--sim-fault hang:0:2") as port:
        assert call(port, "POST", CHAT, {**HELLO, "max_tokens": 3})[0] == 200
        with pytest.raises(TimeoutError):
            call(port, "POST", CHAT, {**HELLO, "max_tokens": 90000}, wait_s=0.5)
    with simulator("--sim-fault hang:0") as port:
        with socket.create_connection(("127.0.0.1", port), timeout=REPLY_S_MAX) as sock:
            sock.settimeout(0.5)
            sock.sendall(b"GET /server_info HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises(TimeoutError):
                sock.recv(1)


def test_stall_makes_a_gap() -> None:
    """The engine stands still for the asked time once a period, and goes on at its rate afterwards."""
    with simulator("--sim-fault stall:0.4:0.8 --sim-stamp", speed=10) as port:
        chunks = stream(port, {**HELLO, "max_tokens": 800, "ignore_eos": True})
        stamps = [int(chunk["system_fingerprint"]) for chunk in chunks]
        gaps = [(b - a) / 1e9 for a, b in pairwise(stamps)]
        assert sum(gap > 0.3 for gap in gaps) >= 1


def test_wrong_version_and_other_variant_show_themselves() -> None:
    """/server_info betrays a server that is not the one asked for."""
    with simulator("--sim-fault wrong_version --sim-fault other_variant") as port:
        info = json.loads(call(port, "GET", "/server_info")[1])
        assert info["version"] != "0.5.9"
        assert info["speculative_algorithm"] == "EAGLE3"
