"""Loki's knowledge files: what is in a `<node-id>.yaml`, an agent's `rag.yaml`, or one of `rags/`.

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

The keys of `vectors` are file and piece. Such a file may have hundreds of megabytes, so it is read as a stream of
YAML's events, and no tree is made of it; vectors are cut to half precision as they come. What no such file has is
refused, or skipped without being kept: an alias, another shape, a file without end.
"""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, final

import msgspec
import trio
import yaml

from ....protocol.decoding import convert
from ....protocol.errors import KnowledgeError

if TYPE_CHECKING:
    from .recipe import Recipe

T = TypeVar("T")

MOST = 2 << 30
"""Bytes of a file that is read; far more than Loki itself could load."""

_CONTENTS = ("files", "vectors")
_Parser: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_END = yaml.StreamEndEvent()


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself before its contents; the names are Loki's."""

    embedding_model: str
    chunk_size: int
    chunk_overlap: int
    reranker_model: str | None = None
    top_k: int = 5
    batch_size: int | None = None
    document_paths: tuple[str, ...] = ()

    def filling(self, recipe: Recipe) -> Recipe:
        """The recipe with this file's word for what it does not say. The model is the base's to say."""
        return msgspec.structs.replace(
            recipe,
            documents=recipe.documents or self.document_paths,
            chunk_size=recipe.chunk_size or self.chunk_size,
            chunk_overlap=recipe.chunk_overlap if recipe.chunk_size else self.chunk_overlap,
            reranker_model=recipe.reranker_model or self.reranker_model,
            batch_size=recipe.batch_size or self.batch_size,
            top_k=recipe.top_k or self.top_k,
        )


class Text(msgspec.Struct, frozen=True):
    """One of the sources: checksum of its text, where it was, and its pieces in their order."""

    hash: str
    path: str
    pieces: tuple[str, ...]


class Whole(msgspec.Struct, frozen=True):
    """All of a file.

    Attributes:
        texts: its sources by their numbers.
        vectors: by source and piece, in half precision; only those that make sense, all of one length.
    """

    head: Head
    texts: dict[int, Text]
    vectors: dict[tuple[int, int], bytes]


def is_loki_file(path: Path) -> bool:
    """Whether there is such a file, sound or broken. Blocks for a moment: it belongs into a thread, as all here."""
    return "embedding_model" in _looked_at(path)


def read_head(path: Path) -> Head | None:
    """What the file says of itself; None if there is none, or it is broken, or of another kind. Reads no further."""
    try:
        return _made(_looked_at(path), path)
    except KnowledgeError:
        return None


def read_whole(path: Path) -> Whole:
    """All of the file, which takes seconds if it is large. It ends early if the caller gave up.

    Raises:
        KnowledgeError: it can't be read, or is one of another kind.
    """
    whole = _opened(path, lambda cursor: _whole(cursor, path))
    if whole is None:
        raise KnowledgeError(f"{path} is no knowledge file of Loki's: it names no `embedding_model` and sizes")
    return whole


# --- the keys ---------------------------------------------------------------------------------------------------


def _looked_at(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if not path.is_file():
        return values

    def look(cursor: _Cursor) -> None:
        for key in cursor.pairs():
            if key in _CONTENTS:
                return
            _take(cursor, key, values)

    with suppress(KnowledgeError):
        _opened(path, look)
    return values


def _whole(cursor: _Cursor, path: Path) -> Whole | None:
    values: dict[str, Any] = {}
    texts: dict[int, Text] = {}
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
    usual = max(lengths, key=lengths.__getitem__, default=0)
    sound = {key: row for key, row in vectors.items() if len(row) == usual}
    return None if head is None else Whole(head, texts, sound)


def _take(cursor: _Cursor, key: str, values: dict[str, Any]) -> None:
    if key == "document_paths":
        values[key] = list(cursor.scalars())
    elif key in Head.__struct_fields__:
        values[key] = cursor.scalar()
    else:
        cursor.skip()


def _made(values: dict[str, Any], path: Path) -> Head | None:
    if not {"embedding_model", "chunk_size", "chunk_overlap"} <= values.keys():
        return None
    known = {key: value for key, value in values.items() if value not in (None, "", "null", "~")}
    try:
        return convert(known, Head, strict=False)
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{path} can't be read as a knowledge file of Loki's: {error}") from None


def _text(cursor: _Cursor) -> Text:
    values: dict[str, str] = {}
    pieces: list[str] = []
    for key in cursor.pairs():
        if key == "documents":
            pieces += [_piece(cursor) for _ in cursor.items()]
        elif key in ("hash", "path"):
            values[key] = cursor.scalar()
        else:
            cursor.skip()
    return Text(values.get("hash", ""), values.get("path", ""), tuple(pieces))


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
        raise ValueError(f"{key[:40]!r} is no number of a file")
    return int(key)


def _vector(base64: str) -> bytes | None:
    """In half precision; None for one that makes no sense: not every file was left as it was written."""
    import numpy as np

    try:
        row = np.frombuffer(binascii.a2b_base64(base64, strict_mode=True), "<f4")
    except ValueError:
        return None
    length = float(np.linalg.norm(row.astype(np.float64))) if len(row) else 0.0
    return (row / length).astype("<f2").tobytes() if np.isfinite(length) and length > 0 else None


# --- YAML as a stream -------------------------------------------------------------------------------------------


def _opened(path: Path, read: Callable[[_Cursor], T]) -> T:
    """Do `read` with a cursor at the start of the file; every way it can fail is a KnowledgeError."""
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
    """A file whose reading ends at a bound, or when the caller gives up."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MOST

    def read(self, size: int = -1, /) -> bytes:
        trio.from_thread.check_cancelled()
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it is larger than {MOST >> 30} GB")
        return data


@final
class _Cursor:
    """Goes through the events of one document. A caller that gets a key takes its value next."""

    def __init__(self, file: _Bounded) -> None:
        self._events: Iterator[Any] = yaml.parse(file, Loader=_Parser)
        for _ in range(3):  # the beginnings of the stream and of the document; then its first
            self._next: Any = next(self._events, _END)

    def _take(self) -> Any:
        event = self._next
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"there is an alias{_where(event)}, and Loki writes none")
        self._next = next(self._events, _END)
        return event

    def _is_empty(self) -> bool:
        """Whether a scalar stands where a list or mapping could, and says that there is none."""
        if isinstance(self._next, yaml.ScalarEvent) and self._next.value in ("", "null", "~"):
            self._take()
            return True
        return False

    def _enter(self, start: type[Any], what: str) -> None:
        if not isinstance(self._next, start):
            raise ValueError(f"there should be {what}{_where(self._next)}")
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
