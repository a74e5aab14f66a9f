"""The tables of columns in docs/data.md, made from the schemas: `python tests/unit/documented.py` writes them anew."""

from collections.abc import Sequence
from pathlib import Path

from loadgen.columns import UNITS
from loadgen.record import HEALTH, IDENTITY, JUDGED, REQUEST, SERVER_METRICS, Column

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
TABLES = {
    "requests.parquet": (*IDENTITY, *REQUEST, *JUDGED),
    "health.parquet": [column for column in HEALTH if column not in IDENTITY],
    "server_metrics.parquet": SERVER_METRICS,
}


def table(columns: Sequence[Column]) -> str:
    """A Markdown table of columns."""
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for column in columns:
        unit = UNITS.get(column.name.rsplit("_", 1)[-1], "")
        lines.append(f"| `{column.name}` | {column.type} | {unit} | {column.doc} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with each table between its marks made anew. Raises ValueError where a mark is missing."""
    for name, columns in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin, 1)
        text = f"{before}{begin}\n{table(columns)}\n{end}{rest.split(end, 1)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
