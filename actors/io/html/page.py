"""Conversion of HTML to Markdown, and extraction of links. Nothing in a page is executed or fetched.

A page is read in one pass over its tags, without building a tree, because hostile pages exploit trees. selectolax 1.0
(lexbor) takes longer than 30 s for 0.5 MB of nested elements, attributes or unclosed formatting, in a call that can't
be interrupted. html-to-markdown 3.21 makes 300 MB of text from a table of 1.4 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from urllib.parse import urljoin

import msgspec

from .markdown import MarkdownWriter
from .tags import attributes_of, scan

LINKS = 5000
LONGEST = 2000
SHOWN_LINK = 300
"""Maximum characters of a link's target in the text; longer ones are omitted."""

_EMPTY = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
"""Void elements."""

_UNSEEN = frozenset(
    (
        *("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "embed", "canvas"),
        *("select", "audio", "video"),
    )
)
"""Elements that are omitted with their content."""

_AROUND = frozenset(("nav", "footer", "button"))
"""Elements around an article. Their links count; their words count only if the reader shows links."""

_WITH_ATTRIBUTES = frozenset(("a", "area", "base", "meta", "img"))


class HtmlPage(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a page.

    Attributes:
        text: Markdown.
        title: title.
        links: absolute targets in order, each once; without those marked `nofollow`.
        kept_out: True if it asks crawlers not to index it.
    """

    text: str
    title: str = ""
    links: tuple[str, ...] = ()
    kept_out: bool = False


def page_of(html: str, url: str, most: int, look: Callable[[], None], *, within: str = "") -> HtmlPage:
    """Read a page.

    Args:
        url: base of relative links.
        most: maximum characters of text.
        look: called regularly; may raise to abort.
        within: id of the element whose text is used; all links count. If there is no such element, all text is used.

    Raises:
        TextTooLong: there is more text.
    """
    reader = PageReader(url, most=most, within=within)
    reader.read(html, look)
    if within and not reader.was_within:
        reader = PageReader(url, most=most)
        reader.read(html, look)
    return reader.page()


class PageReader:
    """Reader of one page; the content so far is available at any time, even after `look` has raised.

    Args:
        url: base of relative links.
        most: maximum characters of text; more raise `TextTooLong`.
        within: id of the element whose text is used.
        shows_links: True writes link targets into the text, and includes navigation and footers.

    Attributes:
        was_within: True if the element `within` was found.
    """

    def __init__(self, url: str, *, most: int = sys.maxsize, within: str = "", shows_links: bool = False) -> None:
        self.was_within = not within
        self._writer = MarkdownWriter(most)
        self._within = within
        self._shows_links = shows_links
        self._container = ""  # tag of the element `within`, while it is open
        self._depth = 0  # number of open elements with that tag
        self._in_title = False
        self._url = url
        self._links: dict[str, None] = {}
        self._robots = ""
        self._left_out: list[str] = []  # open elements of `_UNSEEN`; all have the same tag
        self._around: list[str] = []  # likewise of `_AROUND`, while their words are ignored

    def read(self, html: str, look: Callable[[], None]) -> None:
        """Read a page. Raises the exceptions of `look`, and `TextTooLong`."""
        scan(html, self, look)

    def page(self) -> HtmlPage:
        """Return the content so far."""
        nowhere = "nofollow" in self._robots or "none" in self._robots
        return HtmlPage(
            text=self._writer.text,
            title=self._writer.title,
            links=() if nowhere else tuple(self._links),
            kept_out="noindex" in self._robots or "none" in self._robots,
        )

    # --- callbacks of `scan`

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
            self._writer.open(tag, self._visible_text(given.get("href", "")))
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

    def _visible_text(self, href: str) -> str:
        href = href.strip()
        if href.startswith(("#", "javascript:", "data:")) or len(href) > SHOWN_LINK:
            return ""
        return _joined(self._url, href) if href else ""


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:
        return ""
