"""A real browser for tests: headless Chromium, driven by the DevTools protocol over a websocket of ours.

with launched() as browser:                     # one process, usually for a whole module
    async with browser.page(url) as page:       # a tab with cookies and storage of its own
        await page.until("document.title === 'Callboard'")
        await page.click("button.primary")
    assert page.problems == []                  # errors on the console, exceptions, what the CSP refused
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import trio
import trio_websocket

Json = Any

PROGRAMS = ("chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The engine by itself comes first: it takes a third of the CPU of the whole program without its windows."""

DEADLINE = 240.0
HANGS = 300.0
"""Seconds after which a command that the browser has not answered fails; a page that draws 100,000 events is busy."""
KEEPER = Path(__file__).with_name("browser_keeper.py")
OPTIONS = """
    --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions --mute-audio
    --disable-background-networking --disable-component-update --disable-sync --disable-breakpad --hide-scrollbars
    --disable-crash-reporter --no-default-browser-check --remote-debugging-port=0
"""


def program() -> str | None:
    """Path of the browser on this machine, if there is one."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """A browser that is there for the block; afterwards neither it nor its helpers nor its profile are.

    So it is if this program is killed meanwhile: see `browser_keeper`.
    """
    found = program()
    assert found, "no browser here: ask program() first"
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        browser = [found, *OPTIONS.split(), f"--user-data-dir={profile}", "about:blank"]
        argv = [sys.executable, "-I", str(KEEPER), profile, *browser]
        keeper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        assert keeper.stdin is not None
        try:
            yield Browser(_address(keeper, Path(profile) / "DevToolsActivePort"))
        finally:
            keeper.stdin.close()
            keeper.wait(DEADLINE)


def _address(process: subprocess.Popen[bytes], file: Path) -> str:
    """Where it listens: it writes that into its profile when it is ready."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end and process.poll() is None:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.01)
    raise RuntimeError(f"the browser is not ready after {DEADLINE} s (exit status {process.poll()})")


class Browser:
    """The process. `url` is its DevTools endpoint."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextlib.asynccontextmanager
    async def page(self, url: str, width: int = 1280, height: int = 800) -> AsyncIterator[Page]:
        """A new tab at `url`, with nothing stored."""
        async with trio_websocket.open_websocket_url(self.url, max_message_size=64 << 20) as socket:
            page = Page(socket)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(page.listen)
                context = await page.send("Target.createBrowserContext")
                new = {"url": "about:blank", "browserContextId": context["browserContextId"]}
                target = await page.send("Target.createTarget", **new)
                attached = await page.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
                page.session = attached["sessionId"]
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.send(f"{domain}.enable")
                await page.size(width, height)
                await page.goto(url)
                try:
                    yield page
                finally:
                    with trio.move_on_after(5, shield=True):
                        page.session = None
                        await page.send("Target.disposeBrowserContext", **context)
                    nursery.cancel_scope.cancel()


class Page:
    """One tab. `problems`: what the console and the CSP had to say against it; `asked`: addresses it went to."""

    def __init__(self, socket: trio_websocket.WebSocketConnection) -> None:
        self.session: str | None = None
        self.problems: list[str] = []
        self.asked: list[str] = []
        self._socket = socket
        self._last = 0
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, Json] = {}

    async def listen(self) -> None:
        """Take what the browser says, until the connection goes."""
        with contextlib.suppress(trio_websocket.ConnectionClosed):
            while True:
                frame = json.loads(await self._socket.get_message())
                if "id" in frame:
                    self._answers[frame["id"]] = frame
                    self._waiting[frame["id"]].set()
                else:
                    self._heard(frame["method"], frame["params"])

    def _heard(self, method: str, params: Json) -> None:
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    async def send(self, method: str, /, **params: Json) -> Json:
        """One command of the protocol, and its result."""
        self._last += 1
        number, done = self._last, trio.Event()
        self._waiting[number] = done
        frame = {"id": number, "method": method, "params": params}
        await self._socket.send_message(json.dumps(frame | ({"sessionId": self.session} if self.session else {})))
        with trio.fail_after(HANGS):
            await done.wait()
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    async def evaluate(self, script: str) -> Json:
        """The value of an expression in the page; promises are waited for."""
        options = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        result = await self.send("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in result, result["exceptionDetails"].get("exception", {}).get("description")
        return result["result"].get("value")

    async def until(self, script: str, seconds: float = DEADLINE) -> Json:
        """Wait until an expression is true, and its value. Not being so in time fails with what the page shows."""
        with trio.move_on_after(seconds):
            while True:
                with contextlib.suppress(AssertionError):  # the page may just be being loaded
                    if found := await self.evaluate(f"(found => found instanceof Node || found)({script})"):
                        return found
                await trio.sleep(0.02)
        shown = await self.evaluate("document.body.innerText")
        raise AssertionError(
            f"not so within {seconds} s: {script}\nproblems: {self.problems}\nthe page shows:\n{shown}"
        )

    async def goto(self, url: str) -> None:
        """Open an address; returns when the page is there."""
        await self._there("Page.navigate", url=url)

    async def reload(self) -> None:
        """Load the page again, as F5 does; returns when the new one is there."""
        await self._there("Page.reload")

    async def _there(self, method: str, **params: Json) -> None:
        for _ in range(10):
            known = len(self.problems)
            await self.evaluate("window.before = true")
            await self.send(method, **params)
            await self.until("!window.before && document.readyState === 'complete'")
            if not any("ERR_NETWORK_CHANGED" in problem for problem in self.problems[known:]):
                return
            # Chromium ends all requests when an interface appears or goes, as those of other tests do.
            del self.problems[known:]
        raise AssertionError("the network of this machine changes all the time")

    async def size(self, width: int, height: int) -> None:
        """Size of what is seen."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def scheme(self, name: str) -> None:
        """What the system prefers: `light` or `dark`."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def click(self, selector: str) -> None:
        """A real click of the mouse into the middle of an element, once it is there and nothing covers it."""
        quoted = json.dumps(selector)
        spot = await self.until(f"""(() => {{
            const found = document.querySelector({quoted});
            if (!found) return null;
            found.scrollIntoView({{block: "nearest"}});
            const box = found.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            const top = document.elementFromPoint(x, y);
            return top && (found.contains(top) || top.contains(found)) ? {{x, y}} : null;
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **spot)

    async def type(self, text: str) -> None:
        """Text into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def press(self, *keys: str) -> None:
        """Keys, one after another: letters, or names such as `Enter`."""
        for key in keys:
            code = _CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            kind = "keyDown" if text else "rawKeyDown"
            name = key if len(key) > 1 else re.sub(r"^([a-z])$", lambda found: f"Key{found[1].upper()}", key)
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=name, windowsVirtualKeyCode=code, text=text
            )
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=name, windowsVirtualKeyCode=code)

    async def picture(self, file: Path) -> None:
        """What is seen, as a PNG."""
        shot = await self.send("Page.captureScreenshot", format="png")
        await trio.Path(file).write_bytes(base64.b64decode(shot["data"]))


_CODES = {
    "Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
    "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34, "/": 191,
}  # fmt: skip
