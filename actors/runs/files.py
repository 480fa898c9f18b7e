"""The files of a workflow's task, which models get as images and files, and those that a run leaves.

A run that is saved (`--save DIR`) leaves `DIR/<run id>/`, readable by its owner alone:

log.jsonl       every event, as it came
outcome.json    what `-o json` prints
outputs.json    per node of a workflow, all it has said
usage.json      tokens and cost per model
workspace/      of a workflow, where its python nodes have worked
"""

from __future__ import annotations

import json
import mimetypes
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.chat import FilePart, ImagePart, Part, TextPart
from ...protocol.errors import UsageError
from ...protocol.events import Event, encode, to_wire
from ...protocol.outcome import Message, Outcome
from ..io.encodings import image_type

if TYPE_CHECKING:
    from ..engine.workflow.messages import Message as Said

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


async def task_of(prompt: str, attachments: Sequence[Path]) -> tuple[Said, ...]:
    """The message that a workflow begins with.

    Raises:
        UsageError: a file can't be read.
    """
    from ..engine.workflow.messages import Message as Said

    if not attachments:
        return (Said(role="user", content=prompt),)
    text: list[Part] = [TextPart(prompt)] if prompt else []
    files = [await trio.to_thread.run_sync(_part, path) for path in attachments]
    return (Said(role="user", content=(*text, *files)),)


def _part(path: Path) -> Part:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} can't be attached: {error.strerror or error}") from error
    if len(data) > LARGEST:  # one that grows, or does not know its size
        raise _too_large(path)
    kind = image_type(data) or kind
    if kind.startswith("image/"):
        return ImagePart(media_type=kind, data=data)
    return FilePart(name=path.name, data=data, media_type=kind)


def images_in(paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[ImagePart, ...]]:
    """Those of the paths that are no image files, and the others as images. Blocks.

    Raises:
        UsageError: an image can't be read, or is too large.
    """
    left: list[str] = []
    images: list[ImagePart] = []
    for text in paths:
        try:
            path = Path(text).expanduser()
            kind = mimetypes.guess_type(path.name)[0] or ""
            is_image = path.is_file() and (kind in _SHOWN or (not path.suffix and bool(image_type(_head(path)))))
        except (OSError, RuntimeError, ValueError):  # too long, no such home, a zero byte: no file, and so no image
            is_image = False
        part = _part(path) if is_image else None
        if isinstance(part, ImagePart):
            images.append(part)
        else:
            left.append(text)
    return tuple(left), tuple(images)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")


def _too_large(path: str | os.PathLike[str]) -> UsageError:
    return UsageError(f"{path} is larger than the {LARGEST // 1024 // 1024} MiB that an attachment may have")


class Saved:
    """A run that is saved. What can't be written ends the saving, never the run.

    Args:
        again: it is there, from an earlier life of the run.

    Attributes:
        error: why it is not all there, or None.

    Raises:
        UsageError: the directory can't be made.
    """

    def __init__(self, directory: Path, *, again: bool = False) -> None:
        self.directory = directory.absolute()
        self.error: str | None = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=again)
            self._log = (self.directory / "log.jsonl").open("ab", buffering=0)  # a kill costs no event
        except OSError as error:
            raise UsageError(f"the run can't be saved to {self.directory}: {error.strerror or error}") from error

    @property
    def workspace(self) -> Path:
        """Where python nodes work."""
        return self.directory / "workspace"

    def on_event(self, event: Event) -> None:
        """Write it down."""
        if self.error is not None:
            return
        try:
            data = encode(event)
        except UnicodeEncodeError:  # half a surrogate pair, from a file name or a model: only escapes can carry it
            data = json.dumps(to_wire(event), default=str).encode()
        rest = memoryview(data + b"\n")
        try:
            while rest:
                rest = rest[self._log.write(rest) :]
        except OSError as error:
            self._failed(error)

    def keep(self, outcome: Outcome, outputs: dict[str, list[Message]] | None) -> None:
        """How it ended."""
        wire = outcome.to_wire()
        self._write("outcome.json", wire)
        self._write("usage.json", wire["usage"])
        if outputs is not None:
            self._write("outputs.json", msgspec.to_builtins(outputs))

    def close(self) -> None:
        """It is over, and so is its log."""
        self._log.close()

    def _write(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
        try:
            (self.directory / name).write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.error = self.error or f"the run could not be saved to {self.directory}: {error.strerror or error}"
