"""What a build is given and what it reports, and what a finished generation says of itself."""

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
"""Of the directory. Another number is another program's, or a later one's."""

Splitter: TypeAlias = Callable[[Document], Sequence[Chunk]]
"""Cuts one document up; called in a thread."""


class Source(Protocol):
    """One thing to be known: a file, a page, a memory. Nothing is read before it is asked for."""

    @property
    def source(self) -> str:
        """Its name, unique among the sources of a build."""

    @property
    def size(self) -> int | None:
        """Bytes, if that is known without reading it."""

    @property
    def mtime(self) -> float | None:
        """When it was changed last, in seconds since 1970, if that is known without reading it."""

    @property
    def reader(self) -> str:
        """What its digest begins with: another reader makes another text of the same bytes. Mostly ""."""

    async def digest(self) -> str | Unreadable:
        """SHA-256 of its bytes: the same as last time means that nothing has to be done."""

    async def documents(self) -> Sequence[Document | Unreadable]:
        """What it says; most sources are one document."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a base is built.

    Attributes:
        chunk_size, chunk_overlap: the splitter's settings, in characters. If they change, all sources are split again;
            what comes out as before is not embedded again.
        language: whose words are reduced to their stems, as `en`; `none` for no language's. A base keeps its own.
        exact_below: up to so many chunks every vector is compared; beyond it, a graph finds the near ones.
        block: chunks that are embedded at once, and kept together: what a kill can cost.
    """

    chunk_size: int = 1000
    chunk_overlap: int | None = None
    language: str = "en"
    exact_below: int = 20_000
    block: int = 512

    def splits_as(self, other: Settings) -> bool:
        """Whether documents come out the same under both."""
        return (self.chunk_size, self.chunk_overlap) == (other.chunk_size, other.chunk_overlap)


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What a generation says of itself; its `meta.json`, written last.

    Attributes:
        format: see `FORMAT`.
        generation: its number.
        model: id of the model that its vectors are from.
        dimension: numbers per vector; 0 while there are none.
        settings: what it was built with.
        sources, chunks: how many it has.
        built: when, in seconds since 1970.
        files: size of each file in it, so that one cut short is noticed before it is mapped into memory.
    """

    format: int
    generation: int
    model: str
    dimension: int
    settings: Settings
    sources: int
    chunks: int
    built: float
    files: dict[str, int] = msgspec.field(default_factory=dict)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a build is.

    Attributes:
        phase: `pull` counts bytes of a model, `read` sources, whose total is unknown, `embed` and `index` chunks.
        done, total: of this phase.
        seconds_left: of the `embed` phase at its present pace; None as long as there is none.
        source: the one that was read last.
    """

    phase: Literal["pull", "read", "embed", "index"]
    done: int
    total: int | None = None
    seconds_left: float | None = None
    source: str = ""


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a build has changed.

    Attributes:
        added, changed, removed, unchanged: sources, against the generation before.
        unreadable: those that could not be read; what was known of them before is kept.
        embedded: chunks that were embedded by this build; those of an interrupted one are not counted again.
        chunks: how many the base has now.
        generation: the one that is read from now on; the one before if nothing has changed.
        seconds: how long it took.
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
