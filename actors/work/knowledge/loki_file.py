"""Loki's knowledge files: a `<node-id>.yaml`, an agent's `rag.yaml`, or one of `rags/`.

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
"""Most bytes that are read of a file; far more than Loki itself could load."""

_CONTENTS = ("files", "vectors")
_Parser: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_END = yaml.StreamEndEvent()


class LokiHead(msgspec.Struct, frozen=True, kw_only=True):
    """Settings at the start of a file; the names are Loki's."""

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
    """Source in a file: checksum of its text, its path, and its pieces in order."""

    hash: str
    path: str
    pieces: tuple[str, ...]


class Whole(msgspec.Struct, frozen=True):
    """Content of a whole file.

    Attributes:
        texts: its sources by number.
        vectors: half precision vectors by source and piece; invalid ones and ones of an unusual length are left out.
    """

    head: LokiHead
    texts: dict[int, LokiText]
    vectors: dict[tuple[int, int], bytes]


def is_loki_file(path: Path) -> bool:
    """Return whether the path is such a file, valid or broken. Blocks; call it in a thread, like all functions here."""
    return "embedding_model" in _inspected(path)


def read_head(path: Path) -> LokiHead | None:
    """Return the settings of the file, without reading its contents.

    None if the file is missing, broken, or of another kind.
    """
    try:
        return _made(_inspected(path), path)
    except KnowledgeError:
        return None


def read_whole(path: Path) -> Whole:
    """Return the content of the file. This takes seconds for a large file, and ends early if the caller is cancelled.

    Raises:
        KnowledgeError: the file can't be read, or is of another kind.
    """
    whole = _opened(path, lambda cursor: _whole(cursor, path))
    if whole is None:
        raise KnowledgeError(f"{path} is no knowledge file of Loki's: it names no `embedding_model` and sizes")
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
        raise KnowledgeError(f"{path} can't be read as a knowledge file of Loki's: {error}") from None


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
        raise ValueError(f"{key[:40]!r} is no number of a file")
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
            raise ValueError(f"it is larger than {MOST >> 30} GB")
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
            raise ValueError(f"there is an alias{_where(event)}, and Loki writes none")
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
