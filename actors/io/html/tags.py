"""HTML cut into tags and text.

The parser of Python's library takes minutes for some hostile kilobytes (`<a <a <a`), so it is not
used. This one goes through the page once, builds nothing, and gives up where a tag does not end. Of a tag longer than
`LONGEST` it reads the beginning; the rest of such a tag is looked for while that costs no more than a few times the
page's length in all, else its `<` is text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Protocol

LONGEST = 20_000
"""Characters of one tag that are read."""

_WORK = 4
"""How many times the page's length may be spent on looking for the ends of longer tags."""

_TAG = re.compile(r"""<(/?)([a-zA-Z][a-zA-Z0-9:-]*+)((?:[^<>"']++|"[^"]*+"|'[^']*+')*+)>""")
_BEGUN = re.compile(r"""</?[a-zA-Z](?:[^<>"']++|"[^"]*+"|'[^']*+')*+""")
_ATTRIBUTE = re.compile(r"""([^\s=<>"'/]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]++)))?+""")
_RAW = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style", "iframe", "noscript", "textarea")}
"""Elements in which nothing is a tag but their own end."""


class Tags(Protocol):
    """Receives the tags and text."""

    def begins(self, tag: str, attributes: str) -> None:
        """A tag; `attributes` is the text between its name and its end."""

    def ends(self, tag: str) -> None:
        """A closing tag."""

    def says(self, text: str) -> None:
        """Text."""


def scan(page: str, tags: Tags, look: Callable[[], None]) -> None:
    """Go through a page. `look` is called now and then, and may raise to end it."""
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
        found = _TAG.match(page, start, start + LONGEST)
        if found is None and left > 0 and (begun := _BEGUN.match(page, start)) and begun.end() - start > LONGEST:
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
    """The attributes of a tag; the first of a name counts."""
    given: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(text):
        given.setdefault(found[1].lower(), unescaped(found[2] or found[3] or found[4] or ""))
    return given


def unescaped(text: str) -> str:
    """Text with its entities as characters."""
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


def _tag(page: str, found: re.Match[str], tags: Tags) -> int:
    tag = found[2].lower()
    if found[1]:
        tags.ends(tag)
        return found.end()
    tags.begins(tag, found[3][:LONGEST])
    raw = _RAW.get(tag)
    if raw is None:
        return found.end()
    closing = raw.search(page, found.end())
    return closing.start() if closing else len(page)
