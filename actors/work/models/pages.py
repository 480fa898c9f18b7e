"""Detection of web pages in place of a model's reply.

A wrong `api_base` often is the address of a website. The login page of a hotel's Wi-Fi answers every request with
status 200. Without this check, both look like a reply that broke off, and each retry gets the same page.

The content type alone proves nothing: servers written in PHP send streams as `text/html`. So the first bytes decide.
JSON and server-sent events never start with `<`. A body with the type HTML must start like one of these two.
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.errors import ModelError

LOOKED_AT = 64 * 1024
"""Number of bytes of a page that are searched for its title."""

SHOWN = 100
"""Maximum length of a page's title or first words in an error, in characters."""

_HTML = ("text/html", "application/xhtml+xml")
_REPLIES = (b"{", b"[", b":", b"data:", b"event:", b"id:", b"retry:")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DECIDES = max(map(len, _REPLIES))


class NoPage:
    """Filter that passes on the body of an answer unless it is a web page. Call it with each piece, then `finish`.

    Args:
        id: id of the model, for the error.
        where: URL and status of the answer, for the error.
        content_type: content type of the answer.
        take: receives the pieces.
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
        """Process the next piece. Raises `ModelError` once enough of a page has arrived to describe it."""
        if self._page is False:
            self._take(piece)
            return
        self._head += piece
        # White space may precede the first character, so the decision needs the longest prefix after it.
        if self._page is None and len(self._start) >= _DECIDES:
            self._decide()
        # Fail now instead of reading a page to its end: the title is near its start.
        if self._page and len(self._head) >= LOOKED_AT:
            self.finish()

    def finish(self) -> None:
        """Process the end of the body. Raises `ModelError` if it is a page."""
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
    """Collector of the title and first words of a page."""

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
    from ...io.html.tags import scan

    words = _Words()
    scan(page[:LOOKED_AT].decode("utf-8-sig", errors="replace"), words, lambda: None)
    for name, text in (("title", words.title), ("begins", words.said)):
        line = " ".join(text.split())
        if line:
            return f", {name} {(line if len(line) <= SHOWN else line[: SHOWN - 1] + '…')!r}"
    return ""
