"""A headless Chromium and its debugging protocol: a page opened from the disk, what it asked for and complained of.

It must not know what a test asks. Nothing is put into the page: expressions are evaluated from outside.
"""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_S_MAX, ANSWER_S_MAX = 30.0, 30.0
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
         "--remote-allow-origins=*")  # fmt: skip


@dataclass
class Tab:
    """One page: its answers by number, and every event that came with them."""

    socket: aiohttp.ClientWebSocketResponse
    events: list[dict[str, Any]] = field(default_factory=list)
    number: int = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; events that come before it are kept."""
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_S_MAX):
            while True:
                told = json.loads(await self.socket.receive_str())
                if told.get("id") == self.number:
                    assert "error" not in told, told
                    return dict(told["result"])
                self.events.append(told)

    async def value(self, expression: str) -> Any:
        """What an expression is worth in the page."""
        told = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def see(self, path: Path, width: int, scheme: str = "light", media: str = "screen") -> None:
        """Open a file as on a screen so wide."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.ask("Emulation.setEmulatedMedia", media=media, features=features)
        await self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        await self.ask("Page.navigate", url=path.resolve().as_uri())
        async with asyncio.timeout(ANSWER_S_MAX):
            while await self.value("document.readyState + location.protocol") != "completefile:":
                await asyncio.sleep(0.05)

    async def press(self, key: str, code: int, text: str = "") -> None:
        """One key down and up."""
        for kind in ("keyDown", "keyUp"):
            await self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
            )

    async def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        told = await self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))

    async def printed(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode((await self.ask("Page.printToPDF", printBackground=True))["data"])

    def asked_for(self) -> list[str]:
        """Every address that was asked for."""
        return [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the console showed: errors, warnings, what the page's policy refused."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(one["params"]) for one in self.events if one["method"] in kinds]


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Tab]:
    """A browser of its own with one tab; gone at the end."""
    process = await asyncio.create_subprocess_exec(
        str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = await _port(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.ws_connect(await _page(session, port), max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await tab.ask(f"{domain}.enable")
                yield tab
                await tab.ask("Browser.close")
    finally:
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _page(session: aiohttp.ClientSession, port: int) -> str:
    """The address of its one page, which may come later than its port."""
    async with asyncio.timeout(START_S_MAX):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)


async def _port(path: Path) -> int:
    async with asyncio.timeout(START_S_MAX):
        while not (path.is_file() and path.read_text().strip()):
            await asyncio.sleep(0.05)
    return int(path.read_text().split()[0])
