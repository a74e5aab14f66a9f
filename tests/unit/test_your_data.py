"""The page and the script for people who read the dataset: true of the schemas, and of three libraries alike."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import documented
import pytest
from rows import failure, health, row

import loadgen
from loadgen import store
from loadgen.record import SCHEMA_VERSION

SCRIPT = Path(documented.PAGE).with_name("your_data.py")


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("your_data", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


QUESTIONS = script().QUESTIONS


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variants at two levels and two rates, 20 requests each with other times, one failure; an unfinished Point."""
    root = tmp_path_factory.mktemp("tree")
    for variant in ("baseline", "eagle"):
        for level, rate in ((1, None), (16, None), (None, 2.0), (None, 4.0)):
            rows = [
                row(
                    seq,
                    10.0 * seq,
                    variant=variant,
                    concurrency=level,
                    rate=rate,
                    prompt_kind=("code", "chat")[seq % 2],
                    chunk_tokens=[1 + seq % 3, 2, 2, 2, 2],
                    output_tokens=9 + seq % 3,
                    first_token_ns=int((10.0 * seq + 50 + seq * (level or 3)) * 1e6),
                )
                for seq in range(19)
            ]
            rows.append(failure(19, 200.0, "http_status", variant=variant, concurrency=level, rate=rate))
            folder = root / variant / (f"c{level}" if level else f"r{rate:g}")
            writer = store.RowWriter(store.stream_path(folder, 0))
            writer.append(rows)
            writer.close()
            point = {"schema_version": SCHEMA_VERSION, "verdict": {"status": "VALID", "reasons": []}}
            beats = [health(ms, variant=variant, concurrency=level, rate=rate) for ms in (1000, 2000)]
            store.commit_point(folder, store.requests_table(folder, None), beats, point)
    store.RowWriter(store.stream_path(root / "eagle" / "c64", 0)).append([row(0)])
    return root


@pytest.mark.parametrize("question", QUESTIONS)
def test_three_libraries_give_one_answer(tree: Path, question: str) -> None:
    """Row by row, to the last digits that floating point has in common."""
    answers = [ask(str(tree)) for ask in QUESTIONS[question]]
    assert len(answers[0]) >= 4
    for other in answers[1:]:
        assert len(other) == len(answers[0])
        for one, two in zip(answers[0], other, strict=True):
            assert tuple(two) == tuple(pytest.approx(value) if isinstance(value, float) else value for value in one)


def test_the_script_prints_its_answers(tree: Path) -> None:
    """As it is written at its head."""
    told = subprocess.run([sys.executable, SCRIPT, tree], capture_output=True, text=True, check=True, timeout=60).stdout
    assert all(question in told for question in QUESTIONS)
    assert "baseline 16 None http_status 1" in told


def test_read_gives_whole_points_only(tree: Path) -> None:
    """Every request once, as a table that pandas takes; the unfinished Point is not there."""
    table = loadgen.read(tree)
    assert table.num_rows == 160
    assert table.to_pandas().variant.unique().tolist() == ["baseline", "eagle"]
    assert loadgen.read(str(tree), "health.parquet").num_rows == 16


def test_the_page_has_every_column() -> None:
    """python tests/unit/documented.py writes it anew."""
    text = documented.PAGE.read_text()
    assert documented.page(text) == text
