"""Splitting of documents into chunks, along their structure and without loss: prose, code, tables, Markdown, JSON.

Every chunk is a part of the document's original text, without the empty lines around it; only tables repeat their first
row. Together the chunks are the whole text, in order. No chunk is longer than `size`. The id of a chunk depends only on
its source, heading and text, so an unchanged chunk keeps its id.

It is CPU-bound, about 10 MB a second: call it in a thread. The module depends only on `protocol.knowledge`.

Problem: if chunks are filled to the brim, a word inserted at the top moves every later cut, and all chunks have to be
embedded again. So the position of a cut must not depend on how full the chunk is, but on the text at the position.

The `Cutter` looks at the last part of the available room. It takes the strongest kind of position there: paragraphs
before sentences before words. Of the positions of that kind, it takes the one whose next few characters have the
smallest checksum. Two versions of a text eventually agree on such a position, whatever precedes it. From there on, all
their chunks are the same.

A chunk begins with the end of the previous one (the overlap), from the start of a sentence or word. The overlap counts
towards the size and does not move the cuts.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

import msgspec

from ....protocol.errors import ConfigError
from ....protocol.knowledge import Chunk, Document

_SEEN = 24
"""Characters after a position that its checksum covers."""

_LINE = re.compile(r"\n")
_WORD = re.compile(r"(\s)(?=\S)")
_SENTENCE = re.compile(r"(\n|[.!?]\s+|[。！？])(?=\S)")


class TextPiece(NamedTuple):
    """Part of a text.

    Attributes:
        start, end: its positions.
        heading: headings above it.
        before: text repeated before it, such as a table's first row.
        whole: it was not cut, so it may be joined with an adjacent whole piece.
    """

    start: int
    end: int
    heading: tuple[str, ...] = ()
    before: str = ""
    whole: bool = True


class CutLevel(NamedTuple):
    """Positions of one strength: after group 1 of `pattern`, or at sorted `places`.

    A chunk that is cut at this level fills at least the fraction `least` of its room. A short chunk that ends with a
    section is better than a long one that ends with a word.
    """

    least: float
    pattern: re.Pattern[str] | None = None
    places: Sequence[int] = ()

    def between(self, text: str, start: int, end: int) -> Iterable[int]:
        """Return the positions after `start`, up to `end`."""
        if self.pattern is None:
            return self.places[bisect_right(self.places, start) : bisect_right(self.places, end)]
        # one more character, for lookahead
        found = (match.end(1) for match in self.pattern.finditer(text, start, end + 1))
        return [place for place in found if start < place <= end]


class Cutter:
    """Cutter of one text.

    Args:
        text: the whole text.
        size: most characters of a chunk.
        overlap: most characters of the previous chunk at the start of a chunk; less than `size`.
    """

    def __init__(self, text: str, size: int, overlap: int) -> None:
        self.text = text
        self.room = size
        self._overlap = overlap

    def fits(self, start: int, end: int, before: str = "") -> bool:
        """Return whether the text between these positions fits into a chunk, after the repeated text `before`."""
        return end - start + len(before) <= self.room

    def cut(self, piece: TextPiece, levels: Sequence[CutLevel], *, by_lines: bool = False) -> Iterator[TextPiece]:
        """Yield the piece whole if it fits into a chunk; else cut it at the strongest positions of `levels`.

        Adjacent chunks overlap; with `by_lines`, by whole lines only. Without the overlaps, they are exactly the piece.
        """
        if self.fits(piece.start, piece.end, piece.before):
            yield piece
            return
        position = piece.start
        while position < piece.end:
            limit = min(piece.end, position + self.room - self._overlap)
            end = piece.end if limit == piece.end else self._best(position, limit, piece.end, levels)
            yield piece._replace(start=self._overlapping(position, piece.start, by_lines), end=end, whole=False)
            position = end

    def packed(self, pieces: Iterable[TextPiece], heading: tuple[str, ...]) -> Iterator[TextPiece]:
        """Yield the pieces, with adjacent whole pieces joined as far as they fit; joined pieces get `heading`."""
        waiting: TextPiece | None = None
        for piece in pieces:
            if waiting is None:
                waiting = piece
            elif waiting.whole and piece.whole and self.fits(waiting.start, piece.end, waiting.before):
                waiting = waiting._replace(end=piece.end, heading=heading)
            else:
                yield waiting
                waiting = piece
        if waiting is not None:
            yield waiting

    def _best(self, start: int, limit: int, end: int, levels: Sequence[CutLevel]) -> int:
        """Return the cut for the part after `start`, at most `limit`. Text after `end` does not influence it."""

        def checksum(place: int) -> int:
            return zlib.crc32(self.text[place : min(end, place + _SEEN)].encode(errors="surrogatepass"))

        for level in levels:
            least = start + int((limit - start) * level.least)
            places = list(level.between(self.text, least, limit))
            if places:
                return min(places, key=checksum)
        return limit

    def _overlapping(self, position: int, first: int, by_lines: bool) -> int:
        """Return the start of a chunk with its overlap.

        Its own text begins at `position`; the piece that is cut begins at `first`.
        """
        if position == first or not self._overlap:
            return position
        # The overlap never reaches back across the start of the piece.
        start = max(first, position - self._overlap)
        for pattern in (_LINE,) if by_lines else (_SENTENCE, _WORD):
            match = pattern.search(self.text, max(first, start - 1), position)
            if match is not None and start <= match.end() < position:
                return match.end()
        return position if by_lines else start


class LineIndex:
    """Line numbers by position in a text."""

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def of(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and last line of a non-empty part, counted from 1."""
        return bisect_left(self._ends, start) + 1, bisect_left(self._ends, end - 1) + 1


PARAGRAPHS = CutLevel(0.3, re.compile(r"(\n[ \t]*\n)"))
ITEMS = CutLevel(0.4, re.compile(r"(\n)(?=[ \t]*(?:[-*+•]|\d+[.)])[ \t])"))
SENTENCES = CutLevel(0.4, re.compile(r"""([.!?…]["'”’»)\]]*\s+|[。！？])"""))
LINES = CutLevel(0.5, re.compile(r"(\n)"))
CLAUSES = CutLevel(0.5, re.compile(r"([,;:]\s+|[、，；：])"))
WORDS = CutLevel(0.5, re.compile(r"(\s+)"))

LEVELS = (PARAGRAPHS, ITEMS, SENTENCES, LINES, CLAUSES, WORDS)


SIZE = 1000
"""Default size of a chunk in characters."""

OVERLAP = 20
"""Divisor of the size for the default overlap."""


def split(document: Document, *, size: int = SIZE, overlap: int | None = None) -> list[Chunk]:
    """Split a document into chunks.

    Args:
        document: its `kind` selects the splitter: `markdown` and formats that are read as that (`html`, `docx`, ...),
            `code:<language>`, `csv` and `tsv`, `json` and `jsonl`; any other kind is split as prose.
        size: most characters of a chunk.
        overlap: most characters of the previous chunk at the start of a chunk, in text without structure.

    Raises:
        ConfigError: the size or the overlap is out of range.
    """
    overlap = size // OVERLAP if overlap is None else overlap
    if size < 1:
        raise ConfigError(f"the chunk size must be at least 1, not {size}")
    if not 0 <= overlap < size:
        raise ConfigError(f"the chunk overlap must be at least 0 and less than the chunk size {size}, not {overlap}")
    cutter = Cutter(document.text, size, overlap)
    return list(_chunks(document, _pieces(document.kind, cutter)))


def _pieces(kind: str, cutter: Cutter) -> Iterator[TextPiece]:
    family, _, language = kind.partition(":")
    match family:
        case "markdown" | "html" | "docx" | "odt" | "pptx" | "xlsx":  # their readers convert all of these to Markdown
            return markdown_pieces(cutter)
        case "csv" | "tsv":
            return _rows_of_table(cutter)
        case "json" | "jsonl":
            return json_pieces(cutter)
        case "code":
            levels = (_TOP, _OF_LANGUAGES.get(language, _MIDDLE), PARAGRAPHS, LINES, WORDS)
            return cutter.cut(TextPiece(0, len(cutter.text)), levels, by_lines=True)
    return cutter.cut(TextPiece(0, len(cutter.text)), LEVELS)


def _chunks(document: Document, pieces: Iterator[TextPiece]) -> Iterator[Chunk]:
    lines = LineIndex(document.text)
    ids = Ids()
    for piece in pieces:
        start, end = _trimmed(document.text, piece.start, piece.end)
        if start == end:
            continue
        text = piece.before + document.text[start:end]
        yield Chunk(
            id=ids.of(document.source, piece.heading, text),
            source=document.source,
            text=text,
            heading=piece.heading,
            lines=lines.of(start, end),
        )


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the part without white space at its end, and without the empty lines at its start."""
    part = text[start:end]
    end = start + len(part.rstrip())
    blank = len(part) - len(part.lstrip())
    begin = start + part.rfind("\n", 0, blank) + 1  # a first line keeps its indentation
    return min(begin, end), end


@final
class Ids:
    """Ids for the chunks of one document, assigned in order."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, source: str, heading: tuple[str, ...], text: str) -> str:
        """Return the id of the document's next chunk; see `Chunk.id`. A chunk with the same text as an earlier one gets
        an id of its own.
        """
        same = _digest(source, heading, text)
        self._seen[same] += 1
        return same if self._seen[same] == 1 else _digest(same, (), str(self._seen[same]))


def _digest(source: str, heading: tuple[str, ...], text: str) -> str:
    whole = "\0".join((source, *heading, "", text))
    return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()[:32]


# --- programs: cut before unindented lines after an empty line, then at definitions, empty lines, lines, words
#
# One set of keywords covers all languages: a class is called `class`, and a function `func` or `fn` or `def`. A keyword
# with another meaning in one language costs only a cut at the end of a line. Decorators and attributes above a
# definition stay with it.

_MODIFIERS = (
    "export|default|declare|pub(?:\\([^)\n]*\\))?|public|private|protected|internal|static|final|abstract|async|override"
    "|open|sealed|virtual|inline|extern|unsafe|partial|data|case|suspend|local|const|constexpr"
)
_DEFINITIONS = (
    "def|defp|defmodule|defmacro|class|interface|struct|enum|trait|impl|mod|module|fn|func|fun|function|sub|package"
    "|namespace|template|type|typedef|object|extension|protocol|union|record|macro_rules!"
)
_STATEMENTS = "CREATE|ALTER|DROP|INSERT|UPDATE|DELETE|SELECT|WITH|create|alter|drop|insert|update|delete|select|with"
_SECTIONS = r"\\(?:part|chapter|section|subsection|subsubsection)\b"

_ATTACHED = r"(?:[ \t]*(?:@|#\[)[^\n]*\n){0,9}"


def _at_lines(words: str) -> CutLevel:
    return CutLevel(0.3, re.compile(rf"(\n){_ATTACHED}[ \t]*(?:{words})"))


_TOP = CutLevel(0.25, re.compile(r"(\n[ \t]*\n)(?=[^\s)\]}])"))
_MIDDLE = _at_lines(rf"(?:(?:{_MODIFIERS})\s+)*(?:{_DEFINITIONS})\b")
_OF_LANGUAGES = {
    "sql": _at_lines(rf"(?:{_STATEMENTS})\b"),
    "tex": _at_lines(_SECTIONS),
    "latex": _at_lines(_SECTIONS),
    "bash": _at_lines(r"(?:function[ \t]+)?[\w-]+[ \t]*\(\)"),
    "shell": _at_lines(r"(?:function[ \t]+)?[\w-]+[ \t]*\(\)"),
    "yaml": CutLevel(0.3, re.compile(r"(\n)(?=[^\s#\-])")),
    "toml": CutLevel(0.3, re.compile(r"(\n)(?=\[)")),
    "ini": CutLevel(0.3, re.compile(r"(\n)(?=\[)")),
}


# --- tables (CSV, TSV): as many whole rows as fit, each chunk preceded by the first row with the names of the columns
#
# Quoted fields may contain line breaks. A quote that is never closed would swallow the rest of the table, so the quote
# of an overlong row is treated as a stray one.

_LONGEST = 200
"""Most lines of a row."""


def _rows_of_table(cutter: Cutter) -> Iterator[TextPiece]:
    text = cutter.text
    rows = list(_rows(text))
    if not rows:
        return
    first_end = rows[0][1]
    header = text[:first_end].rstrip("\n") + "\n"
    if not cutter.fits(0, 0, header * 2):  # the first row would fill more than half of every chunk
        header = ""
    waiting = TextPiece(0, first_end)
    for start, end in rows[1:]:
        if cutter.fits(waiting.start, end, waiting.before):
            waiting = waiting._replace(end=end)
            continue
        yield from cutter.cut(waiting, LEVELS)
        waiting = TextPiece(start, end, before=header)
        if not cutter.fits(start, end, header):
            waiting = TextPiece(start, end)
    yield from cutter.cut(waiting, LEVELS)


def _rows(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = _end_of_line(text, start)
        quotes = text.count('"', start, end)
        first_end, lines = end, 1
        while quotes % 2 and end < len(text) and lines < _LONGEST:
            following = _end_of_line(text, end)
            quotes += text.count('"', end, following)
            end = following
            lines += 1
        if quotes % 2:
            end = first_end
        yield start, end
        start = end


def _end_of_line(text: str, start: int) -> int:
    found = text.find("\n", start)
    return len(text) if found < 0 else found + 1


# --- Markdown, by headings, so that every chunk has the headings above it
#
# A section with all its subsections is one chunk if it fits. Otherwise its own text and its subsections are split
# separately, and small neighbours are joined again under their common heading. A chunk never crosses the border of a
# section that had to be split, so a change in one section does not change the chunks of the others. Lines in a fenced
# block or in the front matter are never headings. A fenced block is not cut at its empty lines if there is another way.


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


def markdown_pieces(cutter: Cutter) -> Iterator[TextPiece]:
    """Yield the chunks of a Markdown text."""
    root, blocks = _read(cutter.text)
    yield from _split_section(root, cutter, (CutLevel(0.3, None, blocks), *LEVELS))


def _split_section(section: _Section, cutter: Cutter, levels: tuple[CutLevel, ...]) -> Iterator[TextPiece]:
    while len(section.below) == 1 and not _own_text(section, cutter):
        section = msgspec.structs.replace(section.below[0], start=section.start)
    if cutter.fits(section.start, section.end):
        yield TextPiece(section.start, section.end, section.path)
    else:
        yield from cutter.packed(_section_parts(section, cutter, levels), section.path)


def _own_text(section: _Section, cutter: Cutter) -> str:
    return cutter.text[section.titled : section.own].strip()


def _section_parts(section: _Section, cutter: Cutter, levels: tuple[CutLevel, ...]) -> Iterator[TextPiece]:
    if section.below and not _own_text(section, cutter):
        section.below[0].start = section.start  # a heading without own text goes with its first subsection
    else:
        yield from cutter.cut(TextPiece(section.start, section.own, section.path), levels)
    for below in section.below:
        yield from _split_section(below, cutter, levels)


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


# --- JSON: as many adjacent items of lists and objects as fit into a chunk
#
# The keys on the path are the heading. Item numbers are not, because they change with every item inserted before. The
# text is cut in its original form, not serialised again: a chunk shows the lines of the file. A sequence of values
# (JSON Lines) is split like a list. Invalid JSON is split as prose.


_DEEPEST = 30
"""Levels of nesting below which everything is split as prose."""

_SPACE = re.compile(r"\s*")
_COMMA = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_DECODER = json.JSONDecoder(strict=False)


def json_pieces(cutter: Cutter) -> Iterator[TextPiece]:
    """Yield the chunks of a JSON text."""
    try:
        values = list(_values(cutter.text))
        if len(values) == 1:
            found = _split_value(TextPiece(0, len(cutter.text)), values[0].start, cutter, 0)
        else:
            found = cutter.packed(
                (part for value in values for part in _split_value(value, value.start, cutter, 0)), ()
            )
        yield from list(found)
    except (ValueError, RecursionError):  # invalid JSON, or endless nesting
        yield from cutter.cut(TextPiece(0, len(cutter.text)), LEVELS)


def _split_value(piece: TextPiece, begins: int, cutter: Cutter, depth: int) -> Iterator[TextPiece]:
    if cutter.fits(piece.start, piece.end):
        yield piece
    elif cutter.text[begins : begins + 1] not in ("[", "{") or depth == _DEEPEST:
        yield from cutter.cut(piece, LEVELS)
    else:
        yield from cutter.packed(_split_items(piece, begins, cutter, depth), piece.heading)


def _split_items(piece: TextPiece, begins: int, cutter: Cutter, depth: int) -> Iterator[TextPiece]:
    """Yield the items of a list or an object; the brackets belong to the first and the last item."""
    items = list(_items(cutter.text, begins))
    if not items:
        yield from cutter.cut(piece, LEVELS)
    for number, (key, start, value) in enumerate(items):
        first, last = number == 0, number + 1 == len(items)
        end = piece.end if last else items[number + 1][1]
        part = TextPiece(piece.start if first else start, end, (*piece.heading, *key))
        yield from _split_value(part, value, cutter, depth + 1)


def _items(text: str, begins: int) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield the key of each item, if it has one, the start of the item, and the start of its value."""
    in_object = text[begins] == "{"
    closing = "}" if in_object else "]"
    position = _after(_SPACE, text, begins + 1)
    while text[position] != closing:
        start = position
        key: tuple[str, ...] = ()
        if in_object:
            name, position = _DECODER.raw_decode(text, position)
            position = _after(_COLON, text, position)
            key = (name,)
        yield key, start, position
        _value, position = _DECODER.raw_decode(text, position)
        position = _after(_COMMA, text, position)


def _values(text: str) -> Iterator[TextPiece]:
    start = _after(_SPACE, text, 0)
    while start < len(text):
        _value, end = _DECODER.raw_decode(text, start)
        following = _after(_SPACE, text, end)
        yield TextPiece(start, following)
        start = following


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    assert match is not None, "the pattern also matches an empty text"
    return match.end()
