"""HTML to readable text in Markdown's manner. Small, and good enough for a model: no tag, no script, no style."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urljoin

from ....io.html_tags import attributes_of, scan

__all__ = ["Reader"]

_UNSEEN = frozenset(("script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select"))
_BLOCKS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "blockquote", "pre", "hr"),
        *("ul", "ol", "li", "dl", "dt", "dd", "table", "tr", "figure", "figcaption", "form", "fieldset", "address"),
        *("title", "h1", "h2", "h3", "h4", "h5", "h6"),
    )
)
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_APART = frozenset(("p", "ul", "ol", "table", "blockquote", "pre", "title")) | _HEADINGS
_MARKED = _HEADINGS | {"li", "title"}
_MARKS = frozenset(("-", "#", "##", "###", "####", "#####", "######"))
_LONGEST_LINK = 300


class Reader:
    """Have it read a page, and take its `text`.

    Args:
        url: what links are relative to.
    """

    def __init__(self, url: str = "") -> None:
        self._url = url
        self._lines: list[str] = []
        self._line: list[str] = []
        self._unseen: list[str] = []
        self._pre = 0
        self._links: list[tuple[str, int]] = []

    @property
    def text(self) -> str:
        """What was read, with at most one empty line in a row."""
        self._end_line()
        kept: list[str] = []
        for line in self._lines:
            if line or (kept and kept[-1]):
                kept.append(line)
        return "\n".join(kept).strip("\n")

    def read(self, html: str, look: Callable[[], None]) -> None:
        """Take a page. `look` is called now and then; if it raises, `text` is what was read until then."""
        scan(html, self, look)

    def begins(self, tag: str, attributes: str) -> None:
        """See `Tags`."""
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.append(tag)
            return
        if tag in _UNSEEN:
            if not (attributes.endswith("/") and tag in ("svg", "object")):  # elsewhere in HTML a slash means nothing
                self._unseen.append(tag)
            return
        if tag in _BLOCKS:
            self._end_line()
            if tag in _APART:
                self._lines.append("")
        given = attributes_of(attributes) if tag in ("a", "img") else {}
        if tag in _HEADINGS:
            self._line.append("#" * int(tag[1]) + " ")
        elif tag == "title":
            self._line.append("# ")
        elif tag == "li":
            self._line.append("- ")
        elif tag == "pre":
            self._pre += 1
        elif tag == "br":
            self._end_line()
        elif tag == "a":
            self._links.append((given.get("href") or "", len(self._line)))
        elif tag == "img" and given.get("alt"):
            self._line.append(f" [image: {given['alt']}] ")
        elif tag in ("td", "th") and self._line:
            self._line.append(" | ")

    def ends(self, tag: str) -> None:
        """See `Tags`."""
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.pop()
            return
        if tag == "a" and self._links:
            self._end_link(*self._links.pop())
        if tag == "pre":
            self._pre = max(self._pre - 1, 0)
        if tag in _BLOCKS:
            self._end_line()
            if tag in _MARKED:
                self._line.clear()
            if tag in _APART:
                self._lines.append("")

    def says(self, data: str) -> None:
        """See `Tags`."""
        if self._unseen:
            return
        if self._pre:
            *whole, last = data.split("\n")
            for line in whole:
                self._line.append(line)
                self._end_line(strip=False)
            self._line.append(last)
            return
        words = " ".join(data.split())
        if not words:
            if self._line:
                self._line.append(" ")
            return
        before = " " if data[0].isspace() and self._line else ""
        after = " " if data[-1].isspace() else ""
        self._line.append(before + words + after)

    def _end_line(self, *, strip: bool = True) -> None:
        line = "".join(self._line)
        self._line.clear()
        self._links = [(href, 0) for href, _ in self._links]
        if self._pre or not strip:
            self._lines.append(line.rstrip())
            return
        line = " ".join(line.split())
        if line in _MARKS:
            self._line.append(line + " ")  # `<li><p>`: the mark belongs to the line that comes
        elif line:
            self._lines.append(line)

    def _end_link(self, href: str, start: int) -> None:
        label = " ".join("".join(self._line[start:]).split())
        target = _target(self._url, href)
        if label and target:
            self._line[start:] = [f"{' ' if start and self._line[start][:1].isspace() else ''}[{label}]({target})"]


def _target(base: str, href: str) -> str:
    """Where a link leads, or nothing if that is of no use to a reader."""
    href = href.strip()
    if not href or href.startswith(("#", "javascript:", "data:")) or len(href) > _LONGEST_LINK:
        return ""
    try:
        return urljoin(base, href)
    except ValueError:
        return ""
