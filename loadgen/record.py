"""The schemas of the dataset: what each column is called, its type, unit and meaning.

Pure: names and types only; `store` turns them into Arrow. A type changes only with SCHEMA_VERSION.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Column:
    """One column; `type` is string, bool, int32, int64, float64, timestamp or list<...> of int32, int64, float32."""

    name: str
    type: str
    doc: str


class Outcome(StrEnum):
    """How one request ended. `ok` alone enters latency statistics."""

    OK = "ok"
    HTTP_STATUS = "http_status"  # a status other than 200
    ERROR_EVENT = "error_event"  # an error inside a 200 stream
    TRUNCATED = "truncated"  # the stream ended without finish reason and without end mark
    CONNECTION_LOST = "connection_lost"  # the transport broke in mid-stream
    EMPTY = "empty"  # ended well, but no output came
    MALFORMED = "malformed"  # not the dialect, or usage that contradicts the events
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"
    TIMEOUT_STALL = "timeout_stall"
    TIMEOUT_TOTAL = "timeout_total"
    CONNECT = "connect"  # refused, unreachable, name not found
    TLS = "tls"
    REDIRECT = "redirect"  # 3xx: never followed
    ENCODING = "encoding"  # compressed although identity was asked
    TOO_LARGE = "too_large"  # a cap was reached
    SERVER_GONE = "server_gone"  # in flight when the server died
    CUT = "cut"  # in flight when the Point ended; not a failure
    UNSENT = "unsent"  # planned, never sent


# Ended by a deadline of ours: how long they would have taken is known to be at least that, and no more.
CENSORED = frozenset({Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_STALL, Outcome.TIMEOUT_TOTAL})

NOT_FAILURES = frozenset({Outcome.OK, Outcome.CUT, Outcome.UNSENT})


def failed(outcome: str) -> bool:
    """Whether a request with this outcome counts as failed."""
    return outcome not in NOT_FAILURES


# Identity: the same for every row of a Point.
IDENTITY = (
    Column("study", "string", "name of the study, null outside one"),
    Column("variant", "string", "how the server was started"),
    Column("spec_mode", "string", "tree_sync, tree_overlap, chain_sync, chain_overlap, adaptive, ngram or none"),
    Column("engine", "string", "sglang, sim, vllm, llama_cpp or external"),
    Column("engine_version", "string", "as the server tells it, null if it does not"),
    Column("simulated", "bool", "true: not hardware, a simulation"),
    Column("sim_speed", "float64", "how many times faster than the profile's hardware; null for a real engine"),
    Column("model", "string", "model.name"),
    Column("workload", "string", "workload.name"),
    Column("workload_hash", "string", "hash of all that decides what is asked"),
    Column("block", "int32", "the unit of pairing, and a seed"),
    Column("repeat", "bool", "true: the baseline once more at the end, to see drift; belongs to no pair"),
    Column("concurrency", "int32", "streams in flight; null in open loop"),
    Column("rate", "float64", "requests a second; null in closed loop"),
    Column("point_id", "string", "one measured cell"),
    Column("launch_id", "string", "one life of one server"),
    Column("stack", "string", "hash of what must match in a comparison, the workload apart: must_match of launch.json"),
    Column("started_at", "timestamp", "when the Point began (UTC)"),
)

# What the worker knows of one request. Times are nanoseconds since the Point began, on the worker's monotonic clock;
# null where it never came.
REQUEST = (
    Column("seq", "int64", "number of the request in the Point's plan"),
    Column("prompt_id", "string", "which text"),
    Column("prompt_kind", "string", "code, chat, summary, ..."),
    Column("conversation", "int64", "number of the conversation in the plan; null where requests are none"),
    Column("turn", "int32", "which turn of its conversation, from 1; null where requests are none"),
    Column("worker", "int32", "which worker sent it"),
    Column("host", "string", "the worker's host"),
    Column("endpoint", "string", "URL the request went to"),
    Column(
        "planned_ns",
        "int64",
        "when it should be sent: the plan in open loop; in closed loop when its stream was free, think time over",
    ),
    Column("sent_ns", "int64", "just before its first byte went to the socket"),
    Column("headers_ns", "int64", "response head complete"),
    Column("first_chunk_ns", "int64", "first event of any kind"),
    Column("first_token_ns", "int64", "first event that carried generated output, reasoning included"),
    Column("first_answer_ns", "int64", "first event that carried answer text"),
    Column("last_token_ns", "int64", "last event that carried output"),
    Column("done_ns", "int64", "end of the response, whatever it was"),
    Column("address", "string", "IP address that its connection went to; null where there was none"),
    Column(
        "dns_ns", "int64", "duration of resolving the endpoint's name, once before the Point; null on reuse, without"
    ),
    Column("connect_ns", "int64", "duration of opening the connection (TCP, TLS); null on reuse"),
    Column("tls_ns", "int64", "the part of connect_ns that was TLS; null without"),
    Column(
        "refill_ns",
        "int64",
        "how long the stream, in open loop the place that it had to wait for, stood empty before this request",
    ),
    Column("chunk_ns", "list<int64>", "stamp of every event that carried output"),
    Column("chunk_tokens", "list<int32>", "tokens of each of those events; null where the server does not tell"),
    Column("prompt_tokens", "int32", "as the server counts"),
    Column("output_tokens", "int32", "see token_source"),
    Column("cached_tokens", "int32", "prompt tokens found in the server's cache, null if not told"),
    Column("planned_prompt_tokens", "int32", "prompt tokens aimed at (workload.input_tokens); null where texts decide"),
    Column("planned_tokens", "int32", "output tokens asked for (max_tokens)"),
    Column("token_source", "string", "usage, tokenizer or events"),
    Column("spec_verify_steps", "int32", "verify steps of this request; null if unknown"),
    Column("bytes", "int64", "bytes of the response's body"),
    Column("reads", "int32", "socket reads that carried body bytes"),
    Column("done_seen", "bool", "whether the dialect's end mark came"),
    Column("short", "bool", "ended well with fewer tokens than asked under ignore_eos"),
    Column("answer_sha256", "string", "hash of the answer's text; null where none came"),
    Column("outcome", "string", "ok or why not"),
    Column("http_status", "int32", "null if no head came"),
    Column("retry_after", "string", "the Retry-After header of a refusal, seconds or a date; never obeyed"),
    Column("error", "string", "at most 200 characters; never a body, never a header"),
    Column("finish_reason", "string", "as the server tells it"),
)

# Known only when the Point is over.
JUDGED = (
    Column("in_window", "bool", "sent inside the window"),
    Column("verdict", "string", "the Point's verdict"),
)

REQUESTS = IDENTITY + REQUEST + JUDGED

PROBE_S = 0.005  # the loop probe's sleep: 200 samples a second, at a cost that does not show

HEALTH = (
    *IDENTITY,
    Column("worker", "int32", "which worker"),
    Column("host", "string", "its host"),
    Column("pid", "int64", "its process"),
    Column("t_ns", "int64", "end of this second, nanoseconds since the Point began"),
    Column("utc", "timestamp", "the same on the wall clock, once a second, for correlation only"),
    Column("duration_ns", "int64", "length of this row's interval"),
    Column("loop_lag_ms", "list<float32>", "overrun of each of the loop probe's sleeps"),
    Column("in_flight", "int32", "requests in flight at its end"),
    Column("sent", "int64", "requests sent so far"),
    Column("finished", "int64", "requests ended so far, ok or failed"),
    Column("failed", "int64", "failed so far"),
    Column("reads", "int64", "body reads so far"),
    Column("cpu_share", "float64", "CPU seconds of the process a second"),
    Column("waited_share", "float64", "share of the interval in which others had the core that the loop waited for"),
    Column("rss_bytes", "int64", "resident memory of the process"),
    Column("descriptors", "int32", "open file descriptors"),
    Column("descriptors_max", "int64", "the process's limit of them"),
    Column("gc_pause_max_ms", "float64", "longest garbage collection in the interval"),
)

SERVER_METRICS = (
    Column("launch_id", "string", "one life of one server"),
    Column("variant", "string", "how the server was started"),
    Column("engine", "string", "kind of server"),
    Column("simulated", "bool", "true: not hardware, a simulation"),
    Column("utc", "timestamp", "when it was read"),
    Column("t_mono_ns", "int64", "the same on the server node's monotonic clock"),
    Column("name", "string", "the metric's name as the server gives it"),
    Column("labels", "string", "its labels as JSON"),
    Column("value", "float64", "its value"),
)

MAX_ERROR_CHARS = 200


def names(columns: Iterable[Column]) -> list[str]:
    """The columns' names, in order."""
    return [column.name for column in columns]
