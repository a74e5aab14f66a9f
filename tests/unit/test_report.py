"""Tables lose nothing at any width, simulations say so, reasons stand in full, and a pipe gets plain text."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadgen import verdict
from loadgen.asked import Run
from loadgen.config import Config, Engine, Load, Model, Variant, Workload
from loadgen.report import (
    Progress,
    ending,
    ledger_table,
    level_of,
    level_table,
    next_step,
    plan_text,
    rendered,
)
from loadgen.verdict import Facts
from loadgen.window import Window
from loadgen.words import clean, duration, figure, percent, simulated
from server.spec import ServerSpec

WIDTHS = [80, 100, 200, None]
SHOW_A_TABLE = """
import sys
from test_report import point
from loadgen.report import level_table, rendered
sys.stdout.write(rendered(level_table([point()]), sys.stdout))
"""


def facts(**changes: Any) -> Facts:
    quiet: dict[str, Any] = {
        "requests": 300,
        "failed": 0,
        "short": 0,
        "failed_share_max": 0.01,
        "short_share_max": 0.01,
        "steady": True,
        "halves_difference": 0.012,
        "concurrency_held": 0.999,
        "refill_ms": 0.9,
        "loop_lag_p99_ms": 0.4,
        "loop_lag_max_ms": 3.0,
        "worker_cpu_p95": 0.34,
    }
    return Facts(**{**quiet, **changes})


def times(p50: float, p90: float) -> dict[str, Any]:
    return {"mean": p50, "p50": p50, "p90": p90, "p99": None, "n": 300}


def point(concurrency: int = 16, judged: verdict.Verdict | None = None, **changes: Any) -> dict[str, Any]:
    judged = judged or verdict.judge(facts())
    summary = {
        "requests": 300,
        "failed": 0,
        "output_tokens_per_s": 18412.2,
        "tokens_per_s_per_stream": 155.3,
        "ttft_ms": times(12345.0, 23456.0),
        "tpot_ms": times(104.81, 237.9),
        "accept_length": 3.125,
    }
    whole = {
        "variant": "eagle_topk1_v2",
        "engine": "sim",
        "model": "kimi_k25",
        "workload": "story",
        "block": 0,
        "launch_id": "l0",
        "simulated": True,
        "sim_speed": 10.0,
        "load": {"kind": "closed", "concurrency": concurrency, "requests": None},
        "verdict": verdict.as_json(judged),
        "summary": summary,
    }
    return {**whole, **changes}


def table(points: list[dict[str, Any]], width: int | None = 100) -> str:
    return rendered(level_table(points), io.StringIO(), width)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_no_column_is_lost_at_any_width(width: int | None) -> None:
    """Every figure of the widest row stands in full on one line, at most as wide as asked."""
    died = verdict.failed("server_died", "exit code 1", "throughout", "read the end of server.log", 3)
    text = table([point(), point(4096, died, summary=None)], width)
    rows = [line for line in text.splitlines() if line.split()[:1] in (["16"], ["4096"])]
    assert words(rows[0]) == "16 18 412 155 12 345/23 456 105/238 3.12 0 % VALID"
    assert words(rows[1]) == "4096 – – – – – – FAILED"
    assert max(map(len, text.splitlines())) <= (width or 200)


@pytest.mark.parametrize("width", WIDTHS)
def test_reasons_and_advice_are_never_cut(width: int | None) -> None:
    """What speaks against a Point stands in full below the table, wrapped where the terminal ends."""
    slow = verdict.judge(facts(loop_lag_p99_ms=7.25, failed=12))
    text = words(table([point(64, slow)], width))
    for reason in slow.reasons:
        assert words(reason.advice) in text
    assert "INVALID at concurrency 64: loop lag p99 7.25 ms (limit 5 ms)" in text
    assert "failed share 4 % (limit 1 %)" in text


def test_a_simulation_says_so_and_how_fast() -> None:
    """The heading is in plain sight at any speed, and absent for real hardware."""
    assert "SIMULATED x10: ten times faster than the profile's hardware" in table([point()])
    assert "SIMULATED x1:" in table([point(sim_speed=1.0)])
    assert "SIMULATED" not in table([point(simulated=False, sim_speed=None, engine="sglang")])


@pytest.mark.parametrize(
    ("speed", "text"),
    [
        (1.0, "SIMULATED x1: at the speed of the profile's hardware"),
        (10.0, "SIMULATED x10: ten times faster than the profile's hardware"),
        (30.0, "SIMULATED x30: 30 times faster than the profile's hardware"),
        (2.5, "SIMULATED x2.5: 2.5 times faster than the profile's hardware"),
        (0.5, "SIMULATED x0.5: 0.5 times the speed of the profile's hardware"),
    ],
)
def test_speed_in_words(speed: float, text: str) -> None:
    """The speed is named, and whether it is faster."""
    assert simulated(speed) == text


def test_a_whole_run_is_labelled() -> None:
    """A fixed count of requests is told apart from a window, also when the Point failed."""
    counted = {"kind": "closed", "concurrency": 16, "requests": 40}
    assert "whole run" in table([point(load=counted)])
    assert "whole run" in table([point(load=counted, summary=None)])
    assert "whole run" not in table([point()])


def test_what_is_not_judged_is_shown_as_such() -> None:
    """Of a whole run, steadiness and concurrency are told with their limits, and that they do not count."""
    counted = {"kind": "closed", "concurrency": 16, "requests": 40}
    judged = verdict.judge(facts(whole_run=True, concurrency_held=0.7))
    text = words(table([point(16, judged, load=counted)]))
    assert "concurrency held 70 % (at least 98 %; not judged)" in text


def test_margins_name_the_level_that_came_closest() -> None:
    """Of all VALID levels the one nearest to a limit is shown; broken ones are among the reasons."""
    near, broken = verdict.judge(facts(loop_lag_p99_ms=4.5)), verdict.judge(facts(loop_lag_p99_ms=9.0))
    text = words(table([point(1), point(64, near), point(250, broken)]))
    assert "loop lag p99 4.5 ms at 64 (limit 5 ms)" in text
    assert "concurrency held 99.9 % at 1 (at least 98 %)" in text


def test_what_is_not_proven_is_told() -> None:
    """What a server keeps to itself is named once below the table."""
    quiet = verdict.judge(facts(not_proven=("attention_backend", "fusion"), proof_needed=False))
    text = table([point(1, quiet), point(2, quiet)])
    assert text.count("attention_backend, fusion") == 1
    assert "not proven" in text


def test_each_launch_has_a_table_of_its_own() -> None:
    """Variants and blocks are not mixed in one table."""
    text = table([point(), point(variant="baseline", launch_id="l1"), point(block=1, launch_id="l2")])
    assert text.count("verdict") == 3
    assert "baseline · sim · kimi_k25 · story · block 0" in text


def test_open_loop_shows_its_rate() -> None:
    """A rate stands where closed loops have their concurrency."""
    text = table([point(load={"kind": "open", "rate": 8.5}), point(9, verdict.interrupted(2))])
    assert "rate" in text
    assert "8.5" in text
    assert "INTERRUPTED" in text


def test_a_text_of_a_server_cannot_command_the_terminal() -> None:
    """Escape sequences, markup and emoji codes come out as the characters they are."""
    nasty = verdict.failed("server_died", "\x1b[31mred\x1b]0;title\x07 [bold]x[/bold] :boom:", None, "", 3)
    text = table([point(1, nasty)])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]x[/bold] :boom:" in text
    assert clean("a\x1b\nb\r") == "a \nb "


def test_a_pipe_gets_no_colours() -> None:
    """What is no terminal gets no escape sequence at all."""
    ended = subprocess.run([sys.executable, "-c", SHOW_A_TABLE], env=environment(), capture_output=True, check=True)
    assert b"\x1b" not in ended.stdout
    assert b"VALID" in ended.stdout


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colours_unless_no_color(more: dict[str, str], coloured: bool) -> None:
    """The verdict is green on a terminal; NO_COLOR takes every colour away."""
    output = on_a_terminal(SHOW_A_TABLE, more)
    assert ("\x1b[32m" in output) is coloured
    assert "VALID" in output


def test_a_stream_without_unicode_does_not_end_the_run() -> None:
    """Where only ASCII can be written, other characters become question marks."""
    more = {**environment(), "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([sys.executable, "-c", SHOW_A_TABLE], env=more, capture_output=True, check=True)
    assert b"eagle_topk1_v2 ? sim" in ended.stdout


def environment() -> dict[str, str]:
    root, here = Path(verdict.__file__).parents[1], Path(__file__).parent
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONIOENCODING")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONPATH": f"{root}{os.pathsep}{here}", "TERM": "xterm-256color", "PYTHONUTF8": "1"}


def on_a_terminal(code: str, more: dict[str, str]) -> str:
    """What Python writes to a pseudo terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], env={**environment(), **more}, stdout=theirs, stderr=theirs):
        os.close(theirs)
        output = b""
        while True:
            try:
                some = os.read(ours, 65536)
            except OSError:  # the other end was closed
                break
            if not some:
                break
            output += some
    os.close(ours)
    return output.decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.5, "0.50"),
        (4.812, "4.81"),
        (52.345, "52.3"),
        (155.34, "155"),
        (99.97, "100"),
        (6412.2, "6 412"),
        (1234567.8, "1 234 568"),
        (16, "16"),
    ],
)
def test_figures(value: float | None, text: str) -> None:
    """Three digits, or all of the whole part with thousands apart."""
    assert figure(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "–"), (0.0, "0 %"), (0.0125, "1.2 %"), (0.0004, "0.04 %"), (0.123, "12 %"), (1.0, "100 %")],
)
def test_percents(share: float | None, text: str) -> None:
    """Two digits, never rounded to nothing."""
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.6, "1 min 00 s"), (100, "1 min 40 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    """The two largest units."""
    assert duration(seconds) == text


def line(variant: str, status: str = "VALID", reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"block": 0, "variant": variant, "concurrency": 16, "status": status, "reason": reason, **more}


@pytest.mark.parametrize("width", WIDTHS)
def test_the_ledger_loses_no_word(width: int | None) -> None:
    """Every line of a grid with its reason in full."""
    reason = "server_died: exit code 1 after 12 s; the last line was: RuntimeError, out of memory on device 3"
    text = rendered(ledger_table([line("baseline"), line("eagle", "FAILED", reason)]), io.StringIO(), width)
    assert set(reason.split()) <= set(text.split())
    assert "baseline" in text
    assert "FAILED" in text


def config(variant: str, block: int = 0, **load: Any) -> tuple[Config, ServerSpec]:
    conf = Config(
        model=Model(name="kimi_k25", tp=8),
        engine=Engine(kind="sim"),
        workload=Workload(name="story", source="builtin"),
        load=Load(kind="closed", **{"concurrency": [1, 16], **load}),
        variant=Variant(name=variant),
        block=block,
    )
    return conf, ServerSpec(
        engine="sim", variant=variant, args={}, env={"SGLANG_X": "1"}, model_name="kimi_k25", model_path=None,
        draft_path=None, tp=8, python=(), version=None, sim_speed=10.0, sim_profile=None, api_key_env=None,
        ready_s_max=60.0,
    )  # fmt: skip


def test_the_plan_counts_servers_and_points() -> None:
    """Consecutive runs that ask for the same server use it together."""
    runs = [config("baseline", concurrency=1), config("baseline", concurrency=16), config("eagle")]
    asked = [Run(conf, Path("outputs/x")) for conf, _ in runs]
    text = plan_text(asked, [spec for _, spec in runs], Path("outputs/x"))
    assert "2 server starts, 4 Points, windows of 20 s or more; results in outputs/x" in text
    assert "eagle · sim · kimi_k25 · story · block 0: concurrency 1, 16" in text
    assert "SIMULATED x10" in text


def test_the_next_step_is_a_command() -> None:
    """After one variant comes the other, after one block more blocks, then the data; after a bad Point a resume."""
    root, command = Path("outputs/2026-01-02/10-00-00"), "python -m loadgen +variant=baseline load.concurrency=4"
    one, two = [line("baseline")], [line("baseline"), line("eagle")]
    grid = "python -m loadgen -m +variant=baseline,eagle"
    assert "-m block=0,1,2 +variant=baseline,eagle" in next_step(root, two, grid)
    blocks = [*two, {**two[0], "block": 1}, {**two[1], "block": 1}]
    assert f"{root}/**/requests.parquet" in next_step(root, blocks, grid)
    assert f"python -m loadgen.compare {root}; " in next_step(root, blocks, grid)
    assert next_step(root, one, command).endswith("+variant=eagle_topk1_v2 load.concurrency=4")
    flags = f"{command} variant.args.page_size=16 ++variant.env.X=1"
    assert next_step(root, one, flags).endswith("+variant=eagle_topk1_v2 load.concurrency=4"), "a variant's own stay"
    assert "next" not in next_step(root, one, f"{command} engine=external engine.url=http://h:1")
    folder = f"{command} hydra.run.dir=/tmp/a resume=true"
    assert next_step(root, one, folder).endswith("+variant=eagle_topk1_v2 load.concurrency=4")
    bad = next_step(root, [two[0], line("eagle", "FAILED")], grid, planned=3)
    assert "1 of 3 Points not VALID, 1 not begun" in bad
    assert bad.endswith(f"{grid} resume=true")


def test_the_ending_shows_the_ledger_when_the_table_does_not_say_all() -> None:
    """A Point that never came to be measured is in the ledger's table; a single ladder needs none."""
    alone = ending([point()], [line("eagle_topk1_v2")])
    assert "Points of this run" not in alone
    more = ending([point()], [line("eagle_topk1_v2"), line("b", "FAILED", "server: no")])
    assert "Points of this run" in more
    assert "server: no" in more
    assert ending([], []) == ""


def test_the_baseline_once_more_is_called_so() -> None:
    """In the plan, above its table and in the ledger's; its server is another one."""
    conf, spec = config("baseline", concurrency=1)
    runs = [Run(conf, Path("outputs/x/0")), Run(conf, Path("outputs/x/drift"), repeat=True)]
    assert "plan: 2 server starts, 2 Points," in plan_text(runs, [spec, spec], Path("outputs/x"))
    text = plan_text(runs, [spec, spec], Path("outputs/x"), missing=[0, 1])
    assert "plan: 1 server start, 2 Points (1 VALID already)" in text
    assert "baseline, again at the end · sim" in text
    last = point(variant="baseline", repeat=True, launch_id="l9")
    shown = ending([point(variant="baseline"), last], [line("baseline"), {**line("baseline"), "repeat": True}])
    assert shown.count("baseline, again at the end") == 2
    assert next_step(Path("r"), [line("baseline")], "c").startswith("results: r")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    """A change of phase is told at once, counts every few seconds, a growing number of seconds is no change."""
    stream, clock = io.StringIO(), Clock()
    with Progress(False, stream, clock) as progress:
        for second in range(4):
            clock.now_s = float(second)
            progress.phase(f"starting, {second} s: loading weights")
        progress.phase("warm-up")
        for tenth in range(100):
            clock.now_s = 4 + tenth / 10
            progress.update({"phase": "window", "finished": tenth * 100, "failed": 0, "tokens_per_s": 6412.2})
    lines = stream.getvalue().splitlines()
    assert lines == [
        "starting, 0 s: loading weights",
        "warm-up",
        "window · 0 done · 0 failed · 6 412 tok/s",
        "window · 5 000 done · 0 failed · 6 412 tok/s",
    ]


def test_progress_tells_level_and_time_left() -> None:
    """What is known is shown: level, load, phase, counts, and the time left as told or by the window."""
    stream = io.StringIO()
    known = {"variant": "eagle", "level": 2, "levels": 8, "concurrency": 16, "in_flight": 16, "phase": "window"}
    with Progress(False, stream, Clock()) as progress:
        progress.update({**known, "window": Window(0, 10_000_000_000, ""), "t_ns": 4_000_000_000, "duration_s": 1.5})
        progress.update({"level_left_s": 3, "ladder_left_s": 100, "phase": "drain"})
        progress.update({"command_left_s": 3700, "phase": "last requests"})
    first, second, third = stream.getvalue().splitlines()
    assert first == "eagle · level 2 of 8 · concurrency 16 · window · 16 in flight · left: level 8 s"
    assert second.endswith("drain · 16 in flight · left: level 3 s, whole ladder 1 min 40 s")
    assert third.endswith("left: level 3 s, whole ladder 1 min 40 s, whole command 1 h 01 min")


def test_quiet_progress_says_nothing_but_warnings() -> None:
    """output.quiet leaves only what must not be missed."""
    stream = io.StringIO()
    with Progress(True, stream, Clock()) as progress:
        progress.line("plan")
        progress.phase("starting")
        progress.update({"finished": 1})
        progress.warn("warning: a process was left behind")
    assert stream.getvalue() == "warning: a process was left behind\n"


def test_progress_on_a_terminal_is_live_and_removes_itself() -> None:
    """The display is redrawn in place on stderr, and what stdout gets meanwhile stays on stdout."""
    code = """
import sys
from loadgen.report import Progress
with Progress() as progress:
    progress.update({"phase": "window", "finished": 5})
    assert sys.stdout is sys.__stdout__
print("end")
"""
    output = on_a_terminal(code, {})
    assert "\x1b[2K" in output
    assert "\x1b[?25h" in output, "the cursor is given back"
    assert output.rstrip().endswith("end")


def test_rates_have_a_table_of_their_own() -> None:
    """The rate instead of the concurrency, and both times to the first token; a trace is called one."""
    load = {"kind": "open", "rate": 6.0, "arrival": "poisson"}
    slow = point(load=load)
    slow["summary"]["ttft_planned_ms"] = times(98765.0, 99999.0)
    text = table([slow, point(load={**load, "rate": 12.0})], 200)
    for wanted in ("rate", "since", "98 765/99 999", "12 345/23 456", " at 6 ("):
        assert wanted in text, wanted
    assert "concur-" not in text
    assert level_of({"rate": 0.5, "concurrency": None}) == "rate 0.5/s"
    assert level_of({**load, "trace": "t.csv"}) == "trace of 6/s"
    assert level_of({"rate": None, "concurrency": None}) == "trace"
