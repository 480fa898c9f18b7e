"""The user's web browser, opened for a sign-in."""

from __future__ import annotations

import os
import sys
import webbrowser

import trio

from ..supervisors import Actor


def has_browser() -> bool:
    """True if a browser with a window can be opened on this machine."""
    return sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def open_browser(me: Actor, url: str) -> None:
    """Open a page in a browser, without waiting: some browsers return only when the user closes them."""
    me.spawn(_open, url, name="browser", link=False)


async def _open(_me: Actor, url: str) -> None:
    await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
