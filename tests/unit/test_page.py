"""report.html: what stands on it, in which order, that nothing of it is markup by accident, and that it is readable."""

import base64
import hashlib
import importlib.resources
import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from points import STUDY, point, study, times
from rows import health, row
from test_compare import told, write
from test_config import made

from loadgen import advice, compare, comparison, formats, store
from loadgen.errors import StorageError
from loadgen.page import chart, document, markup, origin, plots, scales, sheets, timeline
from loadgen.page.strips import Timeline
from loadgen.record import SCHEMA_VERSION, SERVER_METRICS

EVIL = "<script>alert(1)</script><img src=http://example.org/x onerror=alert(2)>"
PAGE_BYTES_MAX = 2_000_000
FOREIGN = re.compile(r"https?:|//|url\(|@import", re.IGNORECASE)


class Elements(HTMLParser):
    """Every start tag with its attributes, and the words between tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


def content(points: list[dict[str, Any]], **changes: Any) -> document.Content:
    """What a comparison of made-up Points shows."""
    named = {one["point_id"]: one["variant"] for one in points}
    contests = comparison.contests(points, times, named, "baseline")
    chosen = {(one.workload, goal): advice.choices(one, goal) for one in contests for goal in advice.GOALS}
    commands = {"baseline": "python -m sglang.launch_server --tp-size 8"}
    whole = document.Content(contests, chosen, commands, points, [], [], {})
    return document.Content(**{**vars(whole), **changes})


def test_the_answer_comes_first_then_figures_then_origin() -> None:
    """The order that a reader needs it in; a simulation says so before any number."""
    text = document.html(content(study()))
    places = [text.index(part) for part in (
        "SIMULATED x10", "</strong> up to concurrency 1", "3 blocks: a look. A block is",
        "Points: 27 VALID.", "python -m sglang.launch_server", "throughput and ratio</h2>", "speed of one stream</h2>",
        "latency</h2>", "over time</h2>", "kind of prompt</h2>", "all figures</h2>", "Points that do not count</h2>",
        "Where the numbers come from</h2>",
    )]  # fmt: skip
    assert places == sorted(places)


def test_every_figure_and_table_can_be_heard() -> None:
    """Drawings have a role, a title and a description of their own; cells have headings; headings skip no level."""
    found = Elements(document.html(content(study())))
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    drawings = [one for one in found.of("svg") if one.get("aria-hidden") != "true"]
    assert len(drawings) >= 6
    for one in drawings:
        assert one["role"] == "img"
        assert {one["aria-labelledby"], one["aria-describedby"]} <= set(ids)
    assert len(found.of("table")) == len(found.of("caption")) >= 3
    assert all(one.get("scope") in ("col", "row") for one in found.of("th"))
    levels = [int(name[1]) for name, _ in found.found if re.fullmatch(r"h\d", name)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ways = {str(one["href"])[1:] for one in found.of("a")}
    assert ways <= set(ids), "every way leads somewhere"


def test_every_number_names_its_run() -> None:
    points = study()
    text = document.html(content(points))
    assert all(one["folder"] in text for one in points)


def test_nothing_is_fetched() -> None:
    """One file: a policy that forbids all but its own style and script, and no address anywhere."""
    text = document.html(content(study()))
    found = Elements(text)
    policy = next(str(one["content"]) for one in found.of("meta") if one.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    for name in ("style", "script"):
        (inside,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        assert f"{name}-src 'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'" in policy
        assert not FOREIGN.search(inside)
    assert not {"link", "img", "iframe", "object", "use", "image"} & {name for name, _ in found.found}
    assert not any(name in ("src", "style") or name.startswith("on") for _, one in found.found for name in one)


def test_texts_of_others_are_texts() -> None:
    """Markup in names, errors, logs and kinds of prompts is shown and never obeyed."""
    points = study()
    reasons = [{"rule": EVIL, "measured": EVIL, "limit": EVIL, "unit": "", "advice": EVIL, "log_tail": EVIL}]
    points[1] = {**points[1], "verdict": {"status": "INVALID", "reasons": reasons}, "folder": EVIL}
    summary = {**points[6]["summary"], "by_kind": {EVIL: {"accept_length": 2.0, "accept_source": EVIL}}}
    points[6] = {**points[6], "summary": summary, "caveats": [EVIL]}
    points += [{**point(EVIL, 1, 80.0, block=block), "point_id": f"evil{block}"} for block in range(3)]
    never = [{"status": "FAILED", "variant": EVIL, "reason": EVIL, "log_tail": EVIL, "concurrency": 1, "root": EVIL}]
    line = Timeline(EVIL, EVIL, EVIL, None, 1.0, (1.0,), (1.0,), (), (), ())
    shown = content(points, never=never, commands={"baseline": EVIL}, timelines={"diverse": [line]})
    text = document.html(shown)
    found = Elements(text)
    assert len(found.of("script")) == 1
    assert found.of("img") == []
    assert sum(EVIL in word for word in found.words) > 5


def test_a_broken_file_beside_a_point_is_named(tmp_path: Path) -> None:
    """A file of the server's metrics that is cut off: its path, and what to do."""
    told = point_on_disk(tmp_path, [row(0)], None)
    (tmp_path / "server_metrics.parquet").write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=r"server_metrics\.parquet is not whole Parquet"):
        timeline.read(told, "baseline", "concurrency 2")


def test_several_workloads_have_sections_of_their_own() -> None:
    """Each with its answer; no id twice; a variant looks the same in both."""
    other = [
        {**one, "workload": "fixed", "point_id": f"f{one['point_id']}"} for one in study(("baseline", "eagle_topk1_v2"))
    ]
    text = document.html(content(study() + other))
    found = Elements(text)
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"c0-throughput", "c1-throughput", "c1-tables"} <= set(ids)
    (first, second) = content(study() + other).contests
    looks = plots.looks(first.variants)
    assert (looks["baseline"].colour, looks["baseline"].mark) == ("c0", "circle")
    assert set(second.variants) <= set(looks)


def test_what_a_screen_must_not_obey_is_gone() -> None:
    """Control characters and halves of surrogates of a server's log become blanks; the page is UTF-8."""
    element = markup.tag("p", "a\x1b[31m\x00b\udce9", title="\x07")
    text = markup.page("t\x00", "", "", [element])
    assert "a [31m b " in text
    assert text.encode()


def test_a_style_that_would_end_too_early_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        markup.page("t", "</style>", "", [])


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (study(blocks=1), "a guess"),
        (study(blocks=5), "a claim"),
        (study(("eagle_topk1_v2",)), "nothing can be recommended"),
        ([point("baseline", 1, 90.0, intervals=None)], "baseline</strong> was not measured beside anything"),
    ],
)
def test_few_and_many_blocks_and_no_baseline(points: list[dict[str, Any]], said: str) -> None:
    assert said in document.html(content(points))


def rated(rates: tuple[float | None, ...]) -> list[dict[str, Any]]:
    """Two variants under an open load."""
    return [
        {
            **point(name, None, 90.0 + n),
            "load": {"kind": "open", "rate": rate, "concurrency": None},
            "point_id": f"{name}{n}",
        }
        for name in ("baseline", "ngram")
        for n, rate in enumerate(rates)
    ]


@pytest.mark.parametrize("rates", [(2.0, 6.0), (None,)])
def test_open_loads_have_axes_of_their_own(rates: tuple[float | None, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates stand on an axis of rates; a trace of one request has no rate and stands at its name."""
    some = {"ttft_ms": np.linspace(1, 9, 100), "ttft_planned_ms": np.linspace(2, 18, 100)}
    monkeypatch.setitem(globals(), "times", lambda _: some)
    text = document.html(content(rated(rates)))
    assert ("requests a second</title>" in text) == (2.0 in rates)
    assert ("over load</title>" in text) == (None in rates)
    assert "Time to first token since planned" in text


def test_looks_differ_without_their_colour() -> None:
    """The first seven by mark alone, thirty-five by mark and colour together."""
    some = [chart.Look(number) for number in range(35)]
    assert len({look.mark for look in some[:7]}) == 7
    assert len({(look.mark, look.colour) for look in some}) == 35


def test_colours_can_be_told_from_the_paper() -> None:
    """WCAG AA: texts and everything drawn in a variant's colour have a contrast of 4.5 or more, by day and by night."""
    style = (importlib.resources.files("loadgen.page") / "page.css").read_text()
    schemes = [dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", part)) for part in style.split(":root")[1:]]
    assert len(schemes) == 3
    for scheme in schemes:
        for name in ("text", "soft", "link", "good", "bad", *(f"c{n}" for n in range(chart.COLOURS))):
            assert contrast(scheme[name], scheme["paper"]) >= 4.5, name
        assert contrast(scheme["text"], scheme["note"]) >= 4.5
        assert contrast(scheme["text"], scheme["shade"]) >= 4.5
        assert contrast(scheme["soft"], scheme["shade"]) >= 4.5


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("make", [scales.linear, scales.octaves, scales.decades])
@pytest.mark.parametrize(
    "values", [[], [0.0], [5.0], [1, 2, 5, 10, 30, 70, 100, 250], [0.003, 4e6], [99.9, 100.1], [float("inf"), 3.0]]
)
def test_axes_hold_their_values(make: Any, values: list[float]) -> None:
    """Every value has a place, ticks rise and lie on the axis, there are not too many to read."""
    scale = make(values)
    assert scale.low < scale.high
    assert all(0 <= scale.at(value) <= 1 for value in values)
    places = [scale.at(value) for value, _ in scale.ticks]
    assert places == sorted(places)
    assert sum(bool(text) for _, text in scale.ticks) <= 8
    shown = [value for value in values if 0 < value < float("inf")]
    assert all(scale.low <= value <= scale.high for value in shown)


def test_loads_are_ticks_of_their_own() -> None:
    """The levels themselves, the last one always named, no two texts upon each other."""
    scale = scales.octaves([1, 2, 5, 10, 30, 70, 100, 250])
    assert [value for value, _ in scale.ticks] == [1, 2, 5, 10, 30, 70, 100, 250]
    named = [(scale.at(value), text) for value, text in scale.ticks if text]
    assert named[-1][1] == "250"
    assert all(after - before > 0.05 for (before, _), (after, _) in itertools.pairwise(named))


def test_labels_do_not_hide_each_other() -> None:
    """Ten marks at the same place have at most the four labels around it; the first one always has its own."""
    box = chart.Box(scales.linear([0, 1]), scales.linear([0, 1]))
    drawn = list(chart.labels(box, [((200.0, 100.0), str(n), chart.Look(n)) for n in range(10)]))
    assert 1 <= len(drawn) <= 4
    assert drawn[0].text == "0"
    assert len({(one.get("x"), one.get("y")) for one in drawn}) == len(drawn)


def test_words_have_signs() -> None:
    """Better and worse differ for who sees no colour."""
    (contest,) = content(study()).contests
    texts = "".join(sheets.throughput(contest).itertext())
    assert all(word in texts for word in ("▲ better", "▼ worse", "= same"))


def point_on_disk(folder: Path, rows: list[dict[str, Any]], window: tuple[float, float] | None) -> dict[str, Any]:
    """A Point with these rows, a second of health, and a server that told its queue."""
    writer = store.RowWriter(store.stream_path(folder, 0))
    writer.append(rows)
    writer.close()
    made_up = point("baseline", 2, 90.0)
    start, end = window or (None, None)
    whole = {**made_up, "schema_version": SCHEMA_VERSION, "window": {"start_s": start, "end_s": end}}
    seconds = [health(1000 * second, utc=f"2026-01-02T03:04:{second + 5:02d}+00:00") for second in (1, 2, 3)]
    store.commit_point(folder, store.requests_table(folder, None), seconds, whole)
    told = [
        {
            "utc": f"2026-01-02T03:04:{second:02d}+00:00",
            "t_mono_ns": second,
            "name": name,
            "labels": "{}",
            "value": value,
        }
        for second in range(30)
        for name, value in (("sglang:num_queue_reqs", second), ("sglang:num_running_reqs", 2), ("other", 9))
    ]
    store.write_parquet(folder / "server_metrics.parquet", told, SERVER_METRICS)
    files = {"requests": "requests.parquet", "health": "health.parquet", "server_metrics": "server_metrics.parquet"}
    return {**whole, "folder": str(folder), "files": files}


def test_a_timeline_has_all_tokens_and_the_server_s_queue(tmp_path: Path) -> None:
    """Two streams of known lengths; samples of the server are placed by the wall clock of the Point's begin."""
    rows = [row(0, 0.0, chunk_ns=[int(n * 1e8) for n in range(1, 31)]), row(1, 1000.0)]
    line = timeline.read(point_on_disk(tmp_path, rows, (0.5, 2.5)), "baseline", "concurrency 2")
    assert sum(line.tokens_per_s) * line.step_s == pytest.approx(35)
    assert max(line.in_flight) == 2
    assert line.end_s == pytest.approx(3.05, abs=0.06)
    assert line.window_s == (0.5, 2.5)
    assert [value for _, value in line.queued] == [5, 6, 7, 8]
    assert [round(moment) for moment, _ in line.queued] == [0, 1, 2, 3]
    assert {value for _, value in line.running} == {2}
    assert line.lag_ms[0] == (1.0, pytest.approx(0.1))


def test_a_long_point_has_no_more_steps_than_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour, read seven rows at a time."""
    monkeypatch.setattr("loadgen.dataset.ROWS_AT_ONCE", 7)
    rows = [row(n, 36_000.0 * n) for n in range(100)]
    line = timeline.read(point_on_disk(tmp_path, rows, None), "baseline", "concurrency 2")
    assert len(line.tokens_per_s) <= timeline.STEPS_MAX
    assert sum(line.tokens_per_s) * line.step_s == pytest.approx(500)
    assert line.end_s == pytest.approx(3564.2, abs=line.step_s)


def test_a_timeline_of_what_nobody_told(tmp_path: Path) -> None:
    """No health, no server: what the requests say is shown, the rest is called not told."""
    told = point_on_disk(tmp_path, [row(0)], None)
    files = {"requests": "requests.parquet", "server_metrics": None}
    line = timeline.read({**told, "files": files}, "baseline", "concurrency 1")
    assert (line.running, line.queued, line.lag_ms) == ((), (), ())
    assert "not told" in document.html(content(study(), timelines={"diverse": [line]}))


def with_launches(root: Path) -> Path:
    """The same folder with a launch.json for each start."""
    for folder in root.glob("*-*"):
        name, block = folder.name.rsplit("-", 1)
        conf = made(f"+variant={name}", "engine=sim", f"block={block}")
        launch = {
            "engine": "sim", "engine_version": "0.5.9", "simulated": True, "sim_speed": 10.0, "block": int(block),
            "launch_id": folder.name, "started_at": f"2026-01-0{block}T10:00:00+00:00", "ready_s": 3.2,
            "argv": ["python", "-m", "server.sim", "--port", f"3000{block}", "--variant-flag", name],
            "env": {"EVIL": EVIL}, "config": asdict(conf), "git_commit": "c0ffee" * 6,
            "server_info": {"tp_size": 8, "mode": name, "random_seed": block, "uptime": folder.name},
            "provenance": {"cpu_model": "Abacus", "cpu_cores": 2, "gpus": []},
        }  # fmt: skip
        (folder / "launch.json").write_bytes(orjson.dumps(launch))
    return root


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three blocks on disk, with a launch.json for each start."""
    return with_launches(write(tmp_path_factory.mktemp("page") / "a", study()))


def test_the_command_writes_the_page(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Into the first folder, elsewhere, or nowhere; stdout stays what it was."""
    code, out, err = told(capsys, tree, "--format", "csv")
    assert code == 0
    assert f"report: {tree / 'report.html'}" in err
    assert "report" not in out
    text = (tree / "report.html").read_text()
    assert len(text) < PAGE_BYTES_MAX
    told(capsys, tree, "--html", tmp_path / "there.html")
    assert (tmp_path / "there.html").read_text() == text, "the same results give the same page"
    (tree / "report.html").unlink()
    _, _, err = told(capsys, tree, "--html", "none")
    assert "report" not in err
    assert not (tree / "report.html").exists()


def test_a_page_that_cannot_be_written(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 5 with its path, after all else was said."""
    (tmp_path / "file").write_text("")
    code, out, err = told(capsys, tree, "--html", tmp_path / "file" / "document.html")
    assert code == 5
    assert "for throughput: run baseline" in out
    assert str(tmp_path / "file" / "document.html") in err


def test_the_origin_tells_starts_and_what_differs(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine starts; flags and resolved arguments in which variants differ, and none that only starts differ in."""
    told(capsys, tree)
    text = (tree / "report.html").read_text()
    assert "9 server starts behind these numbers" in text
    assert "<code>--variant-flag</code>" in text
    assert "<code>mode</code>" in text
    for same in ("tp_size", "random_seed", "uptime", "--port"):
        assert f"<code>{same}</code>" not in text
    assert "Abacus, 2 cores" in text
    assert "c0ffeec0ffee<" in text
    assert text.count('"cpu_model"') == 1, "the same machine is told once"
    assert "sglang.launch_server" in text, "the command is that of the engine which the simulator stands for"


def test_what_a_variant_lacks_is_shown_beside_what_another_has() -> None:
    """Its column stays where all its cells are empty; a flag without a value is called given."""
    starts = [
        origin.Start("baseline", "a/0", {"argv": ["x", "--port", "1"], "server_info": None}),
        origin.Start("ngram", "a/1", {"argv": ["x", "--port", "2", "--spec", "NGRAM", "--fast"], "env": {"A": "1"}}),
    ]
    (table,) = origin.differences(starts, ["baseline", "ngram"])
    cells = [["".join(cell.itertext()) for cell in line] for line in table.iter("tr")]
    assert cells == [["name", "baseline", "ngram"], ["--fast", "–", "given"], ["--spec", "–", "NGRAM"], ["A", "–", "1"]]


def test_a_start_whose_launch_is_gone() -> None:
    """Its row says so by signs, not by `None`."""
    cells = ["".join(cell.itertext()) for cell in origin.starts_table([origin.Start("baseline", "a/0", {})]).iter("td")]
    assert cells == ["", "–", "an unknown machine", "–", "–", "–", "a/0"]


def test_many_variants_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty variants, eight levels, five blocks: below two megabytes."""
    levels = (1, 2, 5, 10, 30, 70, 100, 250)
    points = [
        point(name, level, 90.0 + level, block=block, root="outputs/2026-01-01/10-00-00")
        for name in ("baseline", *(f"variant_{n}" for n in range(19)))
        for level in levels
        for block in range(5)
    ]
    text = document.html(content(points))
    assert len(text) < PAGE_BYTES_MAX


def test_the_same_shape_for_other_programs(tree: Path) -> None:
    """Whole distributions are the page's: they do not swell the JSON."""
    found = compare.compare([tree])
    assert "distributions" not in formats.as_json(found.contests, found.chosen)
    rows: Mapping[Any, comparison.Row] = found.contests[0].rows
    assert all(len(curve) <= 60 for one in rows.values() for curve in one.distributions.values())
    assert set(STUDY) == {name for name, _ in rows}
