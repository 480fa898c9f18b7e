"""Pages of which no tree is to be built, because that would take far longer than reading them.

selectolax builds a page's tree in one call that can't be interrupted, and some shapes of pages make that call quadratic
or worse: elements nested ten thousand deep, thousands of attributes in one tag (each is compared with all before it),
thousands of different names of tags and attributes (they are kept in a table of fixed size), and formatting elements
that are never closed (`<b x=1><p>`: every paragraph gets a copy of each of them). Such a page is read tag by tag
instead (`html_tags.scan`).

The tests here take time proportional to the page, and none of them can be misled about attributes by quotes or
comments: whatever looks like the beginning of a tag is counted as one.
"""

from __future__ import annotations

import re

DEEPEST = 5000
MOST_ATTRIBUTES = 200
MOST_NAMES = 5000
MOST_FORMATTING = 100
"""Open elements, attributes of one tag, different names of tags and attributes, and open formatting elements, beyond
which no tree is built."""

EMPTY = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
"""Elements that have no end."""

_UNCLOSED = EMPTY | {"p", "li", "td", "th", "tr", "dt", "dd", "option"}
_FORMATTING = frozenset(("b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"))
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_ATTRIBUTES = re.compile(
    r"</?[a-zA-Z][^\s/>]*+"
    r"(?:[\s/]*+=?+[^\s/>=]++(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+)?+)?+){0,"
    rf"{MOST_ATTRIBUTES}}}+[\s/]*+(>?)"
)
_NAME = re.compile(r"([^\s/>=<\"']++)(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+)?+)?+")
_NO_TAGS = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b.*?(?:</\1|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_SHORTEST_NAME = 3
"""Characters that a name takes at least, where thousands of them are different."""

_WORK = 4
"""How many times the page's length may be spent on its tags before they count as too many attributes."""


def is_heavy(html: str) -> bool:
    """Whether a page is of a shape that trees are slow to build of."""
    return _has_many_attributes(html) or _is_deep(html)


def _has_many_attributes(html: str) -> bool:
    left = _WORK * len(html)
    names: set[str] = set()
    few = len(html) < _SHORTEST_NAME * MOST_NAMES
    for tag in _TAG.finditer(html):
        found = _ATTRIBUTES.match(html, tag.start())
        if found is None:  # it does not happen: what begins like a tag matches
            continue
        if not found[1] and found.end() < len(html):
            return True
        left -= found.end() - found.start()
        if not few:
            names.update(_NAME.findall(html, found.start(), found.end()))
        if left < 0 or len(names) > MOST_NAMES:
            return True
    return False


def _is_deep(html: str) -> bool:
    """Whether elements may be nested too deeply for a tree; those that are never closed count as well."""
    if html.count("<") < MOST_FORMATTING:
        return False
    depth = formatting = 0
    for tag in _TAG.finditer(_NO_TAGS.sub("", html)):
        name = tag[2].lower()
        if tag[1]:
            depth = max(depth - 1, 0)
            formatting = max(formatting - (name in _FORMATTING), 0)
        elif name not in _UNCLOSED:
            depth += 1
            formatting += name in _FORMATTING
            if depth > DEEPEST or formatting > MOST_FORMATTING:
                return True
    return False
