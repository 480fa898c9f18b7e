"""Loaders: commands of `document_loaders` that convert other formats to text.

    document_loaders:
      pdf: pdftotext $1 -
      docx: pandoc --to plain $1 -o $2
      git: sh -c 'yek "$1" --json | jq "map({path: .filename, contents: .content})"'

`$1` is the input, and `$2` a file for the output; without `$2`, the output is stdout. No shell is involved. If the
command itself is a shell (`sh -c`), it gets the input as its own `$1`. Inserting a file name of unknown origin into the
script would allow code injection.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import final

import msgspec
import trio

from .....protocol.decoding import decode_json
from .....protocol.environment import expanded
from .....protocol.errors import ConfigError, ProcessError
from .....protocol.json_values import UNREADABLE
from .....protocol.knowledge import Document, Unreadable
from ....io import temporary
from ...sandbox.run_sandbox import sandboxed
from ..reading.limits import TOO_MUCH, CantRead
from ..reading.read import RawDocument
from .found import Finding, FoundSource, SourceContext, held
from .walk import DiskFile

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))


class _Item(msgspec.Struct):
    """Document of a loader that prints a list."""

    path: str
    contents: str = ""
    text: str = ""


async def loaded(context: SourceContext, name: str, target: str, source: str) -> list[Finding]:
    """Return the output of a loader for a target that is not a single file: a directory, a URL, or a name of its own.

    Args:
        name: name of the loader.
        target: its `$1`.
        source: name of the result, or prefix of the names in a printed list.
    """
    try:
        data = await output_of(context, name, context.settings.loaders[name], target)
        raws = await trio.to_thread.run_sync(_listed, data, source, limiter=context.limiter)
    except CantRead as error:
        return [Unreadable(source=source, reason=str(error))]
    if raws is None:
        return [await held(context, RawDocument(source=source, data=data, path="loaded.md"))]
    return [await held(context, raw) for raw in raws]


async def loaded_bytes(context: SourceContext, name: str, raw: RawDocument) -> Finding:
    """Return the output of a loader for a fetched page."""
    with _temporary(f"input.{name}") as file:
        await trio.to_thread.run_sync(file.write_bytes, raw.data, limiter=context.limiter)
        try:
            data = await output_of(context, name, context.settings.loaders[name], str(file))
        except CantRead as error:
            return Unreadable(source=raw.source, reason=str(error))
    return await held(context, RawDocument(source=raw.source, data=data, path="loaded.txt"))


@final
class LoadedFile(FoundSource):
    """File that a loader reads. Its digest includes the command, because another command makes another text."""

    def __init__(self, context: SourceContext, name: str, file: DiskFile) -> None:
        super().__init__(file.source, size=file.size, mtime=file.mtime)
        self._context = context
        self._name = name
        self._command = context.settings.loaders[name]
        self._file = file
        self.reader = f"{hashlib.sha256(self._command.encode()).hexdigest()[:16]}:"

    async def digest(self) -> str | Unreadable:
        """Return the checksum of the command and the file."""
        digest = await self._file.digest()
        return digest if isinstance(digest, Unreadable) else f"{self.reader}{digest}"

    async def _documents(self) -> Sequence[Document]:
        digest = await self.digest()
        if isinstance(digest, Unreadable):
            raise CantRead(digest.reason)
        data = await output_of(self._context, self._name, self._command, self._file.path)
        contents = await self._context.read(RawDocument(source=self.source, data=data, path="loaded.txt"))
        return [msgspec.structs.replace(document, digest=digest) for document in contents.documents]


async def output_of(context: SourceContext, name: str, command: str, target: str) -> bytes:
    """Run a loader and return its output.

    Raises:
        CantRead: the loader can't be started, fails, takes too long or prints too much.
    """
    with _temporary("output") as output:
        vault, words = context.settings.vault, partial(arguments, context, name, command, target, str(output))
        try:
            argv, into_file = words() if vault is None else await vault.ready(words)
        except ConfigError as error:  # from the vault
            raise CantRead(f"its loader '{name}': {error}") from error
        tool, seconds = f"loader-{name}", context.settings.loader_seconds
        try:
            confinement = await sandboxed(context.me, tool, writes=[output.parent], shows=[context.base / target])
            printed = await context.printed(argv, tool, seconds=seconds, confinement=confinement)
        except (CantRead, ProcessError) as error:
            raise CantRead(f"its loader '{name}': {error}") from error
        if not into_file:
            return printed
        if not output.is_file() or output.stat().st_size > context.settings.bounds.text:
            raise CantRead(f"its loader '{name}' left {TOO_MUCH if output.is_file() else 'no output file'}")
        return await trio.to_thread.run_sync(output.read_bytes, limiter=context.limiter)


def arguments(context: SourceContext, name: str, command: str, target: str, output: str) -> tuple[list[str], bool]:
    """Return the words of the command with all references replaced, and whether it writes to the output file.

    Raises:
        CantRead: the command is invalid.
    """

    def missing(reference: str, secret: str) -> None:
        is_secret = vault is not None and reference.startswith("{{")
        why = vault.why_missing(secret) if vault is not None and is_secret else "which is not set"
        raise CantRead(f"the command of its loader '{name}' refers to {reference}, {why}")

    vault = context.settings.vault
    try:
        words = [expanded(word, context.environ, missing, vault) for word in shlex.split(command)]
    except ValueError as error:
        raise CantRead(f"the command of its loader '{name}' can't be parsed: {error}") from error
    if not any("$1" in word for word in words):
        raise CantRead(f"the command of its loader '{name}' has no place for the input; write $1 into the command")
    into_file = any("$2" in word for word in words)
    # `$0` of the script, then the input and the output as `$1` and `$2`.
    if PurePath(words[0]).name in _SHELLS and "-c" in words:
        return [*words, "callboard-loader", target, output], into_file
    return [word.replace("$2", output).replace("$1", target) for word in words], into_file


@contextlib.contextmanager
def _temporary(name: str) -> Iterator[Path]:
    with temporary.directory("loader-") as directory:
        yield directory / name


def _listed(data: bytes, source: str) -> list[RawDocument] | None:
    # Cheap check, since most loaders print plain text, which may be large.
    if data[:100].lstrip()[:1] != b"[":
        return None
    try:
        items = decode_json(data, list[_Item])
    except UNREADABLE:
        return None
    return [
        RawDocument(
            source=_named(item.path, source),
            data=(item.contents or item.text).encode("utf-8", "replace"),
            path=item.path,
        )
        for item in items
    ]


def _named(path: str, source: str) -> str:
    """Return the name of a listed document: a URL as it is, a path below the loaded source."""
    return path if "://" in path or not path else f"{source.rstrip('/')}/{path.removeprefix('./').lstrip('/')}"
