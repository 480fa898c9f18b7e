"""Splitting of documents into chunks.

Every chunk is a part of the document's original text, without the empty lines around it; only tables repeat their first
row. Together the chunks are the whole text, in order. No chunk is longer than `size`. The id of a chunk depends only on
its source, heading and text, so an unchanged chunk keeps its id.

It is CPU-bound, about 10 MB a second: call it in a thread.
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
from .cutter import LEVELS, LINES, PARAGRAPHS, WORDS, CutLevel, Cutter, LineIndex, TextPiece

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
            return markdown.pieces(cutter)
        case "csv" | "tsv":
            return _rows_of_table(cutter)
        case "json" | "jsonl":
            return items.pieces(cutter)
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
        """Return the id of the next chunk; see `Chunk.id`. A repeated chunk gets an id of its own."""
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
