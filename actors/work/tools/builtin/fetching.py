"""fetch_url_via_curl (the name is Loki's), and `get`, which downloads a web page as text.

Downloads are bounded in seconds and bytes, and `io.http.guarded` decides which addresses are allowed. Private addresses
are allowed, since a developer's own servers use them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import httpx
import msgspec
import trio

from .....protocol.errors import ToolFailed
from .....protocol.kernel.text_cuts import head_of
from ....io.encodings import declared_inside, decoded
from ....io.handed_out import hidden, hidden_head
from ....io.html.page import PageReader
from ....io.http import guarded
from ..tool import Arguments
from .allowed_paths import Setting, in_thread

if TYPE_CHECKING:
    from .....supervisors import Actor

SECONDS = 30.0
"""Time limit for one page, including redirects."""

LARGEST = 4 * 1024 * 1024
"""Maximum bytes read of a page."""

NEARBY = 64 * 1024
"""Bytes before the limit in which the cut looks for the end of a line."""

SHOWN = 500

_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")


class FetchedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A downloaded page.

    Attributes:
        url: the final URL after redirects.
        kind: its content type, without parameters.
        text: its decoded text.
        cut: True if the page was longer than the limit.
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
) -> FetchedPage:
    """Download a page as text.

    Raises:
        ToolFailed: the page cannot be downloaded, is forbidden, is an error response, or is not text.
    """
    try:
        target = httpx.URL(url, params=params) if params else httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError, TypeError) as error:
        raise ToolFailed(f"{url[:200]!r} is no URL: {error}") from error
    headers = {**guarded.HEADERS, "Accept": accept}
    page = None
    # One limit for the whole chain of redirects: the client's own time limits apply to single operations.
    with trio.move_on_after(within):
        async with guarded.client(environ, allow_private=True, seconds=within) as client:

            async def once(target: httpx.URL) -> FetchedPage | httpx.URL:
                async with client.stream("GET", target, headers=headers) as response:
                    return guarded.redirected(response, target) or await _page(response, target)

            try:
                page = await guarded.followed(target, once)
            except guarded.CantFetch as error:
                raise ToolFailed(str(error)) from error
    if page is None:
        raise ToolFailed(f"{target.host} did not answer within {within:g} s")
    return page


async def _page(response: httpx.Response, url: httpx.URL) -> FetchedPage:
    body = await guarded.body_of(response, LARGEST)
    cut = len(body) > LARGEST
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if response.status_code >= 400 or response.status_code == 304:
        words = f"{response.status_code} {response.reason_phrase}".strip()
        shown = hidden_head(body.decode(errors="replace"), SHOWN) if _is_text(kind, body) else ""
        raise ToolFailed(f"{guarded.short(url)} answered {words}", stderr=shown)
    if not _is_text(kind, body):
        raise ToolFailed(f"{guarded.short(url)} is {kind or 'binary data'}, not text")
    if cut:  # Cut at a line end if one is near: half a character would make the whole page look like another encoding.
        end = body.rfind(b"\n", LARGEST - NEARBY, LARGEST)
        body = body[: end if end > 0 else LARGEST]
    text = await in_thread(lambda: decoded(body, response.charset_encoding or declared_inside(body)))
    return FetchedPage(url=str(url), kind=kind, text=text, cut=cut)


def _is_text(kind: str, body: bytes) -> bool:
    named = kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))
    # A page without a useful type counts as text unless a NUL proves the opposite.
    return named or (kind in ("", "application/octet-stream") and b"\0" not in body[:8192])


RESULT = 128 * 1024
"""Maximum characters of a page in the result."""

CONVERTING = 10.0
"""Seconds for the conversion of HTML. Of a page that takes longer, the part converted by then is returned."""


async def fetch_url_via_curl(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return a page's text: HTML converted to readable text, anything else unchanged."""
    url = arguments["url"].strip()
    if "://" not in url:
        # Models often omit the scheme.
        url = "https://" + url
    page = await get(
        url, setting.environ, accept="text/html, text/*;q=0.9, */*;q=0.8", within=min(SECONDS, setting.timeout)
    )
    text, cut = page.text, page.cut
    if "html" in page.kind or text[:200].lstrip().lower().startswith(("<!doctype html", "<html")):
        text, whole = await in_thread(lambda: _converted(page.text, page.url))
        cut = cut or not whole
    # Redact before the cut below: a secret that is cut in half would not be recognised.
    text = hidden(text)
    if len(text) > RESULT:
        return f"{head_of(text, RESULT)}\n[cut: {len(text) - RESULT} more characters]"
    if cut:
        return f"{text}\n[cut: the page goes on]"
    return text or "(the page has no text)"


def _converted(html: str, url: str) -> tuple[str, bool]:
    reader = PageReader(url, shows_links=True)
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
