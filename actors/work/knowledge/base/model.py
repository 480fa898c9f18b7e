"""Inputs and reports of a build, and metadata of a finished generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from .....protocol.errors import KnowledgeError
from .....protocol.knowledge import Chunk, Document, Unreadable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32]
    Halves: TypeAlias = NDArray[np.float16]
    Numbers: TypeAlias = NDArray[np.int64]

FORMAT = 1
"""Format of the directory. A directory with another number is from another version or program."""

Splitter: TypeAlias = Callable[[Document], Sequence[Chunk]]
"""Splits one document into chunks; called in a thread."""


class KnowledgeSource(Protocol):
    """A source of documents: a file, a page, a memory. It is read only on demand."""

    @property
    def source(self) -> str:
        """Name, unique among the sources of a build."""

    @property
    def size(self) -> int | None:
        """Size in bytes, if it is known without reading the source."""

    @property
    def mtime(self) -> float | None:
        """Time of the last change, in seconds since 1970, if it is known without reading the source."""

    @property
    def reader(self) -> str:
        """Prefix of its digest: another reader makes another text of the same bytes. Mostly ""."""

    async def digest(self) -> str | Unreadable:
        """Return `reader` followed by the SHA-256 of the bytes, or a report if they can't be read.

        A source with an unchanged digest is not split again.
        """

    async def documents(self) -> Sequence[Document | Unreadable]:
        """Return the documents of the source, mostly one, and a report for each one that can't be read."""


class BaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with which a base is built: chunk sizes, language, and the number of chunks that are compared exactly.

    Attributes:
        chunk_size, chunk_overlap: settings of the splitter, in characters; an overlap of None is a twentieth of the
            size. If they change, all sources are split again; unchanged chunks are not embedded again.
        language: language whose words are reduced to their stems, such as `en`; `none` for no stemming. It is fixed
            when a base is created.
        exact_below: up to this many chunks, every vector is compared; above it, a graph finds the nearest ones.
        block: chunks that are embedded and stored together; a kill can cost this many.
    """

    chunk_size: int = 1000
    chunk_overlap: int | None = None
    language: str = "en"
    exact_below: int = 20_000
    block: int = 512

    def splits_as(self, other: BaseSettings) -> bool:
        """Return whether both settings split documents in the same way."""
        return (self.chunk_size, self.chunk_overlap) == (other.chunk_size, other.chunk_overlap)


class GenerationMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a generation: its `meta.json`, which is written last.

    Attributes:
        format: see `FORMAT`.
        generation: its number.
        model: id of the embedding model.
        dimension: numbers per vector; 0 while there are none.
        settings: settings of its build.
        sources, chunks: their number.
        built: time of the build, in seconds since 1970.
        files: size of each file, so that a truncated file is noticed before it is mapped into memory.
    """

    format: int
    generation: int
    model: str
    dimension: int
    settings: BaseSettings
    sources: int
    chunks: int
    built: float
    files: dict[str, int] = msgspec.field(default_factory=dict)


class BuildProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a build.

    Attributes:
        phase: `pull` counts bytes of a model, `read` sources, whose total is unknown, `embed` and `index` chunks.
        done, total: counts of this phase.
        seconds_left: estimate for the `embed` phase from its pace so far; None until there is one.
        source: the source that was read last.
    """

    phase: Literal["pull", "read", "embed", "index"]
    done: int
    total: int | None = None
    seconds_left: float | None = None
    source: str = ""


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """Changes made by a build.

    Attributes:
        added, changed, removed, unchanged: number of sources, compared with the previous generation.
        unreadable: sources that could not be read; their previous content is retained.
        embedded: chunks embedded by this build, without the chunks of an interrupted one.
        chunks: chunks in the base now.
        generation: the current generation; the previous one if nothing has changed.
        seconds: duration of the build.
    """

    added: int
    changed: int
    removed: int
    unchanged: int
    unreadable: tuple[Unreadable, ...]
    embedded: int
    chunks: int
    generation: int
    seconds: float


def embedded_text(chunk: Chunk) -> str:
    """Return the text of a chunk that models receive: its headings, which often name its subject, and its text."""
    return "\n".join((" > ".join(chunk.heading), chunk.text)) if chunk.heading else chunk.text


def split_up(
    splitter: Splitter, found: Sequence[Document | Unreadable]
) -> tuple[list[tuple[Document, Sequence[Chunk]]], list[Unreadable]]:
    """Split documents into chunks. Return the documents with their chunks, and the unreadable ones."""
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
    """Return whether the text can be encoded as UTF-8. File names may contain lone surrogates, which can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def no_unicode(name: str) -> Unreadable:
    """Return the report about a source whose name or text can't be encoded."""
    shown = name.encode(errors="backslashreplace").decode()
    return Unreadable(source=shown, reason="the name or the text of the source is not valid Unicode")


def halves(matrix: Floats, rows: int, dimension: int, model: str) -> list[bytes]:
    """Return each vector, scaled to length 1, as the bytes of 16 bit floats.

    Raises:
        KnowledgeError: the shape of the matrix is wrong, or it contains NaN or infinity.
    """
    import numpy as np

    if matrix.ndim != 2 or matrix.shape[0] != rows or not matrix.shape[1]:
        raise KnowledgeError(f"model {model!r} returned an array of shape {matrix.shape} for {rows} texts")
    if dimension and matrix.shape[1] != dimension:
        raise KnowledgeError(
            f"model {model!r} returns vectors of {matrix.shape[1]} numbers, and this knowledge base has "
            f"vectors of {dimension}: the name now refers to another model; rebuild the base"
        )
    if not np.isfinite(matrix).all():
        raise KnowledgeError(
            f"model {model!r} returned vectors with values that are not finite numbers (NaN or infinity)"
        )
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return [row.tobytes() for row in (matrix / np.where(lengths, lengths, 1.0)).astype(np.float16)]
