"""report.html in a browser, from the disk: at a desk and on a phone, by day and by night, by keyboard, printed."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Tab, browsing

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from points import study
from test_compare import write
from test_page import with_launches

from loadgen import compare

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
FIGURES = "[...document.querySelectorAll('figure svg')]"
# Texts of one drawing that lie upon each other, or outside of it.
BAD_TEXTS = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()])
    .filter(([words, box]) => words && box.width);
  const outside = boxes.filter(([, box]) => box.left < frame.left - 2 || box.right > frame.right + 2)
    .map(([words]) => 'outside: ' + words);
  const upon = boxes.flatMap(([words, one], place) => boxes.slice(place + 1).filter(([, other]) =>
    one.left < other.right - 1 && other.left < one.right - 1 &&
    one.top < other.bottom - 3 && other.top < one.bottom - 3)
    .map(([others]) => words + ' upon ' + others));
  return [...outside, ...upon].map(said => svg.querySelector('title').textContent + ': ' + said);
})
"""

# What the first button says once it says something else.
OTHER_WORDS = """
new Promise(done => {
  const look = () => {
    const said = document.querySelector('button').textContent;
    said === 'Copy' ? setTimeout(look, 20) : done(said);
  };
  look();
})
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a made-up study, as the command writes it."""
    root = with_launches(write(tmp_path_factory.mktemp("seen") / "runs", study()))
    assert compare.main([str(root)]) == 0
    return root / "report.html"


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path / "profile") as tab:
        yield tab


async def test_a_page_from_the_disk(page: Path, tab: Tab) -> None:
    """Nothing is fetched, nothing complained of, nothing wider than the screen, every figure has its size."""
    for width in (1280, 400):
        for scheme in ("light", "dark"):
            await tab.see(page, width, scheme)
            await tab.value("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert await tab.value("document.documentElement.scrollWidth") <= width
            sizes = await tab.value(f"{FIGURES}.map(svg => svg.getBoundingClientRect().width)")
            assert len(sizes) >= 6
            assert all(300 < size < 620 for size in sizes)
            assert await tab.value(BAD_TEXTS) == []
            paper = await tab.value("getComputedStyle(document.documentElement).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert set(tab.asked_for()) == {page.resolve().as_uri()}
    assert tab.complaints() == []


async def test_by_keyboard(page: Path, tab: Tab) -> None:
    """The first stop leads to the answer; what can be opened is reached, seen to have focus, and opens."""
    await tab.see(page, 1280)
    stops = []
    for _ in range(60):
        await tab.press("Tab", 9)
        stops.append(await tab.value("document.activeElement.className || document.activeElement.tagName"))
        assert await tab.value("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if stops[-1] == "SUMMARY":
            break
    assert stops[0] == "skip"
    assert {"BUTTON", "command", "SUMMARY"} <= set(stops)
    assert not await tab.value("document.activeElement.parentElement.open")
    await tab.press("Enter", 13, "\r")
    assert await tab.value("document.activeElement.parentElement.open")


async def test_a_command_is_copied(page: Path, tab: Tab) -> None:
    """One press of its button selects the whole line, and only that; where the clipboard is refused, it says so."""
    await tab.see(page, 1280)
    await tab.value("document.querySelector('button').click()")
    command = await tab.value("document.querySelector('pre.command').textContent")
    assert "sglang.launch_server" in command
    assert await tab.value("getSelection().toString()") == command
    assert await tab.value(OTHER_WORDS) in ("Copied", "Selected, press Ctrl+C")


async def test_without_scripts(page: Path, tab: Tab) -> None:
    """All is there; only the button that copies is not."""
    await tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    await tab.see(page, 400)
    assert await tab.value("document.querySelectorAll('table').length") >= 3
    assert await tab.value("document.querySelectorAll('button').length") == 0


async def test_printed(page: Path, tab: Tab) -> None:
    """Light also where the screen is dark, details open, nothing cut off at the side."""
    await tab.see(page, 794, "dark", "print")
    assert await tab.value("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    hidden = "[...document.querySelectorAll('details')].filter(one => one.getBoundingClientRect().height < 30).length"
    assert await tab.value(hidden) == 0
    assert (await tab.printed()).startswith(b"%PDF")
