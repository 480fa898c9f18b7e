"""A document in chunks.

    chunks = split(document, size=1000)

Every chunk is a part of the document's text as it stands there, without the empty lines around it; only tables get
their first row repeated. Together the chunks are the whole text, in order. No chunk is longer than `size`. A
chunk's id goes by its source, heading and text alone, so what did not change keeps its id.

It is plain computing, about 10 MB a second: call it in a thread.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import final

from .....protocol.errors import ConfigError
from .....protocol.knowledge import Chunk, Document
from . import code, items, markdown, prose, table
from .cutter import Cutter, Lines, Piece, Unit

SIZE = 1000
"""Units of a chunk by default."""

OVERLAP = 20
"""The default overlap is the size divided by this."""


def split(
    document: Document, *, size: int = SIZE, overlap: int | None = None, unit: Unit = "characters"
) -> list[Chunk]:
    """Cut a document into chunks.

    Args:
        document: its `kind` says how: `markdown` and what is read as that (`html`, `docx`, ...), `code:<language>`,
            `csv` and `tsv`, `json` and `jsonl`; anything else is prose.
        size: how long a chunk may be, in units.
        overlap: how much of the chunk before a chunk may begin with, where a text without structure had to be cut.
        unit: `characters`, or `tokens` (a token is taken to be four bytes).

    Raises:
        ConfigError: a size or an overlap that makes no sense.
    """
    overlap = size // OVERLAP if overlap is None else overlap
    if size < 1:
        raise ConfigError(f"the chunk size must be at least 1, not {size}")
    if not 0 <= overlap < size:
        raise ConfigError(f"the chunk overlap must be at least 0 and less than the chunk size {size}, not {overlap}")
    cutter = Cutter(document.text, size, overlap, unit)
    return list(_chunks(document, _pieces(document.kind, cutter)))


def _pieces(kind: str, cutter: Cutter) -> Iterator[Piece]:
    family, _, language = kind.partition(":")
    match family:
        case "markdown" | "html" | "docx" | "odt" | "pptx" | "xlsx":  # the readers of all these write Markdown
            return markdown.pieces(cutter)
        case "csv" | "tsv":
            return table.pieces(cutter)
        case "json" | "jsonl":
            return items.pieces(cutter)
        case "code":
            return cutter.cut(Piece(0, len(cutter.text)), code.levels(language), by_lines=True)
    return cutter.cut(Piece(0, len(cutter.text)), prose.LEVELS)


def _chunks(document: Document, pieces: Iterator[Piece]) -> Iterator[Chunk]:
    lines = Lines(document.text)
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
