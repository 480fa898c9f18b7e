"""Reports a web page that comes in place of a model's reply.

A wrong `api_base` is often some website, and the login of a hotel's Wi-Fi answers every request with a page and status
200. Neither is a reply that broke off, and another try gets the same page.

The content type alone proves nothing: servers written in PHP send streams as `text/html`. So the first bytes decide:
JSON and server-sent events never begin with `<`, and what is called HTML has to begin as one of those.
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.errors import ModelError
from ...io.html.tags import scan

LOOKED_AT = 64 * 1024
"""Bytes of a page that are searched for its title."""

SHOWN = 100
"""Characters of a page's title, or of its first words, that become part of an error."""

_HTML = ("text/html", "application/xhtml+xml")
_REPLIES = (b"{", b"[", b":", b"data:", b"event:", b"id:", b"retry:")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DECIDES = max(map(len, _REPLIES))


class NoPage:
    """Hands the body of an answer on, unless it is a web page. Call it with each piece, then `finish`.

    Args:
        id: the model that was asked.
        where: the URL that answered, and how: for the error.
        content_type: as the answer says it.
        take: is given the pieces.
    """

    def __init__(self, id: str, where: str, content_type: str, take: Callable[[bytes], object]) -> None:
        self._id = id
        self._where = where
        self._type = content_type
        self._is_html = content_type.partition(";")[0].strip().lower() in _HTML
        self._take = take
        self._head = b""
        self._page: bool | None = None

    def __call__(self, piece: bytes) -> None:
        """The next piece. Raises `ModelError` once enough of a page is there to tell of it."""
        if self._page is False:
            self._take(piece)
            return
        self._head += piece
        if self._page is None and len(self._start) >= _DECIDES:
            self._decide()
        if self._page and len(self._head) >= LOOKED_AT:
            self.finish()

    def finish(self) -> None:
        """The body is complete. Raises `ModelError` if it is a page."""
        if self._page is None:
            self._decide()
        if self._page:
            raise ModelError(
                f"{self._id}: {self._where} answered with a web page ({self._type or 'no content type'}"
                f"{_described(self._head)}), not with a model's reply: check `api_base`; on a network with a login "
                "page, log in first"
            )

    @property
    def _start(self) -> bytes:
        return self._head.removeprefix(_BYTE_ORDER_MARK).lstrip()

    def _decide(self) -> None:
        start = self._start
        self._page = start.startswith(b"<") or (self._is_html and bool(start) and not start.startswith(_REPLIES))
        if not self._page and self._head:
            self._take(self._head)
            self._head = b""


class _Words:
    """The title of a page, and what it says first."""

    def __init__(self) -> None:
        self.title = ""
        self.said = ""
        self._in_title = False

    def begins(self, tag: str, attributes: str) -> None:  # noqa: ARG002 - the signature that `scan` calls
        self._in_title = tag == "title"

    def ends(self, tag: str) -> None:  # noqa: ARG002 - the signature that `scan` calls
        self._in_title = False

    def says(self, text: str) -> None:
        if self._in_title:
            self.title += text
        elif len(self.said) < 4 * SHOWN:
            self.said += f" {text}"


def _described(page: bytes) -> str:
    words = _Words()
    scan(page[:LOOKED_AT].decode("utf-8-sig", errors="replace"), words, lambda: None)
    for name, text in (("title", words.title), ("begins", words.said)):
        line = " ".join(text.split())
        if line:
            return f", {name} {(line if len(line) <= SHOWN else line[: SHOWN - 1] + '…')!r}"
    return ""
