"""Every variant's command line on five versions of SGLang, word for word as it was last agreed on."""

import pytest
from goldens import FOLDER, VERSIONS, file_of, golden


@pytest.mark.parametrize("version", VERSIONS)
def test_command_lines_are_as_agreed(version: str) -> None:
    """A change of a command line is seen; `python tests/unit/goldens.py` takes it over."""
    assert golden(version) == file_of(version).read_text()


def test_no_golden_is_left_over() -> None:
    """Each file is one that is compared."""
    assert {path.name for path in FOLDER.iterdir()} == {file_of(version).name for version in VERSIONS}
