"""Tokeniser that splits HTML into tags and text.

The parser of Python's library takes minutes for some hostile kilobytes (`<a <a <a`), so it is not used. This one makes
one pass, builds nothing, and gives up on a tag without an end. Of a tag longer than `LONGEST` it reads the beginning.
It searches for the end of such tags within a budget of a few page lengths; beyond it the `<` is text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Protocol

LONGEST = 20_000
"""Characters of one tag that are read."""

_WORK = 4
"""Budget for finding the ends of long tags, in page lengths."""

_TAG = re.compile(r"""<(/?)([a-zA-Z][a-zA-Z0-9:-]*+)((?:[^<>"']++|"[^"]*+"|'[^']*+')*+)>""")
_BEGUN = re.compile(r"""</?[a-zA-Z](?:[^<>"']++|"[^"]*+"|'[^']*+')*+""")
_ATTRIBUTE = re.compile(r"""([^\s=<>"'/]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]++)))?+""")
_RAW = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style", "iframe", "noscript", "textarea")}
"""Raw text elements: only their own end tag ends them."""


class Tags(Protocol):
    """Receiver of tags and text."""

    def begins(self, tag: str, attributes: str) -> None:
        """Handle an opening tag; `attributes` is the text after its name."""

    def ends(self, tag: str) -> None:
        """Handle a closing tag."""

    def says(self, text: str) -> None:
        """Handle text."""


def scan(page: str, tags: Tags, look: Callable[[], None]) -> None:
    """Tokenise a page. `look` is called regularly, and may raise to abort."""
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
    """Return the attributes of a tag; the first of a name wins."""
    given: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(text):
        given.setdefault(found[1].lower(), unescaped(found[2] or found[3] or found[4] or ""))
    return given


def unescaped(text: str) -> str:
    """Replace entities with characters."""
    try:
        return html.unescape(text)
    except ValueError:  # a character reference with thousands of digits
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
