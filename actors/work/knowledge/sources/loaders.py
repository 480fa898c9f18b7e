"""Loaders: commands of `document_loaders` that make text of what we can't read ourselves.

    document_loaders:
      pdf: pdftotext $1 -
      docx: pandoc --to plain $1 -o $2
      git: sh -c 'yek "$1" --json | jq "map({path: .filename, contents: .content})"'

`$1` is the input, `$2` a file for the output, which is stdout without it. There is no shell in between. Where the
command is one itself (`sh -c`), it gets the input as its own `$1`, rather than a script with a stranger's file name in
the middle of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol.decoding import decode_json
from .....protocol.errors import ConfigError, ProcessError
from .....protocol.json_values import UNREADABLE
from .....protocol.knowledge import Document, Unreadable
from .....protocol.references import expanded
from ....io import temporary
from ...sandbox.current import sandboxed
from ..reading.bounds import TOO_MUCH, CantRead
from ..reading.read import Raw
from .found import Finding, Found, SourceContext, held

if TYPE_CHECKING:
    from .gather import File

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))


class _Item(msgspec.Struct):
    """One document of a loader that prints a list."""

    path: str
    contents: str = ""
    text: str = ""


async def loaded(context: SourceContext, name: str, target: str, source: str) -> list[Finding]:
    """What a loader makes of something that is no single file: a directory, a URL, a name only it knows.

    Args:
        name: the loader's.
        target: its `$1`.
        source: how the outcome is called, or what goes before the names in a list that it prints.
    """
    try:
        data = await output_of(context, name, context.settings.loaders[name], target)
        raws = await trio.to_thread.run_sync(_listed, data, source, limiter=context.limiter)
    except CantRead as error:
        return [Unreadable(source=source, reason=str(error))]
    if raws is None:
        return [await held(context, Raw(source=source, data=data, path="loaded.md"))]
    return [await held(context, raw) for raw in raws]


async def loaded_bytes(context: SourceContext, name: str, raw: Raw) -> Finding:
    """What a loader makes of a page that has come."""
    with _temporary(f"input.{name}") as file:
        await trio.to_thread.run_sync(file.write_bytes, raw.data, limiter=context.limiter)
        try:
            data = await output_of(context, name, context.settings.loaders[name], str(file))
        except CantRead as error:
            return Unreadable(source=raw.source, reason=str(error))
    return await held(context, Raw(source=raw.source, data=data, path="loaded.txt"))


@final
class LoadedFile(Found):
    """A file that a loader reads. Its digest takes in the command, for another command makes another text."""

    def __init__(self, context: SourceContext, name: str, file: File) -> None:
        super().__init__(file.source, size=file.size, mtime=file.mtime)
        self._context = context
        self._name = name
        self._command = context.settings.loaders[name]
        self._file = file
        self.reader = f"{hashlib.sha256(self._command.encode()).hexdigest()[:16]}:"

    async def digest(self) -> str | Unreadable:
        """Of the command and the file."""
        digest = await self._file.digest()
        return digest if isinstance(digest, Unreadable) else f"{self.reader}{digest}"

    async def _documents(self) -> Sequence[Document]:
        digest = await self.digest()
        if isinstance(digest, Unreadable):
            raise CantRead(digest.reason)
        data = await output_of(self._context, self._name, self._command, self._file.path)
        contents = await self._context.read(Raw(source=self.source, data=data, path="loaded.txt"))
        return [msgspec.structs.replace(document, digest=digest) for document in contents.documents]


async def output_of(context: SourceContext, name: str, command: str, target: str) -> bytes:
    """Run a loader and take what it makes.

    Raises:
        CantRead: it can't be started, fails, takes too long or makes too much.
    """
    with _temporary("output") as output:
        vault, words = context.settings.vault, partial(arguments, context, name, command, target, str(output))
        try:
            argv, into_file = words() if vault is None else await vault.ready(words)
        except ConfigError as error:  # of the vault
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
    """The command's words with everything in place, and whether it writes to the file.

    Raises:
        CantRead: it is no command that could be run.
    """

    def missing(reference: str, secret: str) -> None:
        is_secret = vault is not None and reference.startswith("{{")
        why = vault.why_missing(secret) if vault is not None and is_secret else "which is not set"
        raise CantRead(f"its loader '{name}' refers to {reference}, {why}")

    vault = context.settings.vault
    try:
        words = [expanded(word, context.environ, missing, vault) for word in shlex.split(command)]
    except ValueError as error:
        raise CantRead(f"its loader '{name}' is no command: {error}") from error
    if not any("$1" in word for word in words):
        raise CantRead(f"its loader '{name}' does not say where its input goes; write $1 into the command")
    into_file = any("$2" in word for word in words)
    if PurePath(words[0]).name in _SHELLS and "-c" in words:
        return [*words, "callboard-loader", target, output], into_file
    return [word.replace("$2", output).replace("$1", target) for word in words], into_file


@contextlib.contextmanager
def _temporary(name: str) -> Iterator[Path]:
    with temporary.directory("loader-") as directory:
        yield directory / name


def _listed(data: bytes, source: str) -> list[Raw] | None:
    if data[:100].lstrip()[:1] != b"[":
        return None
    try:
        items = decode_json(data, list[_Item])
    except UNREADABLE:
        return None
    return [
        Raw(
            source=_named(item.path, source),
            data=(item.contents or item.text).encode("utf-8", "replace"),
            path=item.path,
        )
        for item in items
    ]


def _named(path: str, source: str) -> str:
    """A document's name: a URL is one by itself, a path is one below what was loaded."""
    return path if "://" in path or not path else f"{source.rstrip('/')}/{path.removeprefix('./').lstrip('/')}"
