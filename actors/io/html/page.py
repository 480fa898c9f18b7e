"""HTML to Markdown, and where its links lead. Nothing in it is executed or fetched.

A page is read in one pass over its tags, without building a tree, because trees are what hostile pages abuse:
selectolax 1.0 (lexbor) takes longer than 30 s for 0.5 MB of nested elements, attributes or unclosed formatting, in a
call that can't be interrupted, and html-to-markdown 3.21 makes 300 MB of text from a table of 1.4 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from urllib.parse import urljoin

import msgspec

from .markdown import Writer
from .tags import attributes_of, scan

LINKS = 5000
LONGEST = 2000
SHOWN_LINK = 300
"""Characters of a link's target that is shown in the text; longer ones are left out."""

_EMPTY = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
"""Elements that have no end."""

_UNSEEN = frozenset(
    (
        *("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "embed", "canvas"),
        *("select", "audio", "video"),
    )
)
"""Elements that are left out with all that is in them."""

_AROUND = frozenset(("nav", "footer", "button"))
"""Elements that surround an article; their links count, their words only if the reader shows links."""

_WITH_ATTRIBUTES = frozenset(("a", "area", "base", "meta", "img"))


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says.

    Attributes:
        text: in Markdown.
        title: its title.
        links: where it leads, absolute, in order, each once; without those marked `nofollow`.
        kept_out: whether it asks crawlers not to index it.
    """

    text: str
    title: str = ""
    links: tuple[str, ...] = ()
    kept_out: bool = False


def page_of(html: str, url: str, most: int, look: Callable[[], None], *, within: str = "") -> Page:
    """Read a page.

    Args:
        url: what its links are relative to.
        most: characters of text that are taken.
        look: called now and then; may raise to end the reading.
        within: id of the element whose text is taken; of links all are. Where there is none, all text is taken.

    Raises:
        TooLong: it says more than that.
    """
    reader = Reader(url, most=most, within=within)
    reader.read(html, look)
    if within and not reader.was_within:
        reader = Reader(url, most=most)
        reader.read(html, look)
    return reader.page()


class Reader:
    """Reads one page; what was read so far can be taken at any time, also after `look` has raised.

    Args:
        url: what links are relative to.
        most: characters of text that are taken; more raise `TooLong`.
        within: id of the element whose text is taken.
        shows_links: whether the text says where its links lead, and holds navigation and footers as well.

    Attributes:
        was_within: whether the element called `within` was there.
    """

    def __init__(self, url: str, *, most: int = sys.maxsize, within: str = "", shows_links: bool = False) -> None:
        self.was_within = not within
        self._writer = Writer(most)
        self._within = within
        self._shows_links = shows_links
        self._container = ""  # the tag of the element called `within`, while the reader is in it
        self._depth = 0  # open elements of that tag
        self._in_title = False
        self._url = url
        self._links: dict[str, None] = {}
        self._robots = ""
        self._left_out: list[str] = []  # open elements of `_UNSEEN`; all have the same tag
        self._around: list[str] = []  # the same of `_AROUND`, while words of those are not taken

    def read(self, html: str, look: Callable[[], None]) -> None:
        """Take a page. Raises what `look` raises, and `TooLong`."""
        scan(html, self, look)

    def page(self) -> Page:
        """All that was read."""
        nowhere = "nofollow" in self._robots or "none" in self._robots
        return Page(
            text=self._writer.text,
            title=self._writer.title,
            links=() if nowhere else tuple(self._links),
            kept_out="noindex" in self._robots or "none" in self._robots,
        )

    # --- what `scan` calls

    def begins(self, tag: str, attributes: str) -> None:
        if self._left_out:
            if tag == self._left_out[-1]:
                self._left_out.append(tag)
            return
        if tag in _UNSEEN:
            if tag not in _EMPTY and not (attributes.endswith("/") and tag in ("svg", "math")):
                self._left_out.append(tag)
            return
        if self._around:
            if tag == self._around[-1]:
                self._around.append(tag)
        elif tag in _AROUND and not self._shows_links:
            self._around.append(tag)
        looking = not self.was_within and tag not in _EMPTY
        given = attributes_of(attributes) if tag in _WITH_ATTRIBUTES or looking else {}
        if tag in ("a", "area"):
            self._link(given)
        elif tag == "base":
            self._url = _joined(self._url, given.get("href", "")) or self._url
        elif tag == "meta" and given.get("name", "").lower() == "robots":
            self._robots += given.get("content", "").lower()
        if not self._around:
            self._open(tag, given)

    def ends(self, tag: str) -> None:
        if self._left_out:
            if tag == self._left_out[-1]:
                self._left_out.pop()
        elif self._around:
            if tag == self._around[-1]:
                self._around.pop()
        else:
            self._close(tag)

    def says(self, text: str) -> None:
        if not self._left_out and not self._around and self._is_wanted:
            self._writer.add(text)

    # --- one element

    @property
    def _is_wanted(self) -> bool:
        return not self._within or self._in_title or bool(self._container)

    def _open(self, tag: str, given: dict[str, str]) -> None:
        self._in_title = self._in_title or tag == "title"
        if tag == self._container:
            self._depth += 1
        elif not self.was_within and given.get("id") == self._within:
            self.was_within = True
            self._container, self._depth = tag, 1
        if not self._is_wanted:
            return
        if tag == "a" and self._shows_links:
            self._writer.open(tag, self._shown(given.get("href", "")))
        else:
            self._writer.open(tag, given.get("alt", "") if tag == "img" else "")

    def _close(self, tag: str) -> None:
        if self._is_wanted:
            self._writer.close(tag)
        self._in_title = self._in_title and tag != "title"
        if tag == self._container:
            self._depth -= 1
            self._container = tag if self._depth else ""

    def _link(self, given: dict[str, str]) -> None:
        href = given.get("href", "").strip()
        if not href or len(href) > LONGEST or len(self._links) >= LINKS:
            return
        target = _joined(self._url, href).partition("#")[0]
        if target.startswith(("http://", "https://")) and "nofollow" not in given.get("rel", "").lower().split():
            self._links[target] = None

    def _shown(self, href: str) -> str:
        href = href.strip()
        if href.startswith(("#", "javascript:", "data:")) or len(href) > SHOWN_LINK:
            return ""
        return _joined(self._url, href) if href else ""


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:
        return ""
