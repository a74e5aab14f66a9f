"""A comparison for programs: JSON, CSV, Markdown, and the shape of vLLM's bench results; and how a variant is started.

Owns the shapes. Every figure is `comparison`'s.
"""

import csv
import dataclasses
import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from loadgen import advice, checks, engine, tables
from loadgen.advice import Choice
from loadgen.comparison import Contest, Figure, Row
from loadgen.dry import HOST, PORT, shell_line
from loadgen.errors import ConfigError
from loadgen.paired import Estimate
from loadgen.pairing import Block, Point
from loadgen.spelling import DAGGER, spread
from server.spec import SpecError
from server.variant import argv

SHAPE_VERSION = 1  # of the JSON
PER_LAUNCH = ("--random-seed", "--nccl-port", "--host", "--port")  # of one start, not of the variant
Chosen = Mapping[tuple[str, str], Sequence[Choice]]


def command(launch: Mapping[str, Any]) -> str:
    """The line that starts a variant's server; of a simulated one, that of the engine it stands for."""
    if launch.get("engine") in (None, "external"):
        return ""
    kind = "sglang" if launch["engine"] == "sim" else launch["engine"]
    try:
        spec = engine.server_spec(checks.parse(launch.get("config") or {}, ()), kind)
        spec = dataclasses.replace(spec, version=launch.get("engine_version") or spec.version)
        words = argv(spec, host=HOST, port=PORT, seed=0)
    except (ConfigError, SpecError):  # a folder of another version of ours
        words, spec = list(launch.get("argv") or ()), None
    kept = [word for place, word in enumerate(words) if not {word, words[place - 1]} & set(PER_LAUNCH)]
    if launch["engine"] == "sim" and spec:
        kept[0] = "python"  # whoever simulated has no interpreter with the engine
    return shell_line(spec, kept) if spec else shlex.join(kept)


def as_json(contests: Sequence[Contest], chosen: Chosen) -> str:
    """Everything, nested: contests, rows, figures with intervals, crossovers, drift, choices."""
    told = {
        "shape_version": SHAPE_VERSION,
        "contests": [{**_contest(one), **_choices(one, chosen)} for one in contests],
    }
    return orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode()


def _contest(contest: Contest) -> dict[str, Any]:
    return {
        "workload": contest.workload,
        "workload_hash": contest.workload_hash,
        "simulated": tables.speeds(contest),
        "baseline": contest.baseline,
        "margin": contest.margin,
        "blocks": [block_name(block) for block in contest.blocks],
        "rows": [_row(row) for row in contest.in_order()],
        "crossovers": {
            name: [dataclasses.asdict(one) for one in found] for name, found in contest.crossovers.items() if found
        },
        "drift": [{**dataclasses.asdict(one), "level": one.level.words} for one in contest.drift],
        "cautions": list(contest.cautions),
    }


def block_name(block: Block) -> str:
    """A block, its number and the folder of the command that measured its baseline."""
    return f"{block.number} of {block.root}"


def _row(row: Row) -> dict[str, Any]:
    return {
        "variant": row.variant,
        "concurrency": row.level.concurrency,
        "rate": row.level.rate,
        "output_tokens_per_s": _figure(row.output),
        "tokens_per_s_per_stream": _figure(row.stream),
        "goodput_requests_per_s": _figure(row.goodput),
        **{name: {q: _figure(figure) for q, figure in some.items()} for name, some in row.times.items()},
        "accept_length": row.accept_length,
        "accept_source": row.accept_source,
        "accept_length_by_kind": dict(row.accept_by_kind),
        "requests": row.requests,
        "failed": row.failed,
        "points": [{"point_id": point["point_id"], "folder": point["folder"]} for point in row.points],
    }


def _figure(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    return {
        **_estimate(figure.value),
        "n": figure.n,
        "by_block": {block_name(block): value for block, value in figure.by_block.items()},
        "ratio": _estimate(figure.ratio) if figure.ratio else None,
        "word": figure.word,
    }


def _estimate(value: Estimate) -> dict[str, Any]:
    told = dataclasses.asdict(value)
    return {**told, "interval": list(value.interval) if value.interval else None}


def _choices(contest: Contest, chosen: Chosen) -> dict[str, Any]:
    found = {goal: chosen[contest.workload, goal] for goal in advice.GOALS}
    return {
        "answer": {goal: advice.sentence(contest, some) for goal, some in found.items()},
        "choices": {goal: [_choice(one) for one in some] for goal, some in found.items()},
    }


def _choice(one: Choice) -> dict[str, Any]:
    told = dataclasses.asdict(one)
    return {**told, "low": one.low.words, "high": one.high.words}


def flat(contests: Sequence[Contest]) -> list[dict[str, Any]]:
    """One plain row for each variant and level: what a sheet or another program can take."""
    return [_flat(contest, row) for contest in contests for row in contest.in_order()]


def _flat(contest: Contest, row: Row) -> dict[str, Any]:
    ratio, value = row.output.ratio, row.output.value
    return {
        "workload": contest.workload,
        "engine": row.points[0]["engine"],
        "sim_speed": row.points[0].get("sim_speed"),
        "concurrency": row.level.concurrency,
        "rate": row.level.rate,
        "variant": row.variant,
        "output_tokens_per_s": value.value,
        **_limits("output_tokens_per_s", value),
        f"ratio_to_{contest.baseline}": ratio.value if ratio else None,
        **_limits("ratio", ratio),
        "word": row.output.word,
        "blocks": value.blocks,
        "tokens_per_s_per_stream": row.stream.value.value if row.stream else None,
        "goodput_requests_per_s": row.goodput.value.value if row.goodput else None,
        **{
            f"{name.removesuffix('_ms')}_{q}_ms": figure.value.value
            for name, some in row.times.items()
            for q, figure in some.items()
        },
        "accept_length": row.accept_length,
        "requests": row.requests,
        "failed": row.failed,
    }


def _limits(name: str, value: Estimate | None) -> dict[str, Any]:
    low, high = value.interval if value and value.interval else (None, None)
    return {f"{name}_low": low, f"{name}_high": high, f"{name}_scope": value.scope if value else None}


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def as_csv(contests: Sequence[Contest], _: Chosen) -> str:
    """`flat` with a header line."""
    rows, text = flat(contests), io.StringIO()
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def as_markdown(contests: Sequence[Contest], chosen: Chosen) -> str:
    """The answers, and below each a table of throughput for a wiki or a pull request."""
    parts = []
    for contest in contests:
        parts += [f"### {contest.workload}", "", *(f"**{line}**\n" for line in tables.speeds(contest))]
        parts += [f"- for {goal}: {advice.sentence(contest, chosen[contest.workload, goal])}" for goal in advice.GOALS]
        promised = any(row.goodput for row in contest.rows.values())
        head = ["load", "variant", "output tok/s", f"x {contest.baseline}", "", *(["goodput requests/s"] * promised)]
        parts += ["", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
        for row in contest.in_order():
            cells = (
                row.level.words,
                row.variant,
                spread(row.output.value, DAGGER),
                tables.ratio(row.output, DAGGER),
            )
            kept = [spread(row.goodput.value, DAGGER) if row.goodput else ""] * promised
            parts.append(f"| {' | '.join([*cells, row.output.word or '', *kept])} |")
        parts += ["", f"{DAGGER} within one run: says nothing of another start of the server", ""]
    return "\n".join(parts).rstrip()


def as_vllm(contests: Sequence[Contest], _: Chosen) -> str:
    """One line of JSON a Point with the keys of vLLM's `bench serve --append-result`, as far as they are known here.

    Its inter-token latency is our gap between events.
    """
    points = (point for contest in contests for row in contest.in_order() for point in row.points)
    return "\n".join(orjson.dumps(_vllm(point)).decode() for point in points)


def _vllm(point: Point) -> dict[str, Any]:
    numbers, load = point["summary"], point["load"]
    told = {
        "date": point["started_at"],
        "backend": point["engine"],
        "sim_speed": point.get("sim_speed"),
        "label": point["variant"],
        "model_id": point.get("model_id") or point["model"],
        "num_prompts": numbers["requests"],
        "request_rate": load.get("rate") or "inf",
        "burstiness": load.get("burstiness"),
        "max_concurrency": load.get("concurrency") or load.get("max_in_flight"),
        "duration": numbers.get("measured_s"),
        "completed": numbers["requests"] - numbers["failed"],
        "failed": numbers["failed"],
        "request_throughput": numbers.get("requests_per_s"),
        "request_goodput": numbers.get("goodput_requests_per_s"),
        "output_throughput": numbers["output_tokens_per_s"],
        "total_token_throughput": numbers.get("total_tokens_per_s"),
    }
    for ours, theirs in (("ttft_ms", "ttft"), ("tpot_ms", "tpot"), ("chunk_gap_ms", "itl"), ("e2e_ms", "e2el")):
        found = numbers.get(ours) or {}
        for quantile, called in (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p99", "p99")):
            told[f"{called}_{theirs}_ms"] = found.get(quantile)
    return told


FORMATS: dict[str, Callable[[Sequence[Contest], Chosen], str]] = {
    "json": as_json,
    "csv": as_csv,
    "markdown": as_markdown,
    "vllm": as_vllm,
}
