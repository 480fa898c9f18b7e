"""Web page reader: http and https, with limits on redirects, time and size.

`io.http.guarded` decides which addresses may be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, final

import httpx
import msgspec
import trio

from .....protocol.knowledge import Document, Unreadable
from ....io.http import guarded
from ..reading import kinds
from ..reading.limits import CantRead, megabytes
from ..reading.read import RawDocument
from .found import FoundSource, SourceContext

PATIENCE = 30.0
"""Longest delay in seconds that an overloaded server may request, once."""

_HEADERS = {
    **guarded.HEADERS,
    "Accept": "text/html, text/*;q=0.9, application/pdf;q=0.8, */*;q=0.5",
}
_ANYTHING = frozenset(("", "application/octet-stream", "binary/octet-stream", "application/zip"))
"""Media types without information about the format, so that the contents decide."""


@final
class WebReader:
    """Client that fetches pages with a delay per host. Use `async with WebReader(context) as web`."""

    def __init__(self, context: SourceContext) -> None:
        self._settings = context.settings
        private, seconds = context.settings.allow_private, context.settings.page_seconds
        self._client = guarded.client(context.environ, allow_private=private, seconds=seconds)
        self._delay = context.settings.delay
        self._turns: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    def slow_down(self, seconds: float) -> None:
        """Set the minimum delay between two requests to one host, capped at `PATIENCE`."""
        self._delay = max(self._delay, min(seconds, PATIENCE))

    async def get(self, url: str, *, allowed: Callable[[httpx.URL], bool] | None = None) -> RawDocument:
        """Fetch a page; its `source` is the URL after redirects.

        Args:
            allowed: returns whether a redirect may lead to a URL; anywhere by default.

        Raises:
            CantRead: the page can't be fetched, or has no readable format.
        """
        # Time of the servers, redirects included; the delay between requests is not part of it.
        left = self._settings.page_seconds

        async def once(target: httpx.URL) -> RawDocument | httpx.URL | int:
            """Send one request. Return the seconds to wait if the server asks for a delay."""
            nonlocal left
            await self._turn(target.host)
            began = trio.current_time()
            try:
                with trio.move_on_after(left):
                    async with self._client.stream("GET", target, headers=_HEADERS) as response:
                        wait = response.headers.get("retry-after", "1")
                        # `patiently` repeats once: a crawl must not hang on a server that always asks for more time.
                        if response.status_code in (429, 503) and wait.isdigit() and int(wait) <= PATIENCE:
                            return int(wait)
                        return guarded.redirected(response, target) or await self._raw(target, response)
            finally:
                left = max(0.0, left - (trio.current_time() - began))
            raise CantRead(f"{target.host} did not answer within {self._settings.page_seconds:g} s")

        async def patiently(target: httpx.URL) -> RawDocument | httpx.URL:
            found = await once(target)
            if isinstance(found, int):
                await trio.sleep(found)
                found = await once(target)
            if isinstance(found, int):
                raise CantRead("the server limits requests; try again later")
            return found

        try:
            return await guarded.followed(url, patiently, allowed=allowed)
        except guarded.Private as error:
            raise CantRead(
                f"{error}, which is not read unless `rag_private_pages: true` in config.yaml says so"
            ) from error
        except guarded.CantFetch as error:
            raise CantRead(str(error)) from error

    async def _turn(self, host: str) -> None:
        now = trio.current_time()
        turn = max(self._turns.get(host, now), now)
        # The slot is reserved before the sleep, so that concurrent requests to a host are spaced as well.
        self._turns[host] = turn + self._delay
        await trio.sleep_until(turn)

    async def _raw(self, url: httpx.URL, response: httpx.Response) -> RawDocument:
        status = response.status_code
        if status >= 400 or status in (204, 304):
            raise CantRead(f"the server answered {status} {response.reason_phrase}".strip())
        media = response.headers.get("content-type", "").split(";")[0].strip().lower()
        # Pictures and other binary formats are refused by their type, before they are downloaded.
        if media not in _ANYTHING and not kinds.by_media(media):
            raise CantRead(f"it is {media}, which is not text")
        most = self._settings.page_bytes
        data = await guarded.body_of(response, most)
        if len(data) > most:
            raise CantRead(f"it is too large: at most {megabytes(most)} are read of one page")
        charset = response.charset_encoding or ""
        return RawDocument(source=str(url), data=data, path=url.path, media=media, charset=charset)


@final
class PageSource(FoundSource):
    """Page with a known digest; it is fetched only when it is read.

    Args:
        within: see `RawDocument`.
    """

    def __init__(self, context: SourceContext, url: str, digest: str, size: int, within: str = "") -> None:
        super().__init__(url, size=size)
        self._context = context
        self._digest = digest
        self._within = within

    async def digest(self) -> str | Unreadable:
        return self._digest

    async def _documents(self) -> Sequence[Document]:
        async with WebReader(self._context) as web:
            raw = await web.get(self.source)
        raw = msgspec.structs.replace(raw, source=self.source, within=self._within)
        return (await self._context.read(raw)).documents
