"""A person's browser, opened from the command line."""

from __future__ import annotations

import os
import sys
import webbrowser

import trio

from ..supervisors import Actor


def has_browser() -> bool:
    """Whether one can be opened here that has a window of its own."""
    return sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def open_browser(me: Actor, url: str) -> None:
    """Have one open a page. Not waited for: some come back only when the person closes them."""
    me.spawn(_open, url, name="browser", link=False)


async def _open(_me: Actor, url: str) -> None:
    await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
