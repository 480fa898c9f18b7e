"""Import of Loki's knowledge files: the file becomes a knowledge base, and its vectors are reused.

Such a file is a `<node-id>.yaml`, an agent's `rag.yaml`, or one of `rags/`:

    embedding_model: openai:text-embedding-3-small
    chunk_size: 1500
    chunk_overlap: 75
    reranker_model: null
    top_k: 5
    batch_size: 100
    next_file_id: 1
    document_paths: [/home/me/notes/**]
    files:
      0: {hash: <SHA-256 of the text>, path: /home/me/notes/a.md, documents: [{page_content: ..., metadata: {}}, ...]}
    vectors:
      0-0: <base64 of 32 bit floats, little end first>

The keys of `vectors` are file and piece. Such a file may have hundreds of megabytes. So it is read as a stream of YAML
events, without building a tree, and each vector is reduced to half precision at once. Content that Loki never writes is
refused, or skipped without storing it: an alias, another structure, a file without end.

The file is passed to `build` as if it were the sources themselves. Each of its texts is a source, its pieces are the
chunks, and the embedder looks for vectors in the file first. So an import is atomic, locked and resumable like every
build. Only pieces without a valid vector are embedded, by the model of the file, which queries need anyway.

Sources get the names that `sources.gather` would give them, even if the agent's directory has been moved. If the file
of a text is unchanged, the lines of its pieces are found in it, and the next build does not read it again. Pages are
read again by the next build, since only the checksum of their text is known.
"""

from __future__ import annotations

import binascii
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, final

import msgspec
import trio
import yaml

from ....protocol.decoding import convert
from ....protocol.errors import ConfigError, CredentialsError, KnowledgeError, Unsupported
from ....protocol.events import Warned
from ....protocol.knowledge import Chunk, Document, Unreadable
from ..models.call import Emitter
from .base.build import build
from .base.model import BaseSettings, BuildProgress, BuildReport, KnowledgeSource
from .reading import kinds
from .recipe import Recipe, encoded
from .sources.found import FetchedSource
from .split import Ids, LineIndex

if TYPE_CHECKING:
    from ....supervisors.actor import Actor
    from .base.model import Floats
    from .embed.embedder import Embedder
    from .embed.embedders import Embedders
    from .recipe import Recipe


T = TypeVar("T")


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
        raise KnowledgeError(f"{recipe.what}: {error}; move the file away, or rebuild the base with {ANEW}") from error
    head = whole.head
    try:
        embedder = await embedders.ready(head.embedding_model, batch=head.batch_size)
    except (ConfigError, CredentialsError, Unsupported) as error:
        raise KnowledgeError(
            f"{recipe.what}: {recipe.upstream} was built by Loki with '{head.embedding_model}', so queries "
            f"need the same model: {error}; or rebuild the base with another model: {ANEW}"
        ) from error
    filled = msgspec.structs.replace(
        head.filling(recipe),
        embedding_model=head.embedding_model,
        chunk_size=head.chunk_size,
        chunk_overlap=head.chunk_overlap,
    )
    sources = await trio.to_thread.run_sync(_sources, whole, recipe, recipe.upstream)
    if lost := sum(chunk.text not in source.vectors for source in sources for chunk in source.chunks):
        message = f"{recipe.upstream}: {lost} of its chunks have no usable vector, and are embedded again"
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
                f"model {self.model!r} returns vectors of another length than those in Loki's file, so the "
                f"name now refers to another model; rebuild the base with {ANEW}"
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


# --- Loki's file

MOST = 2 << 30
"""Most bytes that are read of a file; far more than Loki itself could load."""

_CONTENTS = ("files", "vectors")
_Parser: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_END = yaml.StreamEndEvent()


class LokiHead(msgspec.Struct, frozen=True, kw_only=True):
    """Settings at the start of a knowledge file of Loki; the names are Loki's."""

    embedding_model: str
    chunk_size: int
    chunk_overlap: int
    reranker_model: str | None = None
    top_k: int = 5
    batch_size: int | None = None
    document_paths: tuple[str, ...] = ()

    def filling(self, recipe: Recipe) -> Recipe:
        """Return the recipe with unset fields filled from this file, except the model, which the base determines."""
        return msgspec.structs.replace(
            recipe,
            documents=recipe.documents or self.document_paths,
            chunk_size=recipe.chunk_size or self.chunk_size,
            chunk_overlap=recipe.chunk_overlap if recipe.chunk_size else self.chunk_overlap,
            reranker_model=recipe.reranker_model or self.reranker_model,
            batch_size=recipe.batch_size or self.batch_size,
            top_k=recipe.top_k or self.top_k,
        )


class LokiText(msgspec.Struct, frozen=True):
    """Source in a knowledge file of Loki: checksum of its text, its path, and its chunks in order."""

    hash: str
    path: str
    pieces: tuple[str, ...]


class Whole(msgspec.Struct, frozen=True):
    """Complete content of a knowledge file of Loki.

    Attributes:
        texts: its sources by number.
        vectors: half precision vectors by source and piece; invalid ones and ones of an unusual length are left out.
    """

    head: LokiHead
    texts: dict[int, LokiText]
    vectors: dict[tuple[int, int], bytes]


def is_loki_file(path: Path) -> bool:
    """Return whether the path is a knowledge file of Loki, valid or broken. Blocks; call it in a thread, like all
    functions of this module.
    """
    return "embedding_model" in _inspected(path)


def read_head(path: Path) -> LokiHead | None:
    """Return the settings of a knowledge file of Loki, without reading its texts and vectors.

    None if the file is missing, broken, or of another kind.
    """
    try:
        return _made(_inspected(path), path)
    except KnowledgeError:
        return None


def read_whole(path: Path) -> Whole:
    """Return the content of a knowledge file of Loki. This takes seconds for a large file, and ends early if the caller
    is cancelled.

    Raises:
        KnowledgeError: the file can't be read, or is of another kind.
    """
    whole = _opened(path, lambda cursor: _whole(cursor, path))
    if whole is None:
        raise KnowledgeError(f"{path} is not a knowledge file of Loki: it has no `embedding_model` and chunk sizes")
    return whole


# --- the keys ---------------------------------------------------------------------------------------------------


def _inspected(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if not path.is_file():
        return values

    def read_keys(cursor: _Cursor) -> None:
        for key in cursor.pairs():
            if key in _CONTENTS:
                return
            _take(cursor, key, values)

    with suppress(KnowledgeError):
        _opened(path, read_keys)
    return values


def _whole(cursor: _Cursor, path: Path) -> Whole | None:
    values: dict[str, Any] = {}
    texts: dict[int, LokiText] = {}
    vectors: dict[tuple[int, int], bytes] = {}
    for key in cursor.pairs():
        if key == "files":
            texts = {number: _text(cursor) for number in map(_number, cursor.pairs())}
        elif key == "vectors":
            for name in cursor.pairs():
                row = _vector(cursor.scalar())
                text, _, piece = name.partition("-")
                if row is not None and text.isdecimal() and piece.isdecimal():
                    vectors[int(text), int(piece)] = row
        else:
            _take(cursor, key, values)
    head = _made(values, path)
    lengths = Counter(map(len, vectors.values()))
    # A base needs vectors of one length, so only vectors of the most frequent length are used.
    usual = max(lengths, key=lengths.__getitem__, default=0)
    sound = {key: row for key, row in vectors.items() if len(row) == usual}
    return None if head is None else Whole(head, texts, sound)


def _take(cursor: _Cursor, key: str, values: dict[str, Any]) -> None:
    if key == "document_paths":
        values[key] = list(cursor.scalars())
    elif key in LokiHead.__struct_fields__:
        values[key] = cursor.scalar()
    else:
        cursor.skip()


def _made(values: dict[str, Any], path: Path) -> LokiHead | None:
    if not {"embedding_model", "chunk_size", "chunk_overlap"} <= values.keys():
        return None
    known = {key: value for key, value in values.items() if value not in (None, "", "null", "~")}
    try:
        return convert(known, LokiHead, strict=False)
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{path} can't be read as a knowledge file of Loki: {error}") from None


def _text(cursor: _Cursor) -> LokiText:
    values: dict[str, str] = {}
    pieces: list[str] = []
    for key in cursor.pairs():
        if key == "documents":
            pieces += [_piece(cursor) for _ in cursor.items()]
        elif key in ("hash", "path"):
            values[key] = cursor.scalar()
        else:
            cursor.skip()
    return LokiText(values.get("hash", ""), values.get("path", ""), tuple(pieces))


def _piece(cursor: _Cursor) -> str:
    text = ""
    for key in cursor.pairs():
        if key == "page_content":
            text = cursor.scalar()
        else:
            cursor.skip()
    return text


def _number(key: str) -> int:
    if not key.isdecimal():
        raise ValueError(f"the key {key[:40]!r} is not the number of a file")
    return int(key)


def _vector(base64: str) -> bytes | None:
    """Return a vector in half precision, or None if it is invalid: some files were changed after Loki wrote them."""
    import numpy as np

    try:
        row = np.frombuffer(binascii.a2b_base64(base64, strict_mode=True), "<f4")
    except ValueError:
        return None
    length = float(np.linalg.norm(row.astype(np.float64))) if len(row) else 0.0
    return (row / length).astype("<f2").tobytes() if np.isfinite(length) and length > 0 else None


# --- YAML as a stream -------------------------------------------------------------------------------------------


def _opened(path: Path, read: Callable[[_Cursor], T]) -> T:
    """Call `read` with a cursor at the start of the file. Every failure becomes a KnowledgeError."""
    try:
        with path.open("rb") as file:
            return read(_Cursor(_Bounded(file)))
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise KnowledgeError(f"{path} can't be read: {error.problem or error.context}{line}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise KnowledgeError(f"{path} can't be read: {error}") from None


@final
class _Bounded:
    """File whose reading ends at `MOST` bytes, or when the caller is cancelled."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MOST

    def read(self, size: int = -1, /) -> bytes:
        trio.from_thread.check_cancelled()
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"the file is larger than {MOST >> 30} GB")
        return data


@final
class _Cursor:
    """Cursor over the events of one YAML document. After a key, the caller must consume its value."""

    def __init__(self, file: _Bounded) -> None:
        self._events: Iterator[Any] = yaml.parse(file, Loader=_Parser)
        for _ in range(3):  # skip the starts of the stream and of the document, and read the next event
            self._next: Any = next(self._events, _END)

    def _take(self) -> Any:
        event = self._next
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"the file has a YAML alias{_where(event)}, which Loki never writes")
        self._next = next(self._events, _END)
        return event

    def _is_empty(self) -> bool:
        """Consume a null scalar if it replaces a list or mapping. Return whether there was one."""
        if isinstance(self._next, yaml.ScalarEvent) and self._next.value in ("", "null", "~"):
            self._take()
            return True
        return False

    def _enter(self, start: type[Any], what: str) -> None:
        if not isinstance(self._next, start):
            raise ValueError(f"the file should have {what}{_where(self._next)}")
        self._take()

    def scalar(self) -> str:
        event = self._next
        self._enter(yaml.ScalarEvent, "a text or a number")
        value: str = event.value
        return value

    def pairs(self) -> Iterator[str]:
        if self._is_empty():
            return
        self._enter(yaml.MappingStartEvent, "a mapping")
        while not isinstance(self._next, yaml.MappingEndEvent):
            yield self.scalar()
        self._take()

    def items(self) -> Iterator[None]:
        if self._is_empty():
            return
        self._enter(yaml.SequenceStartEvent, "a list")
        while not isinstance(self._next, yaml.SequenceEndEvent):
            yield
        self._take()

    def scalars(self) -> Iterator[str]:
        for _ in self.items():
            yield self.scalar()

    def skip(self) -> None:
        depth = 0
        while True:
            event = self._take()
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if not depth:
                return


def _where(event: Any) -> str:
    return f" in line {event.start_mark.line + 1}" if event.start_mark else ""
