"""People's notes in a file of ours: kept word for word, and refused rather than lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import notes
from loadgen.errors import ConfigError
from loadgen.notes import Area, Part, compose, read

PARTS = [
    Part("# Experiments", ("Written by a program.", "", "| a | b |"), "top"),
    Part("## Measured", ("Nothing yet.",), "measured"),
    Part("## Results", ("| x |",)),
]
LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=20), max_size=4)


def insert(text: str, after: str, new: str) -> str:
    assert text.count(f"{after}\n") == 1
    return text.replace(f"{after}\n", f"{after}\n{new}")


@settings(max_examples=100, deadline=None)
@given(LINES, LINES)
def test_notes_survive_word_for_word(top: list[str], other: list[str]) -> None:
    """Whatever stands between marks comes back, in its place, and once more changes nothing."""
    clean = [[line for line in lines if "<!--" not in line] for lines in (top, other)]
    empty = compose(PARTS, ())
    text = insert(empty, "<!-- notes: begin top -->", "".join(f"{line}\n" for line in clean[0]))
    mine = "".join(f"{line}\n" for line in ["<!-- notes: begin -->", "x", *clean[1], "<!-- notes: end -->"])
    text = insert(text, "Nothing yet.", mine)
    kept = read(text, "x")
    assert kept.untouched
    assert [area.lines for area in kept.areas] == [tuple(clean[0]), ("x", *clean[1]), ()]
    again = compose(PARTS, kept.areas)
    assert compose(PARTS, read(again, "x").areas) == again
    assert {area.lines for area in read(again, "x").areas} == {area.lines for area in kept.areas}


def test_notes_whose_place_is_gone_go_to_the_end() -> None:
    """A section that is no longer there takes no note with it, and the note returns with the section."""
    text = insert(compose(PARTS, ()), "<!-- notes: begin measured -->", "look here\n")
    less = compose([PARTS[0], PARTS[2]], read(text, "x").areas)
    assert less.index(notes.ELSEWHERE) < less.index("look here")
    assert read(less, "x").untouched
    assert compose([PARTS[0], PARTS[2]], read(less, "x").areas) == less
    assert compose(PARTS, read(less, "x").areas) == text


def test_an_empty_place_leaves_nothing_behind() -> None:
    """Pairs of marks of a section that is gone and had no notes go with it."""
    less = compose([PARTS[0], PARTS[2]], read(compose(PARTS, ()), "x").areas)
    assert less == compose([PARTS[0], PARTS[2]], ())


@pytest.mark.parametrize("change", [("Nothing yet.", "Nothing at all."), ("| x |", "| x |\n\nmy own words")])
def test_other_text_is_noticed(change: tuple[str, str]) -> None:
    """A changed line and a new one outside the marks."""
    assert not read(compose(PARTS, ()).replace(*change), "x").untouched


def test_what_editors_do_is_no_change() -> None:
    """Blank lines, blanks at the end of lines, other line ends, a byte order mark."""
    text = compose(PARTS, ())
    for changed in (text.replace("\n", "\r\n"), "\ufeff" + text, text.replace("\n\n", "\n \n\n"), text.rstrip("\n")):
        assert read(changed, "x").untouched


@pytest.mark.parametrize(
    ("broken", "line", "word"),
    [
        ("<!-- notes: begin a -->\n<!-- notes: begin b -->\n<!-- notes: end -->", 6, "line 5"),
        ("<!-- notes: end -->", 5, "never began"),
        ("<!-- notes: begin a -->\nwords", 5, "no end"),
        ("<!-- notes: beginn a -->", 5, "no mark"),
        ("words <!-- notes: end -->", 5, "no mark"),
        ("<!-- notes: begin two words -->", 5, "no mark"),
    ],
)
def test_broken_marks_are_refused_with_their_line(broken: str, line: int, word: str) -> None:
    """Nested, ended twice, without an end, misspelt, not alone on the line."""
    head, _, rest = compose([Part("# Experiments", ())], ()).partition("\n")
    text = f"{head}\n{rest}\n{broken}\n"
    assert text.splitlines()[4] == broken.splitlines()[0]
    with pytest.raises(ConfigError, match=rf"x, line {line}: .*") as told:
        read(text, "x")
    assert word in str(told.value)


def test_the_same_name_twice_is_refused() -> None:
    """As a merge of two people's files makes it."""
    text = (
        compose(PARTS, (Area("mine", ("a",), "# Experiments"),)) + "<!-- notes: begin mine -->\n<!-- notes: end -->\n"
    )
    with pytest.raises(ConfigError, match="two notes called mine"):
        read(text, "x")


def test_a_file_of_somebody_else_is_refused() -> None:
    """Even one that has marks."""
    for text in ("# My experiments\n", "<!-- notes: begin top -->\n<!-- notes: end -->\n"):
        with pytest.raises(ConfigError, match="not written by this command"):
            read(text, "EXPERIMENTS.md")
