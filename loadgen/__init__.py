"""loadgen: which LLM server variant to run at which load, by how much it is better, and may the number be believed."""

from pathlib import Path
from typing import Any


def read(folder: str | Path, name: str = "requests.parquet") -> Any:
    """A pyarrow Table of every whole Point at or below `folder`: `requests.parquet` or `health.parquet`.

    docs/data.md has the columns with their units. Raises StorageError where a file cannot be read.
    """
    from loadgen.dataset import read_dataset  # here: the command's help must not wait for Arrow

    return read_dataset(Path(folder), name)
