"""Conversion of untrusted HTML to Markdown, and extraction of links. Nothing in a page is executed or fetched.

`page_of` reads a page: `scan` splits the HTML into tags and text, `PageReader` interprets them, and `MarkdownWriter`
writes the text. Time and memory are linear in the size of the page, whatever its structure.

A page is read in one pass over its tags, without building a tree, because hostile pages exploit trees. selectolax 1.0
(lexbor) takes longer than 30 s for 0.5 MB of nested elements, attributes or unclosed formatting, in a call that can't
be interrupted. html-to-markdown 3.21 makes 300 MB of text from a table of 1.4 MB. The parser of Python's library takes
minutes for some hostile kilobytes (`<a <a <a`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html import unescape
from typing import Protocol
from urllib.parse import urljoin

import msgspec

LINKS = 5000
LONGEST_LINK = 2000
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
        """Return the Markdown and links read so far."""
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
        if not href or len(href) > LONGEST_LINK or len(self._links) >= LINKS:
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


# --- tokeniser


LONGEST_TAG = 20_000
"""Characters of one tag that are read."""

_WORK = 4
"""Budget for finding the ends of long tags, in page lengths."""

_TAG = re.compile(r"""<(/?)([a-zA-Z][a-zA-Z0-9:-]*+)((?:[^<>"']++|"[^"]*+"|'[^']*+')*+)>""")
_BEGUN = re.compile(r"""</?[a-zA-Z](?:[^<>"']++|"[^"]*+"|'[^']*+')*+""")
_ATTRIBUTE = re.compile(r"""([^\s=<>"'/]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]++)))?+""")
_RAW = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style", "iframe", "noscript", "textarea")}
"""Raw text elements: only their own end tag ends them."""


class Tags(Protocol):
    """Receiver of the tags and texts that `scan` finds in a page."""

    def begins(self, tag: str, attributes: str) -> None:
        """Handle an opening tag; `attributes` is the text after its name."""

    def ends(self, tag: str) -> None:
        """Handle a closing tag."""

    def says(self, text: str) -> None:
        """Handle text."""


def scan(page: str, tags: Tags, look: Callable[[], None]) -> None:
    """Tokenise a page. `look` is called regularly, and may raise to abort.

    A tag without an end is text, and of a tag longer than `LONGEST_TAG` only the beginning is read. The search for the
    end of such tags has a budget of a few page lengths; beyond it the `<` is text.
    """
    at = seen = 0
    left = _WORK * len(page)
    while at < len(page):
        seen += 1
        if seen % 1000 == 0:
            look()
        start = page.find("<", at)
        if start < 0:
            start = len(page)
        if start > at:
            tags.says(unescaped(page[at:start]))
        found = _TAG.match(page, start, start + LONGEST_TAG)
        if found is None and left > 0 and (begun := _BEGUN.match(page, start)) and begun.end() - start > LONGEST_TAG:
            left -= begun.end() - start
            found = _TAG.match(page, start)
        if found is not None:
            at = _tag(page, found, tags)
        elif page.startswith(("<!", "<?"), start):
            end = "-->" if page.startswith("<!--", start) else ">"
            closing = page.find(end, start + 2)
            at = closing + len(end) if closing >= 0 else len(page)
        elif start < len(page):
            tags.says("<")
            at = start + 1
        else:
            at = start


def attributes_of(text: str) -> dict[str, str]:
    """Return the attributes of a tag; the first of a name wins."""
    given: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(text):
        given.setdefault(found[1].lower(), unescaped(found[2] or found[3] or found[4] or ""))
    return given


def unescaped(text: str) -> str:
    """Replace HTML entities (`&amp;`) with the characters that they stand for."""
    try:
        return unescape(text)
    except ValueError:  # a character reference with thousands of digits
        return text


def _tag(page: str, found: re.Match[str], tags: Tags) -> int:
    tag = found[2].lower()
    if found[1]:
        tags.ends(tag)
        return found.end()
    tags.begins(tag, found[3][:LONGEST_TAG])
    raw = _RAW.get(tag)
    if raw is None:
        return found.end()
    closing = raw.search(page, found.end())
    return closing.start() if closing else len(page)


# --- Markdown


HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LINE_TAGS = (
    "div section article main header aside hr dt dd figure figcaption form fieldset address tr li br caption option"
    " summary details body html nav footer"
)
_LINES = frozenset(_LINE_TAGS.split())
_APART = frozenset(("p", "ul", "ol", "dl", "table", "blockquote", "pre")) | HEADINGS.keys()


TITLE = 500
"""Characters after which the rest of a title is ignored."""


class TextTooLong(Exception):
    """The page has more text than the caller accepts."""


class MarkdownWriter:
    """Consumer of tags and text in order; `text` is the Markdown.

    Headings, lists, tables and code retain their structure, because chunking uses it. An image is replaced by its text.

    Args:
        most: maximum characters; more raise `TextTooLong`.
    """

    def __init__(self, most: int) -> None:
        self.title = ""
        self._most = most
        self._size = 0
        self._lines: list[str] = []
        self._line: list[str] = []
        self._mark = ""  # prefix of the next line with words
        self._lists: list[int] = []  # number of the next item, or 0 for bullets
        self._pre = 0
        self._in_title = False
        self._row: list[str] | None = None
        self._in_cell = False
        self._rows = 0
        self._link = ("", 0)  # target of the open link, and the number of pieces on the line before it

    @property
    def text(self) -> str:
        """Markdown so far, with at most one empty line in a row."""
        self._end_line()
        kept: list[str] = []
        for line in self._lines:
            if line or (kept and kept[-1]):
                kept.append(line)
        return "\n".join(kept).strip("\n")

    def open(self, tag: str, told: str = "") -> None:
        """Open an element; `told` is the text of an image, or the target of a link if it is to be written."""
        if tag == "a":
            self._end_link()
            self._link = (told, len(self._line))
        elif tag == "title":
            self._in_title = True
        elif tag in ("td", "th"):
            self._begin_cell()
        elif tag == "img" and told:
            self.add(f" [image: {' '.join(told.split())}] ")
        elif tag in _LINES or tag in _APART:
            self._begin_block(tag)

    def close(self, tag: str) -> None:
        """Write the end of an element's Markdown."""
        if tag == "a":
            self._end_link()
        elif tag == "title":
            self._in_title = False
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "tr" and self._row is not None:
            self._end_row()
        elif tag == "pre" and self._pre:
            self._end_line()
            self._pre -= 1
            if not self._pre:
                self._lines += ["```", ""]
        elif tag in ("ul", "ol") and self._lists:
            self._end_line()
            self._lists.pop()
            self._mark = ""  # of an item without words that was never closed
            if not self._lists:
                self._lines.append("")
        elif tag in _LINES or tag in _APART:
            if tag == "table" and self._row is not None:
                self._end_row()  # `</tr>` may be left out
            self._end_block(tag)

    def add(self, words: str) -> None:
        """Add text.

        Raises:
            TextTooLong: there is more than `most`.
        """
        self._size += len(words)
        if self._size > self._most:
            raise TextTooLong
        if self._in_title:
            if len(self.title) < TITLE:
                self.title = " ".join(f"{self.title} {words[:TITLE]}".split())
        elif self._pre and self._row is None:
            *whole, last = words.split("\n")
            for line in whole:
                self._line.append(line)
                self._end_line()
            self._line.append(last)
        else:
            self._line.append(words)

    # --- blocks

    def _begin_block(self, tag: str) -> None:
        if self._row is not None and tag != "tr":
            self._line.append(" ")  # a cell is one line, whatever its content
            return
        if self._row is not None:
            self._end_row()  # not closed, or around a nested table
        self._end_line()
        if tag in _APART and not self._lists:
            self._lines.append("")
        if tag in HEADINGS:
            self._mark = HEADINGS[tag]
        elif tag in ("ul", "ol"):
            self._lists.append(1 if tag == "ol" else 0)
        elif tag == "li":
            self._mark = self._item()
        elif tag == "pre":
            self._pre += 1
            if self._pre == 1:
                self._lines.append("```")
        elif tag == "table":
            self._rows = 0
        elif tag == "tr":
            self._row = []

    def _end_block(self, tag: str) -> None:
        if self._row is not None:
            self._line.append(" ")
            return
        self._end_line()
        if tag in HEADINGS or tag == "li":
            self._mark = ""
        if tag in _APART and not self._lists:
            self._lines.append("")

    def _end_link(self) -> None:
        (target, start), self._link = self._link, ("", 0)
        if not target or self._pre:
            return
        words = "".join(self._line[start:])
        if label := " ".join(words.split()):
            before, after = words[:1].isspace() * " ", words[-1:].isspace() * " "
            self._line[start:] = [f"{before}[{label}]({target}){after}"]

    def _item(self) -> str:
        if not self._lists:
            return "- "
        inset = "  " * min(len(self._lists) - 1, 10)
        if not self._lists[-1]:
            return f"{inset}- "
        self._lists[-1] += 1
        return f"{inset}{self._lists[-1] - 1}. "

    def _end_line(self) -> None:
        line = "".join(self._line)
        self._line.clear()
        self._link = (self._link[0], 0)
        if self._pre:
            self._lines.append(line.rstrip())
            return
        line = " ".join(line.split())
        if not line:
            return
        if not self._mark and line[0] == "#" and line.lstrip("#")[:1] in ("", " "):
            line = f"\\{line}"  # words that only look like a heading
        self._lines.append(self._mark + line)
        self._mark = ""

    # --- tables

    def _begin_cell(self) -> None:
        self._end_cell()  # `</td>` may be left out
        self._in_cell = self._row is not None

    def _end_cell(self) -> None:
        if self._row is None:
            self._line.append(" ")
        elif self._in_cell:
            cell = " ".join("".join(self._line).split())
            self._line.clear()
            self._link = (self._link[0], 0)
            self._row.append(cell.replace("|", "\\|"))
        self._in_cell = False

    def _end_row(self) -> None:
        self._end_cell()
        self._line.clear()
        row, self._row = self._row or [], None
        if not any(row):
            return
        self._lines.append(f"| {' | '.join(row)} |")
        self._rows += 1
        if self._rows == 1:
            self._lines.append(f"|{' --- |' * len(row)}")
