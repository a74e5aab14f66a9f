"""The command: folders in, one Markdown file out, and what it refuses."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loadgen import journal, store
from loadgen.dataset import POINT
from loadgen.errors import ConfigError
from tests.unit.results import FIRST, SECOND, failed, study
from tests.unit.rows import health, row

NOTE = "  The fans were loud | on *Tuesday*. "


def written(root: Path, points: Sequence[dict[str, Any]], never: Sequence[dict[str, Any]] = ()) -> Path:
    """A command's folder as a run leaves it: requests, point.json, the ledger."""
    for point in points:
        folder = root / f"{point['variant']}-{point['block']}" / f"c{point['load']['concurrency']}"
        kept = {name: value for name, value in point.items() if name not in ("root", "folder")}
        identity = {"point_id": point["point_id"], "variant": point["variant"]}
        writer = store.RowWriter(store.stream_path(folder, 0))
        writer.append([row(seq, 10.0 * seq, **identity) for seq in range(8)])
        writer.close()
        store.commit_point(folder, store.requests_table(folder, None), [health(0)], kept)
        line = {"variant": point["variant"], "block": point["block"], "point_id": point["point_id"],
                "folder": f"{point['variant']}-{point['block']}", **point["load"]}  # fmt: skip
        store.append_line(root / store.LEDGER, line)
    root.mkdir(parents=True, exist_ok=True)
    for line in never:
        store.append_line(root / store.LEDGER, line)
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The first study, below outputs/ of a folder of its own."""
    written(tmp_path / "outputs/2026-01-03/00-00-00", study(FIRST, "a", 0))
    return tmp_path


def bring(tree: Path, *more: str, code: int = 0) -> str:
    assert journal.main([str(tree / "outputs"), "--file", str(tree / "EXPERIMENTS.md"), *more]) == code
    return (tree / "EXPERIMENTS.md").read_text()


def annotate(tree: Path) -> None:
    """Somebody writes a note at the top, and one of their own below the table."""
    file = tree / "EXPERIMENTS.md"
    text = file.read_text().replace("begin top -->\n", f"begin top -->\n{NOTE}\n")
    text = text.replace("\n### ", "\n<!-- notes: begin -->\nmine\n<!-- notes: end -->\n\n### ", 1)
    file.write_text(text)


def test_the_story_through_the_command(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First UNTESTED and "does not pay", then superseded by the new run; notes survive both; twice changes nothing."""
    first = bring(tree)
    assert "Speculation does not pay under load (concurrency >= 30)" in first
    assert "| eagle_topk1_v2 | UNTESTED |" in first
    assert "0 superseded; written" in capsys.readouterr().out
    annotate(tree)
    noted = bring(tree)
    assert noted.count(NOTE) == 1
    assert bring(tree) == noted
    assert "unchanged" in capsys.readouterr().out
    written(tree / "outputs/2026-01-04/12-00-00", study(SECOND, "b", 600))
    second = bring(tree)
    assert "Speculation pays under load" in second
    assert "by `outputs/2026-01-04/12-00-00`" in second
    assert second.count(NOTE) == second.count("\nmine\n") == 1
    assert bring(tree) == second


def test_two_people_in_any_order(tree: Path, tmp_path: Path) -> None:
    """Folders of two people, named in either order, with a copy of the first among the second's: the same bytes."""
    other = written(tmp_path / "team/x/y", study(SECOND, "b", 600))
    shutil.copytree(tree / "outputs", other.parent / "copied")
    file, texts = tree / "EXPERIMENTS.md", []
    for folders in ([tree / "outputs", other.parent], [other.parent, tree / "outputs", tree]):
        file.unlink(missing_ok=True)
        assert journal.main([*map(str, folders), "--file", str(file)]) == 0
        texts.append(file.read_text())
    assert texts[0] == texts[1]
    assert "2 results of 48 Points" in texts[0]


def test_paths_are_the_files_own(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Citations are seen from the journal's folder, wherever the command is typed."""
    whole = bring(tree)
    assert "`outputs/2026-01-03/00-00-00`" in whole
    (tree / "EXPERIMENTS.md").unlink()
    monkeypatch.chdir(tree / "outputs")
    assert journal.main([".", "--file", "../EXPERIMENTS.md"]) == 0
    assert (tree / "EXPERIMENTS.md").read_text() == whole
    (tree / "docs").mkdir()
    assert journal.main([".", "--file", "../docs/E.md"]) == 0
    assert "`../outputs/2026-01-03/00-00-00`" in (tree / "docs/E.md").read_text()
    assert journal.main([str(tree / "outputs"), "--file", "../docs/F.md"]) == 0
    assert f"`{tree}/outputs/2026-01-03/00-00-00`" in (tree / "docs/F.md").read_text()


def test_what_never_came_to_be(tree: Path) -> None:
    """A server that did not start is FAILED with its reason, in the table of what its command had asked for."""
    root = tree / "outputs/2026-01-05/00-00-00"
    line = {"folder": "0", "variant": "nvls", "workload": "diverse", "block": 0, "concurrency": 1, "rate": None,
            "point_id": None, "status": "FAILED", "reason": "server: no NVSwitch | <here>"}  # fmt: skip
    stopped = {**line, "variant": "ngram", "status": "INTERRUPTED", "reason": "interrupted"}
    written(root, [], [line, stopped])
    conf = {"engine": {"kind": "sim"}, "model": {"name": "kimi_k25"}}
    store.write_json(root / "runs.json", {"command": "x", "runs": [{"folder": "0", "config": conf}]})
    measured, _, made = bring(tree).partition("## Simulated")
    assert "| nvls | UNTESTED |" in measured
    assert "| nvls | FAILED |" in made
    assert "no NVSwitch \\| &lt;here\\>" in made
    assert "| ngram | UNTESTED |" in made


def test_a_text_outside_the_notes_is_refused_and_kept(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is overwritten until it is moved, or until all but the notes may go."""
    bring(tree)
    annotate(tree)
    file = tree / "EXPERIMENTS.md"
    file.write_text(file.read_text() + "\nI think that this is wrong.\n")
    edited = file.read_text()
    assert bring(tree, code=2) == edited
    assert "--rewrite" in capsys.readouterr().err
    again = bring(tree, "--rewrite")
    assert "I think" not in again
    assert NOTE in again
    assert bring(tree) == again


@pytest.mark.parametrize("data", [b"# My own experiments\n", b"\xff\xfe\x00"])
def test_a_file_of_somebody_else_is_left_alone(tree: Path, data: bytes) -> None:
    """It is refused, also with --rewrite."""
    file = tree / "EXPERIMENTS.md"
    file.write_bytes(data)
    for more in ((), ("--rewrite",)):
        assert journal.main([str(tree / "outputs"), "--file", str(file), *more]) == 2
        assert file.read_bytes() == data


def test_an_empty_file_is_nobodys(tree: Path) -> None:
    """As `touch` makes it."""
    (tree / "EXPERIMENTS.md").touch()
    assert bring(tree).startswith("<!-- loadgen journal")


def test_refusals(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to record is 2, a file that cannot be written 5; each is one sentence."""
    empty = tmp_path / "empty"
    empty.mkdir()
    file = str(tmp_path / "E.md")
    assert journal.main([str(empty), "--file", file]) == 2
    assert journal.main([str(tmp_path / "nowhere"), "--file", file]) == 2
    assert journal.main([str(tree / "outputs"), "--file", str(empty)]) == 5
    (tmp_path / "plain").write_text("")
    assert journal.main([str(tree / "outputs"), "--file", str(tmp_path / "plain/E.md")]) == 5
    written(empty, [failed("baseline", 1, "INTERRUPTED")])
    assert journal.main([str(empty), "--file", file]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 5
    assert all(line.startswith("loadgen: ") for line in told)
    assert not Path(file).exists()


GOOD = study(FIRST, "a", 0)[0]
STRANGE = [[], {}, {"point_id": "x"}, {**GOOD, "summary": {}}, {**GOOD, "verdict": "VALID"}, {**GOOD, "load": 3},
           {**GOOD, "summary": {**GOOD["summary"], "output_tokens_per_s": 0}}]  # fmt: skip


@pytest.mark.parametrize("content", map(json.dumps, STRANGE))
def test_a_strange_point_is_named(tree: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A point.json of something else does not end in a traceback."""
    strange = tree / "outputs/strange"
    strange.mkdir()
    (strange / POINT).write_text(content)
    assert journal.main([str(tree / "outputs"), "--file", str(tree / "EXPERIMENTS.md")]) == 2
    assert str(strange / POINT) in capsys.readouterr().err


def test_latencies_are_read_where_they_are(tree: Path) -> None:
    """With requests.parquet there is a conclusion for latency, without it there is none and no error."""
    assert "**For latency.**" in bring(tree)
    for file in (tree / "outputs").rglob("requests.parquet"):
        file.unlink()
    assert "**For latency.**" not in bring(tree)


def test_broken_requests_are_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table that was cut off is a matter of storage."""
    file = next((tree / "outputs").rglob("requests.parquet"))
    file.write_bytes(b"PAR1")
    assert journal.main([str(tree / "outputs"), "--file", str(tree / "EXPERIMENTS.md")]) == 5
    assert str(file.parent) in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """As every command's has."""
    with pytest.raises(SystemExit) as ended:
        journal.main(["--help"])
    assert ended.value.code == 0
    assert "python -m loadgen.journal outputs" in capsys.readouterr().out


def test_every_shipped_variant_is_known() -> None:
    """With what it asks, and whether it speculates."""
    told = {one.name: one for one in journal.known()}
    assert set(told) == {path.stem for path in journal.VARIANTS.glob("*.yaml")}
    assert {name for name, one in told.items() if one.speculates} >= {"eagle_topk1_v2", "eagle_dynamic", "ngram"}
    assert not told["baseline"].speculates
    assert told["eagle_tree_sync"].since == "0.5.13"
    assert all(one.question for one in told.values())


def test_a_broken_variant_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of conf/variant/ that cannot be read."""
    monkeypatch.setattr(journal, "VARIANTS", tmp_path)
    for content in ("a: [", "- 1", "args: {}"):
        (tmp_path / "x.yaml").write_text(content)
        with pytest.raises(ConfigError, match=r"x\.yaml is no variant"):
            journal.known()


def test_other_flags_under_one_name_are_not_pooled(tree: Path) -> None:
    """A second study of the chain with five draft steps stands beside the first, under a name of its own.

    A baseline with another flag has a section of its own.
    """

    def measured(folder: str, minute: int, base: int, steps: int) -> None:
        root = written(tree / f"outputs/{folder}", study(SECOND, folder, minute))
        for variant, args in (("baseline", {"cap": base}), ("eagle_topk1_v2", {"cap": base, "steps": steps})):
            for block in range(3):
                content = {"engine": "sglang", "config": {"variant": {"args": args}}}
                (root / f"{variant}-{block}" / "launch.json").write_text(json.dumps(content))

    measured("2026-01-04/12-00-00", 600, 8, 3)
    measured("2026-01-05/12-00-00", 700, 8, 5)
    text = bring(tree)
    assert "| eagle_topk1_v2 | TESTED |" in text
    assert "| eagle_topk1_v2 args.steps=5 | TESTED |" in text
    measured("2026-01-06/12-00-00", 800, 16, 3)
    assert "they differ in variant.args.cap of baseline" in bring(tree)
