"""Checks the inputs of a build before it keeps them: documents, chunks and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .....protocol.errors import KnowledgeError
from .....protocol.knowledge import Chunk, Document, Unreadable
from .model import Splitter

if TYPE_CHECKING:
    from .model import Floats


def embedded_text(chunk: Chunk) -> str:
    """What models see of a chunk: its text below the headings it stands under, which often name what it is about."""
    return "\n".join((" > ".join(chunk.heading), chunk.text)) if chunk.heading else chunk.text


def split_up(
    splitter: Splitter, found: Sequence[Document | Unreadable]
) -> tuple[list[tuple[Document, Sequence[Chunk]]], list[Unreadable]]:
    """Documents with their chunks, and what of it can't be read."""
    pieces: list[tuple[Document, Sequence[Chunk]]] = []
    unreadable: list[Unreadable] = []
    for each in found:
        if isinstance(each, Unreadable):
            unreadable.append(each)
        elif is_unicode(each.source) and is_unicode(each.text) and is_unicode(each.title):
            pieces.append((each, splitter(each)))
        else:
            unreadable.append(no_unicode(each.source))
    return pieces, unreadable


def is_unicode(text: str) -> bool:
    """Whether it can be written down: names of files, and careless programs, bring halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def no_unicode(name: str) -> Unreadable:
    """The report about such a source."""
    shown = name.encode(errors="backslashreplace").decode()
    return Unreadable(source=shown, reason="its name or its text is no Unicode")


def halves(matrix: Floats, rows: int, dimension: int, model: str) -> list[bytes]:
    """Each row at length 1, as 16 bit floats.

    Raises:
        KnowledgeError: they are not what was asked for.
    """
    import numpy as np

    if matrix.ndim != 2 or matrix.shape[0] != rows or not matrix.shape[1]:
        raise KnowledgeError(f"model {model!r} gave an array of shape {matrix.shape} for {rows} texts")
    if dimension and matrix.shape[1] != dimension:
        raise KnowledgeError(
            f"model {model!r} gives vectors of {matrix.shape[1]} numbers, and this knowledge base has {dimension}:"
            " another model goes by that name now; rebuild it"
        )
    if not np.isfinite(matrix).all():
        raise KnowledgeError(f"model {model!r} gave vectors with numbers that are none (NaN or infinite)")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return [row.tobytes() for row in (matrix / np.where(lengths, lengths, 1.0)).astype(np.float16)]
