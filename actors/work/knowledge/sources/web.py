"""Gets pages: http and https, a few redirects, some seconds, some megabytes, and where `io.http.guarded` lets us go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self, final

import httpx
import msgspec
import trio

from .....protocol.knowledge import Document, Unreadable
from ....io.http import guarded
from ..reading import kinds
from ..reading.bounds import CantRead, megabytes
from ..reading.read import Raw
from .found import Found, SourceContext

PATIENCE = 30.0
"""Seconds that a server which is asked too much may make us wait, once."""

_HEADERS = {
    **guarded.HEADERS,
    "Accept": "text/html, text/*;q=0.9, application/pdf;q=0.8, */*;q=0.5",
}
_ANYTHING = frozenset(("", "application/octet-stream", "binary/octet-stream", "application/zip"))
"""Media types that say nothing, so that the contents decide."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was got; `url` is where it was found in the end."""

    url: str
    data: bytes
    media: str = ""
    charset: str = ""

    @property
    def raw(self) -> Raw:
        """For the room `reading`."""
        path = httpx.URL(self.url).path
        return Raw(source=self.url, data=self.data, path=path, media=self.media, charset=self.charset)


@final
class Web:
    """Gets pages, politely. `async with Web(context) as web`."""

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
        """Leave at least so many seconds between two requests to one host."""
        self._delay = max(self._delay, min(seconds, PATIENCE))

    async def get(self, url: str, *, allowed: Callable[[httpx.URL], bool] | None = None) -> Answer:
        """Get a page.

        Args:
            allowed: where redirects may lead; anywhere by default.

        Raises:
            CantRead: it can't be got, or is nothing that could be read.
        """
        patience = _Patience(self._settings.page_seconds)
        try:
            return await guarded.followed(url, lambda target: self._patiently(target, patience), allowed=allowed)
        except guarded.Private as error:
            raise CantRead(
                f"{error}, which is not read unless `rag_private_pages: true` in config.yaml says so"
            ) from error
        except guarded.CantFetch as error:
            raise CantRead(str(error)) from error

    async def _patiently(self, url: httpx.URL, patience: _Patience) -> Answer | httpx.URL:
        """One request, made once more if the server asks for time."""
        try:
            return await self._once(url, patience)
        except _Later as later:
            await trio.sleep(later.seconds)
            try:
                return await self._once(url, patience)
            except _Later:
                raise CantRead("the server is asked for too much, and wants us to come back later") from None

    async def _once(self, url: httpx.URL, patience: _Patience) -> Answer | httpx.URL:
        await self._turn(url.host)
        with patience.lasting():
            async with self._client.stream("GET", url, headers=_HEADERS) as response:
                return guarded.redirected(response, url) or await self._answer(url, response)
        raise CantRead(f"{url.host} did not answer within {self._settings.page_seconds:g} s")

    async def _turn(self, host: str) -> None:
        now = trio.current_time()
        turn = max(self._turns.get(host, now), now)
        self._turns[host] = turn + self._delay
        await trio.sleep_until(turn)

    async def _answer(self, url: httpx.URL, response: httpx.Response) -> Answer:
        status = response.status_code
        if status in (429, 503):
            wait = response.headers.get("retry-after", "1")
            if wait.isdigit() and int(wait) <= PATIENCE:
                raise _Later(int(wait))
        if status >= 400 or status in (204, 304):
            raise CantRead(f"the server answered {status} {response.reason_phrase}".strip())
        media = response.headers.get("content-type", "").split(";")[0].strip().lower()
        if media not in _ANYTHING and not kinds.by_media(media):
            raise CantRead(f"it is {media}, which is not text")
        most = self._settings.page_bytes
        data = await guarded.body_of(response, most)
        if len(data) > most:
            raise CantRead(f"it is too large: at most {megabytes(most)} are read of one page")
        return Answer(url=str(url), data=data, media=media, charset=response.charset_encoding or "")


class _Patience:
    """The seconds that servers may take for one page, redirects included. Waiting for our turn is none of theirs."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    @contextmanager
    def lasting(self) -> Iterator[None]:
        began = trio.current_time()
        try:
            with trio.move_on_after(self._left):
                yield
        finally:
            self._left = max(0.0, self._left - (trio.current_time() - began))


class _Later(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


@final
class Page(Found):
    """A page whose digest is known already; only reading it gets it.

    Args:
        within: see `Raw`.
    """

    def __init__(self, context: SourceContext, url: str, digest: str, size: int, within: str = "") -> None:
        super().__init__(url, size=size)
        self._context = context
        self._digest = digest
        self._within = within

    async def digest(self) -> str | Unreadable:
        return self._digest

    async def _documents(self) -> Sequence[Document]:
        async with Web(self._context) as web:
            answer = await web.get(self.source)
        raw = msgspec.structs.replace(answer.raw, source=self.source, within=self._within)
        return (await self._context.read(raw)).documents
