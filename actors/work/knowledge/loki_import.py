"""Import of Loki's knowledge files: the file becomes a knowledge base, and its vectors are reused.

The file is passed to `build` as if it were the sources themselves. Each of its texts is a source, its pieces are the
chunks, and the embedder looks for vectors in the file first. So an import is atomic, locked and resumable like every
build. Only pieces without a valid vector are embedded, by the model of the file, which queries need anyway.

Sources get the names that `sources.gather` would give them, even if the agent's directory has been moved. If the file
of a text is unchanged, the lines of its pieces are found in it, and the next build does not read it again. Pages are
read again by the next build, since only the checksum of their text is known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import trio

from ....protocol.errors import ConfigError, CredentialsError, KnowledgeError, Unsupported
from ....protocol.events import Warned
from ....protocol.knowledge import Chunk, Document, Unreadable
from ..models.call import Emitter
from .base.build import build
from .base.model import BaseSettings, BuildProgress, BuildReport, KnowledgeSource
from .loki_file import LokiText, Whole, read_whole
from .reading import kinds
from .recipe import Recipe, encoded
from .sources.found import FetchedSource
from .split.cutter import LineIndex
from .split.split import Ids

if TYPE_CHECKING:
    from ....supervisors.actor import Actor
    from .base.model import Floats
    from .embed.embedder import Embedder
    from .embed.embedders import Embedders

ANEW = "--rebuild-kb"
"""Option that builds a base from the documents themselves instead of Loki's file."""

READ = 50 * 1024 * 1024
"""Most bytes of a source that are read to find the lines of its pieces."""


async def imported(
    me: Actor,
    recipe: Recipe,
    embedders: Embedders,
    *,
    on_progress: Callable[[BuildProgress], None] | None = None,
    wait: float = 0.0,
) -> BuildReport:
    """Build a base from `recipe.upstream` in `recipe.directory`. Unset fields of the recipe are filled from that file.

    Args:
        me: emits a warning if vectors had to be computed again.
        embedders: must have the model of the file.
        wait: seconds to wait for another builder.

    Raises:
        KnowledgeError: the file can't be read, or its model is not available.
        KnowledgeBusy: another builder holds the lock.
    """
    assert recipe.upstream is not None
    try:
        whole = await trio.to_thread.run_sync(read_whole, recipe.upstream)
    except KnowledgeError as error:
        raise KnowledgeError(f"{recipe.what}: {error}; move it away, or rebuild the base with {ANEW}") from error
    head = whole.head
    try:
        embedder = await embedders.ready(head.embedding_model, batch=head.batch_size)
    except (ConfigError, CredentialsError, Unsupported) as error:
        raise KnowledgeError(
            f"{recipe.what}: {recipe.upstream} was built by Loki with '{head.embedding_model}', which queries need as"
            f" well: {error}; or rebuild it with another model: {ANEW}"
        ) from error
    filled = msgspec.structs.replace(
        head.filling(recipe),
        embedding_model=head.embedding_model,
        chunk_size=head.chunk_size,
        chunk_overlap=head.chunk_overlap,
    )
    sources = await trio.to_thread.run_sync(_sources, whole, recipe, recipe.upstream)
    if lost := sum(chunk.text not in source.vectors for source in sources for chunk in source.chunks):
        message = f"{recipe.upstream}: {lost} of its pieces have no vector that makes sense, and are embedded again"
        me.emit(Warned(code="knowledge_vectors", message=message, node=recipe.node))
    taken = _Taken(embedder, sources)
    # Reversed: of two texts with one name, `build` uses the first.
    by_name = {source.source: source.chunks for source in reversed(sources)}
    report = await build(
        me,
        recipe.directory,
        _each(sources),
        embedder=taken,
        splitter=lambda document: by_name[document.source],
        settings=BaseSettings(
            chunk_size=head.chunk_size,
            chunk_overlap=head.chunk_overlap,
            language=recipe.language or BaseSettings().language,
        ),
        recipe=encoded(filled),
        on_progress=on_progress,
        wait=wait,
    )
    return msgspec.structs.replace(report, embedded=taken.made)


async def _each(sources: Sequence[_Text]) -> AsyncIterator[KnowledgeSource | Unreadable]:
    for source in sources:
        yield source


@final
class _Text(FetchedSource):
    """Text of the file as a source of the base: one document, represented by its chunks only.

    Attributes:
        chunks: its pieces.
        vectors: vectors of the pieces, by text.
    """

    def __init__(self, source: str, origin: _Origin, chunks: Sequence[Chunk], vectors: Mapping[str, bytes]) -> None:
        document = Document(source=source, text="", kind=kinds.by_name(source))
        super().__init__(source, origin.digest, [document], origin.size, origin.mtime)
        self.chunks = chunks
        self.vectors = vectors


@final
class _Taken:
    """Embedder that has most vectors already, by text.

    Attributes:
        made: number of texts that it had to embed.
    """

    def __init__(self, embedder: Embedder, sources: Sequence[_Text]) -> None:
        self.model = embedder.model
        self._embedder = embedder
        self._vectors = {text: vector for source in sources for text, vector in source.vectors.items()}
        first = next(iter(self._vectors.values()), b"")
        self.dimension = len(first) // 2 or embedder.dimension
        self.made = 0

    async def embed(self, me: Emitter, texts: Sequence[str], *, query: bool = False) -> Floats:
        import numpy as np

        missing = [text for text in texts if text not in self._vectors]
        self.made += len(missing)
        made = iter(await self._embedder.embed(me, missing, query=query) if missing else ())
        rows = [np.frombuffer(known, "<f2") if (known := self._vectors.get(text)) else next(made) for text in texts]
        if len({len(row) for row in rows}) > 1:
            raise KnowledgeError(
                f"model {self.model!r} returns vectors of another length than those in Loki's file: another model"
                f" has that name now; rebuild the base with {ANEW}"
            )
        return np.stack(rows).astype(np.float32)


# --- contents of the file as sources ----------------------------------------------------------------------------


class _Origin(msgspec.Struct, frozen=True):
    """Origin of a text: its checksum, the text that was split, and the stamp of its file if that is unchanged."""

    digest: str
    text: str
    size: int | None = None
    mtime: float | None = None


def _sources(whole: Whole, recipe: Recipe, file: Path) -> list[_Text]:
    """Return all texts with content, in order. Reads the files of their origin; blocks."""
    written = file.stat().st_mtime
    found = []
    for number, text in whole.texts.items():
        trio.from_thread.check_cancelled()
        place = _place(text.path, recipe)
        name = _name(place, recipe) if place is not None else text.path
        origin = _origin(text, place, written)
        rows = (whole.vectors.get((number, piece)) for piece in range(len(text.pieces)))
        vectors = {piece: row for piece, row in zip(text.pieces, rows, strict=True) if row is not None}
        if chunks := _chunks(name, text, origin.text):
            found.append(_Text(name, origin, chunks, vectors))
    return found


def _chunks(name: str, text: LokiText, whole: str) -> list[Chunk]:
    lines, ids, after = LineIndex(whole), Ids(), 0
    chunks = []
    for piece in text.pieces:
        if not piece.strip():
            continue
        trio.from_thread.check_cancelled()
        start = whole.find(piece, after)
        # A piece that is not found in the text gets the position at which the search began.
        start, after = (after, after) if start < 0 else (start, start + 1)
        id = ids.of(name, (), piece)
        chunks.append(Chunk(id=id, source=name, text=piece, lines=lines.of(start, start + len(piece))))
    return chunks


def _origin(text: LokiText, place: Path | None, written: float) -> _Origin:
    """Return the origin of a text, as far as it still exists.

    Args:
        written: time when Loki wrote its file. An older file is the one that Loki has read, even if the checksum of its
            text does not match its bytes (a PDF).
    """
    lost = _Origin(text.hash, "\n".join(text.pieces))
    try:
        if place is None or (status := place.stat()).st_size > READ:
            return lost
        data = place.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest == text.hash:
            return _Origin(digest, data.decode(), status.st_size, status.st_mtime)
    except (OSError, UnicodeDecodeError):
        return lost
    return _Origin(digest, lost.text, status.st_size, status.st_mtime) if status.st_mtime <= written else lost


def _place(path: str, recipe: Recipe) -> Path | None:
    if not path.startswith("/"):
        return None
    place, base = Path(os.path.normpath(path)), _base(recipe)
    if not place.is_relative_to(base) and base.name in place.parts:  # the agent was moved together with its documents
        at = len(place.parts) - place.parts[::-1].index(base.name)
        moved = base.joinpath(*place.parts[at:])
        if moved.is_file():
            return moved
    return place


def _name(place: Path, recipe: Recipe) -> str:
    base = _base(recipe)
    named_from_here = any(document.startswith("..") for document in recipe.documents)
    return os.path.relpath(place, base) if place.is_relative_to(base) or named_from_here else str(place)


def _base(recipe: Recipe) -> Path:
    return Path(os.path.normpath(recipe.base.absolute()))
