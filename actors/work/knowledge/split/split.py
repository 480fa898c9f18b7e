"""A document in chunks.

Every chunk is a part of the document's text as it stands there, without the empty lines around it; only tables get
their first row repeated. Together the chunks are the whole text, in order. No chunk is longer than `size`. A
chunk's id goes by its source, heading and text alone, so what did not change keeps its id.

It is plain computing, about 10 MB a second: call it in a thread.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import final

from .....protocol.errors import ConfigError
from .....protocol.knowledge import Chunk, Document
from . import items, markdown
from .cutter import LEVELS, LINES, PARAGRAPHS, WORDS, Cutter, Level, LineIndex, Piece

SIZE = 1000
"""Characters of a chunk by default."""

OVERLAP = 20
"""The default overlap is the size divided by this."""


def split(document: Document, *, size: int = SIZE, overlap: int | None = None) -> list[Chunk]:
    """Cut a document into chunks.

    Args:
        document: its `kind` says how: `markdown` and what is read as that (`html`, `docx`, ...), `code:<language>`,
            `csv` and `tsv`, `json` and `jsonl`; anything else is prose.
        size: how many characters a chunk may have.
        overlap: how much of the chunk before a chunk may begin with, where a text without structure had to be cut.

    Raises:
        ConfigError: a size or an overlap that makes no sense.
    """
    overlap = size // OVERLAP if overlap is None else overlap
    if size < 1:
        raise ConfigError(f"the chunk size must be at least 1, not {size}")
    if not 0 <= overlap < size:
        raise ConfigError(f"the chunk overlap must be at least 0 and less than the chunk size {size}, not {overlap}")
    cutter = Cutter(document.text, size, overlap)
    return list(_chunks(document, _pieces(document.kind, cutter)))


def _pieces(kind: str, cutter: Cutter) -> Iterator[Piece]:
    family, _, language = kind.partition(":")
    match family:
        case "markdown" | "html" | "docx" | "odt" | "pptx" | "xlsx":  # the readers of all these write Markdown
            return markdown.pieces(cutter)
        case "csv" | "tsv":
            return _rows_of_table(cutter)
        case "json" | "jsonl":
            return items.pieces(cutter)
        case "code":
            levels = (_TOP, _OF_LANGUAGES.get(language, _MIDDLE), PARAGRAPHS, LINES, WORDS)
            return cutter.cut(Piece(0, len(cutter.text)), levels, by_lines=True)
    return cutter.cut(Piece(0, len(cutter.text)), LEVELS)


def _chunks(document: Document, pieces: Iterator[Piece]) -> Iterator[Chunk]:
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
    """The same part without white space at its end, and without the empty lines at its start."""
    part = text[start:end]
    end = start + len(part.rstrip())
    blank = len(part) - len(part.lstrip())
    begin = start + part.rfind("\n", 0, blank) + 1  # a first line keeps its indentation
    return min(begin, end), end


@final
class Ids:
    """Gives the chunks of one document their ids, in their order."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, source: str, heading: tuple[str, ...], text: str) -> str:
        """The id of the next chunk; see `Chunk.id`."""
        same = _digest(source, heading, text)
        self._seen[same] += 1
        return same if self._seen[same] == 1 else _digest(same, (), str(self._seen[same]))


def _digest(source: str, heading: tuple[str, ...], text: str) -> str:
    whole = "\0".join((source, *heading, "", text))
    return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()[:32]


# --- programs: by what stands at the left margin after an empty line, then definitions, empty lines, lines, words
#
# One set of words serves all languages: that a class is called `class` and a function `func` or `fn` or `def` holds
# across them, and a word that means something else in one of them costs no more than a cut at a line's end. What is
# attached to a definition from above (decorators, attributes) stays with it.

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


def _at_lines(words: str) -> Level:
    return Level(0.3, re.compile(rf"(\n){_ATTACHED}[ \t]*(?:{words})"))


_TOP = Level(0.25, re.compile(r"(\n[ \t]*\n)(?=[^\s)\]}])"))
_MIDDLE = _at_lines(rf"(?:(?:{_MODIFIERS})\s+)*(?:{_DEFINITIONS})\b")
_OF_LANGUAGES = {
    "sql": _at_lines(rf"(?:{_STATEMENTS})\b"),
    "tex": _at_lines(_SECTIONS),
    "latex": _at_lines(_SECTIONS),
    "bash": _at_lines(r"(?:function[ \t]+)?[\w-]+[ \t]*\(\)"),
    "shell": _at_lines(r"(?:function[ \t]+)?[\w-]+[ \t]*\(\)"),
    "yaml": Level(0.3, re.compile(r"(\n)(?=[^\s#\-])")),
    "toml": Level(0.3, re.compile(r"(\n)(?=\[)")),
    "ini": Level(0.3, re.compile(r"(\n)(?=\[)")),
}


# --- tables (CSV, TSV): as many whole rows as fit, each chunk with the first row before them, the columns' names
#
# Quoted fields may hold line breaks. A quote that is never closed would swallow the rest of the table, so a row that
# goes on for too long is taken to have a stray one.

_LONGEST = 200
"""Lines a row may have."""


def _rows_of_table(cutter: Cutter) -> Iterator[Piece]:
    text = cutter.text
    rows = list(_rows(text))
    if not rows:
        return
    first_end = rows[0][1]
    header = text[:first_end].rstrip("\n") + "\n"
    if not cutter.fits(0, 0, header * 2):  # it would fill more than half of every chunk
        header = ""
    waiting = Piece(0, first_end)
    for start, end in rows[1:]:
        if cutter.fits(waiting.start, end, waiting.before):
            waiting = waiting._replace(end=end)
            continue
        yield from cutter.cut(waiting, LEVELS)
        waiting = Piece(start, end, before=header)
        if not cutter.fits(start, end, header):
            waiting = Piece(start, end)
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
