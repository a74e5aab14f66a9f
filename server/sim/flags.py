"""SGLang's command line as the simulator takes it: which flags each version knows, and nothing about what they mean.

An unknown flag, or one of the other version, ends the program with exit status 2 as argparse does.
"""

import argparse
from collections.abc import Sequence

VERSIONS = ("0.5.9", "0.5.23")
SPEED_DEFAULT = 10.0
NOISE_DEFAULT = 0.003

TEXT = """
    model-path tokenizer-path tokenizer-mode served-model-name host load-format dtype kv-cache-dtype
    quantization device chat-template api-key admin-api-key dist-init-addr log-level log-level-http
    attention-backend prefill-attention-backend decode-attention-backend sampling-backend grammar-backend
    schedule-policy reasoning-parser tool-call-parser speculative-algorithm speculative-draft-model-path
    speculative-draft-model-revision speculative-draft-load-format speculative-token-map
    speculative-attention-mode speculative-draft-attention-backend speculative-moe-runner-backend
    speculative-moe-a2a-backend moe-a2a-backend moe-runner-backend deepep-mode deepep-config
    hicache-write-policy hicache-io-backend hicache-mem-layout hicache-storage-backend
    hicache-storage-prefetch-policy revision download-dir json-model-override-args fp8-gemm-backend
    preferred-sampling-params
"""
INTEGER = """
    port tp-size pp-size dp-size ep-size nnodes node-rank nccl-port base-gpu-id gpu-id-step dist-timeout
    random-seed page-size max-running-requests max-total-tokens max-prefill-tokens chunked-prefill-size
    context-length stream-interval decode-log-interval max-queued-requests num-continuous-decode-steps
    speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens hicache-size
"""
NUMBER = """
    mem-fraction-static watchdog-timeout schedule-conservativeness hicache-ratio
    speculative-accept-threshold-single speculative-accept-threshold-acc
"""
BARE = """
    trust-remote-code skip-server-warmup enable-metrics enable-metrics-for-all-schedulers enable-cache-report
    disable-radix-cache disable-overlap-schedule disable-custom-all-reduce enable-torch-symm-mem
    enable-symm-mem enable-nccl-nvls enable-mscclpp enable-mixed-chunk enable-hierarchical-cache
    enable-torch-compile enable-p2p-check disable-cuda-graph disable-cuda-graph-padding enable-dp-lm-head
    enable-flashinfer-allreduce-fusion enable-deterministic-inference log-requests
    enable-request-time-stats-logging allow-auto-truncate
"""
ONLY = {
    "0.5.9": {
        "integer": "cuda-graph-max-bs",
        "integers": "cuda-graph-bs",
        "bare": "enable-dp-attention stream-output",
        "text": "torchao-config",
    },
    "0.5.23": {
        "integer": "cuda-graph-max-bs-decode attn-dp-size speculative-draft-window-size",
        "integers": "cuda-graph-bs-decode",
        "bare": """incremental-streaming-output speculative-adaptive pre-warm-nccl
 enforce-disable-flashinfer-allreduce-fusion speculative-use-rejection-sampling speculative-use-block-verification
 enable-multi-layer-eagle""",
        "text": """flashinfer-allreduce-fusion-backend speculative-adaptive-config cuda-graph-backend-decode
 speculative-draft-kv-cache-dtype""",
    },
}
ALIASES = {
    "model-path": ("model",),
    "tp-size": ("tensor-parallel-size", "tp"),
    "dp-size": ("data-parallel-size", "dp"),
    "pp-size": ("pipeline-parallel-size",),
    "ep-size": ("expert-parallel-size", "ep"),
    "speculative-draft-model-path": ("speculative-draft-model",),
}
DEFAULTS = {
    "model-path": "simulated",
    "host": "127.0.0.1",
    "port": 30000,
    "tp-size": 1,
    "dp-size": 1,
    "pp-size": 1,
    "ep-size": 1,
    "nnodes": 1,
    "node-rank": 0,
    "page-size": 1,
    "stream-interval": 1,
    "decode-log-interval": 40,
    "watchdog-timeout": 300.0,
    "chunked-prefill-size": 8192,
    "mem-fraction-static": 0.8,
    "load-format": "auto",
    "dtype": "auto",
    "kv-cache-dtype": "auto",
    "moe-a2a-backend": "none",
    "speculative-accept-threshold-single": 1.0,
    "speculative-accept-threshold-acc": 1.0,
}


def version_of(argv: Sequence[str]) -> str:
    """The dialect asked for by --sim-version; exits 2 if there is none of that name."""
    parser = argparse.ArgumentParser(prog="python -m server.sim", add_help=False, allow_abbrev=False)
    parser.add_argument("--sim-version", choices=VERSIONS, default=VERSIONS[0])
    return str(parser.parse_known_args(argv)[0].sim_version)


def build_parser(version: str) -> argparse.ArgumentParser:
    """The parser of one version's flags and of the simulator's own."""
    parser = argparse.ArgumentParser(
        prog="python -m server.sim",
        allow_abbrev=False,
        description="A simulated SGLang server. It takes SGLang's flags; those of the simulator begin with --sim-.",
        epilog="example: python -m server.sim --port 30000 --max-running-requests 256 --enable-metrics --sim-speed 10",
    )
    only = ONLY[version]
    for names, kind in (
        (TEXT, str),
        (only["text"], str),
        (INTEGER, int),
        (only["integer"], int),
        (NUMBER, float),
    ):
        for name in names.split():
            parser.add_argument(*_spellings(name), type=kind, default=DEFAULTS.get(name), metavar=kind.__name__.upper())
    for name in only["integers"].split():
        parser.add_argument(f"--{name}", type=int, nargs="+", metavar="INT")
    for name in (BARE + " " + only["bare"]).split():
        parser.add_argument(f"--{name}", action="store_true")
    _add_own(parser)
    return parser


def _spellings(name: str) -> list[str]:
    return [f"--{spelling}" for spelling in (name, *ALIASES.get(name, ()))]


def _add_own(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("the simulator's own")
    own.add_argument("--sim-version", choices=VERSIONS, default=VERSIONS[0], help="whose dialect and flags")
    own.add_argument("--sim-speed", type=_positive, default=SPEED_DEFAULT, help="how many times faster the clock runs")
    own.add_argument("--sim-noise", type=_share, default=NOISE_DEFAULT, help="spread of launches: 0.003 is 0.3 %%")
    own.add_argument("--sim-profile", metavar="FILE", help="another profile than the shipped profile.yaml")
    own.add_argument(
        "--sim-spare-cores", type=int, default=1, metavar="N", help="leave the last N cores to a client here"
    )
    own.add_argument("--sim-stamp", action="store_true", help="put monotonic nanoseconds into every event")
    own.add_argument(
        "--sim-fault",
        action="append",
        default=[],
        metavar="KIND[:NUMBER[:NUMBER]]",
        help="fail on demand; repeatable; a wrong kind lists them all",
    )


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no speed: give a finite number above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: give a number from 0 to below 1")
    return value
