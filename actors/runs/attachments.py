"""The files of a workflow's task: models get them as images and files, and the workspace gets copies."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ...protocol.chat import FilePart, ImagePart, Part, TextPart
from ...protocol.errors import UsageError

if TYPE_CHECKING:
    from ..engine.workflow.messages import Message

LARGEST = 32 * 1024 * 1024
"""Bytes of one of them."""


def attached(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The files.

    Raises:
        UsageError: one of them is not there, too large, or has the name of another.
    """
    found: dict[str, Path] = {}
    for each in paths:
        path = Path(each).expanduser().absolute()
        if not path.is_file():
            raise UsageError(f"there is no file {each} to attach")
        if path.stat().st_size > LARGEST:
            raise _too_large(each)
        if path.name in found:
            raise UsageError(f"two attachments are called '{path.name}': {found[path.name]} and {path}")
        found[path.name] = path
    return tuple(found.values())


async def task_of(prompt: str, attachments: Sequence[Path]) -> tuple[Message, ...]:
    """The message that a workflow begins with.

    Raises:
        UsageError: a file can't be read.
    """
    from ..engine.workflow.messages import Message

    if not attachments:
        return (Message(role="user", content=prompt),)
    text: list[Part] = [TextPart(prompt)] if prompt else []
    files = [await trio.to_thread.run_sync(_part, path) for path in attachments]
    return (Message(role="user", content=(*text, *files)),)


def _part(path: Path) -> Part:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} can't be attached: {error.strerror or error}") from error
    if len(data) > LARGEST:  # one that grows, or does not know its size
        raise _too_large(path)
    if kind.startswith("image/"):
        return ImagePart(media_type=kind, data=data)
    return FilePart(name=path.name, data=data, media_type=kind)


def _too_large(path: str | os.PathLike[str]) -> UsageError:
    return UsageError(f"{path} is larger than the {LARGEST // 1024 // 1024} MiB that an attachment may have")
