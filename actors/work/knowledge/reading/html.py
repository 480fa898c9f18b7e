"""HTML to Markdown, and where its links lead. Nothing in it is executed or fetched.

selectolax (of the extra `docs`) parses as browsers do. Where it is not installed, `html_tags` does well enough; also
for a page whose tree would take minutes (`heavy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import msgspec

from ....io.html_tags import attributes_of, scan
from .bounds import Watch
from .heavy import EMPTY, is_heavy
from .markdown import UNSEEN, Writer

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

LINKS = 5000
LONGEST = 2000

_TELLING = frozenset(("a", "area", "base", "meta", "img"))


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says.

    Attributes:
        text: in Markdown.
        title: its title.
        links: where it leads, absolute, in order, each once; without those that it wants nobody to follow.
        kept_out: whether it wants not to be found.
    """

    text: str
    title: str = ""
    links: tuple[str, ...] = ()
    kept_out: bool = False


def page_of(html: str, url: str, most: int, watch: Watch, *, within: str = "") -> Page:
    """Read a page.

    Args:
        url: what its links are relative to.
        most: characters of text that are taken.
        within: id of the element whose text is taken; of links all are. Where there is none, all text is taken.

    Raises:
        CantRead: it says more than that, or takes too long.
    """
    taken = _Taken(url, most, within)
    _read(html, taken, watch)
    if within and not taken.was_within:
        taken = _Taken(url, most, "")
        _read(html, taken, watch)
    return taken.page()


def _read(html: str, taken: _Taken, watch: Watch) -> None:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        scan(html, _Scanned(taken), watch.look)
    else:
        if is_heavy(html):
            scan(html, _Scanned(taken), watch.look)
        else:
            _walk(LexborHTMLParser(html).root, taken, watch)


class _Taken:
    """What is taken of a page while it is read, whoever parses it.

    Attributes:
        was_within: whether the element was there that alone is wanted.
    """

    def __init__(self, url: str, most: int, within: str) -> None:
        self.was_within = not within
        self._writer = Writer(most)
        self._within = within
        self._container = ""  # its tag, while we are in it
        self._depth = 0  # elements of the same tag, while we are in it
        self._in_title = False
        self._url = url
        self._links: dict[str, None] = {}
        self._robots = ""

    def open(self, tag: str, given: Mapping[str, str | None]) -> bool:
        """An element begins; whether anything in it is wanted."""
        if tag in UNSEEN:
            return tag in ("nav", "footer")  # their links are wanted, their words are not
        if tag in ("a", "area"):
            self._link(given.get("href") or "", given.get("rel") or "")
        elif tag == "base":
            self._url = _joined(self._url, given.get("href") or "") or self._url
        elif tag == "meta" and (given.get("name") or "").lower() == "robots":
            self._robots += (given.get("content") or "").lower()
        self._enter(tag, given)
        if self._is_wanted:
            self._writer.open(tag, given.get("alt") or "" if tag == "img" else "")
        return True

    def says(self, words: str) -> None:
        """Text."""
        if self._is_wanted:
            self._writer.add(words)

    def close(self, tag: str) -> None:
        """An element ends."""
        if self._is_wanted:
            self._writer.close(tag)
        self._in_title = self._in_title and tag != "title"
        if tag == self._container:
            self._depth -= 1
            self._container = tag if self._depth else ""

    def tells(self, tag: str) -> bool:
        """Whether the attributes of such an element say something to us."""
        return tag in _TELLING or (not self.was_within and tag not in EMPTY)

    @property
    def _is_wanted(self) -> bool:
        return not self._within or self._in_title or bool(self._container)

    def _enter(self, tag: str, given: Mapping[str, str | None]) -> None:
        self._in_title = self._in_title or tag == "title"
        if tag == self._container:
            self._depth += 1
        elif not self.was_within and given.get("id") == self._within:
            self.was_within = True
            self._container, self._depth = tag, 1

    def page(self) -> Page:
        """All of it."""
        nowhere = "nofollow" in self._robots or "none" in self._robots
        return Page(
            text=self._writer.text,
            title=self._writer.title,
            links=() if nowhere else tuple(self._links),
            kept_out="noindex" in self._robots or "none" in self._robots,
        )

    def _link(self, href: str, rel: str) -> None:
        href = href.strip()
        if not href or len(href) > LONGEST or len(self._links) >= LINKS or "nofollow" in rel.lower().split():
            return
        target = _joined(self._url, href).partition("#")[0]
        if target.startswith(("http://", "https://")):
            self._links[target] = None


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:
        return ""


# --- with selectolax ---------------------------------------------------------------------------------------


def _walk(root: LexborNode | None, taken: _Taken, watch: Watch) -> None:
    """Go through the tree without recursion: pages nest as deep as somebody likes."""
    quiet = 0  # how deep we are in what only has links
    node, seen = root, 0
    while node is not None:
        seen += 1
        if seen % 1000 == 0:
            watch.look()
        tag = node.tag or ""
        below = None
        if tag == "-text":
            if not quiet:
                taken.says(node.text_content or "")
        elif not tag.startswith(("-", "!")) and taken.open(tag, node.attributes if taken.tells(tag) else {}):
            quiet += tag in UNSEEN
            below = node.child
            if below is None:
                quiet -= tag in UNSEEN
                taken.close(tag)
        if below is not None:
            node = below
            continue
        while node is not None and node.next is None:
            node = node.parent
            if node is not None:
                quiet -= (node.tag or "") in UNSEEN
                taken.close(node.tag or "")
        node = node.next if node is not None else None


# --- without -----------------------------------------------------------------------------------------------


class _Scanned:
    """Makes of tags what a tree would say: which elements are left out, and where those end."""

    def __init__(self, taken: _Taken) -> None:
        self._taken = taken
        self._unseen: list[str] = []  # open elements that are left out
        self._quiet: list[str] = []  # open elements of which only links are taken

    def begins(self, tag: str, attributes: str) -> None:
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.append(tag)
        elif not self._taken.open(tag, attributes_of(attributes) if self._taken.tells(tag) else {}):
            if tag not in EMPTY and not (attributes.endswith("/") and tag in ("svg", "math")):
                self._unseen.append(tag)
        elif tag in UNSEEN:
            self._quiet.append(tag)

    def ends(self, tag: str) -> None:
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.pop()
        elif self._quiet and tag == self._quiet[-1]:
            self._quiet.pop()
        else:
            self._taken.close(tag)

    def says(self, text: str) -> None:
        if not self._unseen and not self._quiet:
            self._taken.says(text)
