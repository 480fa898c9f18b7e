"""fetch_url_via_curl (the name is Loki's), and `get`, which gets a web page as text within bounds:
a few seconds, a few megabytes, and where `io.http.guarded` lets us go.

Private addresses are allowed, since a developer's own servers live there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import httpx
import msgspec
import trio

from .....protocol.errors import ToolFailed
from ....io.encodings import declared_inside, decoded
from ....io.html.page import Reader
from ....io.http import guarded
from ..tool import Arguments
from .allowed_paths import Setting, in_thread

if TYPE_CHECKING:
    from .....supervisors import Actor

SECONDS = 30.0
"""For one page, redirects included."""

LARGEST = 4 * 1024 * 1024
"""Bytes of a page that are read."""

NEARBY = 64 * 1024
"""Bytes before that in which the end of a line is looked for."""

SHOWN = 500

_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was got.

    Attributes:
        url: where it was found in the end.
        kind: its content type, without parameters.
        text: its text, decoded.
        cut: whether there was more.
    """

    url: str
    kind: str
    text: str
    cut: bool


async def get(
    url: str,
    environ: Mapping[str, str],
    *,
    params: Mapping[str, str] | None = None,
    accept: str = "*/*",
    within: float = SECONDS,
) -> Page:
    """Get a page as text.

    Raises:
        ToolFailed: it can't be got, is refused, is an error, or is not text.
    """
    try:
        target = httpx.URL(url, params=params) if params else httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError, TypeError) as error:
        raise ToolFailed(f"{url[:200]!r} is no URL: {error}") from error
    headers = {**guarded.HEADERS, "Accept": accept}
    page = None
    with trio.move_on_after(within):
        async with guarded.client(environ, allow_private=True, seconds=within) as client:

            async def once(target: httpx.URL) -> Page | httpx.URL:
                async with client.stream("GET", target, headers=headers) as response:
                    return guarded.redirected(response, target) or await _page(response, target)

            try:
                page = await guarded.followed(target, once)
            except guarded.CantFetch as error:
                raise ToolFailed(str(error)) from error
    if page is None:
        raise ToolFailed(f"{target.host} did not answer within {within:g} s")
    return page


async def _page(response: httpx.Response, url: httpx.URL) -> Page:
    body = await guarded.body_of(response, LARGEST)
    cut = len(body) > LARGEST
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if response.status_code >= 400 or response.status_code == 304:
        words = f"{response.status_code} {response.reason_phrase}".strip()
        shown = body[:SHOWN].decode(errors="replace") if _is_text(kind, body) else ""
        raise ToolFailed(f"{guarded.short(url)} answered {words}", stderr=shown)
    if not _is_text(kind, body):
        raise ToolFailed(f"{guarded.short(url)} is {kind or 'binary data'}, not text")
    if cut:  # after a line that ends nearby: half a character would make all of it look like another encoding
        end = body.rfind(b"\n", LARGEST - NEARBY, LARGEST)
        body = body[: end if end > 0 else LARGEST]
    text = await in_thread(lambda: decoded(body, response.charset_encoding or declared_inside(body)))
    return Page(url=str(url), kind=kind, text=text, cut=cut)


def _is_text(kind: str, body: bytes) -> bool:
    named = kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))
    return named or (kind in ("", "application/octet-stream") and b"\0" not in body[:8192])


RESULT = 128 * 1024
"""Characters of a page that the model gets."""

CONVERTING = 10.0
"""Seconds; a page made to keep a parser busy is read as far as that goes."""


async def fetch_url_via_curl(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """A page's text: HTML made readable, anything else as it is."""
    url = arguments["url"].strip()
    if "://" not in url:
        url = "https://" + url
    page = await get(
        url, setting.environ, accept="text/html, text/*;q=0.9, */*;q=0.8", within=min(SECONDS, setting.timeout)
    )
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
