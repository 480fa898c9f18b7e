"""Splitting of Markdown by headings, so that every chunk has the headings above it.

A section with all its subsections is one chunk if it fits. Otherwise its own text and its subsections are split
separately, and small neighbours are joined again under their common heading. A chunk never crosses the border of a
section that had to be split, so a change in one section does not change the chunks of the others. Lines in a fenced
block or in the front matter are never headings. A fenced block is not cut at its empty lines if there is another way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from .cutter import LEVELS, CutLevel, Cutter, TextPiece

_FRONT = re.compile(r"---[ \t]*\n(?:[^\n]*\n){0,200}?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_MARKS = re.compile(
    r"^[ ]{0,3}(?:"
    r"(?P<fence>`{3,}|~{3,})[^\n]*"
    r"|(?P<atx>\#{1,6})(?P<title>[ \t][^\n]*)?"
    r"|(?P<above>[^\s#>|`~+*=-][^\n]*)\n[ ]{0,3}(?P<line>=+|-{2,})[ \t]*"
    r")$"
    r"|^[ \t]*\n",
    re.MULTILINE,
)


class _Section(msgspec.Struct):
    """Section from its heading to the next heading of the same or a higher rank.

    `own` is the start of its first subsection, or the end of the section.
    """

    start: int
    rank: int
    path: tuple[str, ...] = ()
    titled: int = 0  # where its text begins, after the heading
    own: int = 0
    end: int = 0
    below: list[_Section] = []


def pieces(cutter: Cutter) -> Iterator[TextPiece]:
    """Yield the chunks of a Markdown text."""
    root, blocks = _read(cutter.text)
    yield from _split(root, cutter, (CutLevel(0.3, None, blocks), *LEVELS))


def _split(section: _Section, cutter: Cutter, levels: tuple[CutLevel, ...]) -> Iterator[TextPiece]:
    while len(section.below) == 1 and not _own_text(section, cutter):
        section = msgspec.structs.replace(section.below[0], start=section.start)
    if cutter.fits(section.start, section.end):
        yield TextPiece(section.start, section.end, section.path)
    else:
        yield from cutter.packed(_parts(section, cutter, levels), section.path)


def _own_text(section: _Section, cutter: Cutter) -> str:
    return cutter.text[section.titled : section.own].strip()


def _parts(section: _Section, cutter: Cutter, levels: tuple[CutLevel, ...]) -> Iterator[TextPiece]:
    if section.below and not _own_text(section, cutter):
        section.below[0].start = section.start  # a heading without own text goes with its first subsection
    else:
        yield from cutter.cut(TextPiece(section.start, section.own, section.path), levels)
    for below in section.below:
        yield from _split(below, cutter, levels)


def _read(text: str) -> tuple[_Section, list[int]]:
    """Return the tree of sections, and the starts of blocks: positions after empty lines outside of fences."""
    root = _Section(start=0, rank=0)
    open_: list[_Section] = [root]
    blocks: list[int] = []
    front = _FRONT.match(text)
    fence = ""
    for mark in _MARKS.finditer(text, front.end() if front else 0):
        if found := mark["fence"]:
            if not fence:
                fence = found
            elif found.startswith(fence) and mark[0].strip() == found:
                fence = ""
        elif not fence:
            if mark["atx"]:
                _begin(open_, mark, len(mark["atx"]), _without_marks(mark["title"] or ""))
            elif mark["above"]:
                _begin(open_, mark, 1 + (mark["line"][0] == "-"), mark["above"].strip())
            else:
                blocks.append(mark.end())
    for section in open_:
        _close(section, len(text))
    return root, blocks


def _without_marks(title: str) -> str:
    """Return `Title ##` as `Title`, and `C#` unchanged."""
    title = title.strip()
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else title


def _begin(open_: list[_Section], mark: re.Match[str], rank: int, title: str) -> None:
    while open_[-1].rank >= rank:
        _close(open_.pop(), mark.start())
    parent = open_[-1]
    section = _Section(start=mark.start(), rank=rank, path=(*parent.path, title), titled=mark.end())
    if not parent.below:
        parent.own = section.start
    parent.below.append(section)
    open_.append(section)


def _close(section: _Section, end: int) -> None:
    section.end = end
    if not section.below:
        section.own = end
