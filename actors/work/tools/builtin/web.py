"""fetch_url_via_curl: the text of a web page. The name is Loki's; there is no curl in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from ....io.html.page import Reader
from ..tool import Arguments
from .fetching import SECONDS, get
from .places import in_thread
from .setting import Setting

if TYPE_CHECKING:
    from .....supervisors import Actor

RESULT = 128 * 1024
"""Characters of a page that the model gets."""

CONVERTING = 10.0
"""Seconds; a page made to keep a parser busy is read as far as that goes."""


async def fetch_url_via_curl(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """A page's text: HTML made readable, anything else as it is."""
    url = arguments["url"].strip()
    if "://" not in url:
        url = "https://" + url
    page = await get(url, setting.environ, accept="text/html, text/*;q=0.9, */*;q=0.8", within=_within(setting))
    text, cut = page.text, page.cut
    if "html" in page.kind or text[:200].lstrip().lower().startswith(("<!doctype html", "<html")):
        text, whole = await in_thread(lambda: _converted(page.text, page.url))
        cut = cut or not whole
    if len(text) > RESULT:
        return f"{text[:RESULT]}\n[cut: {len(text) - RESULT} more characters]"
    if cut:
        return f"{text}\n[cut: the page goes on]"
    return text or "(the page has no text)"


def _converted(html: str, url: str) -> tuple[str, bool]:
    """The text, and whether it is all of it."""
    reader = Reader(url, shows_links=True)
    until = time.monotonic() + CONVERTING

    def look() -> None:
        trio.from_thread.check_cancelled()
        if time.monotonic() > until:
            raise TimeoutError

    whole = True
    try:
        reader.read(html, look)
    except TimeoutError:
        whole = False
    page = reader.page()
    return f"# {page.title}\n\n{page.text}".strip() if page.title else page.text, whole


def _within(setting: Setting) -> float:
    return min(SECONDS, setting.timeout)
