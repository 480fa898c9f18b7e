"""Files of a workflow's task, which models get as images and files; and files that a saved run writes.

A saved run (`--save DIR`) writes `DIR/<run id>/`, readable only by its owner:

    log.jsonl       every event, in order
    outcome.json    the output of `-o json`
    outputs.json    for a workflow, all messages by node
    usage.json      tokens and cost per model
    workspace/      for a workflow, the working directory of its python nodes
"""

from __future__ import annotations

import contextlib
import glob
import json
import mimetypes
import os
from collections.abc import Iterable, Iterator, Sequence
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
"""Maximum size of an attachment in bytes."""


def attached(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Return absolute paths of attachments.

    Raises:
        UsageError: a file does not exist or is too large, or two files have the same name.
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
    """Return the initial message of a workflow.

    Raises:
        UsageError: a file cannot be read.
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
    if len(data) > LARGEST:  # The file grew since it was checked, or is a device without a size.
        raise _too_large(path)
    kind = image_type(data) or kind
    if kind.startswith("image/"):
        return ImagePart(media_type=kind, data=data)
    return FilePart(name=path.name, data=data, media_type=kind)


def parts_of(paths: Iterable[Path]) -> tuple[Part, ...]:
    """Return files as parts of a prompt: images as image parts. Blocks.

    Raises:
        UsageError: a file cannot be read, or is too large.
    """
    return tuple(map(_part, paths))


def images_in(paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[ImagePart, ...]]:
    """Return the paths that are not image files, and the image files as parts. Globs are expanded. Blocks.

    Raises:
        UsageError: an image cannot be read, or is too large.
    """
    left: list[str] = []
    images: list[ImagePart] = []
    for text in _spelled_out(paths):
        try:
            path = Path(text).expanduser()
            kind = mimetypes.guess_type(path.name)[0] or ""
            is_image = path.is_file() and (kind in _SHOWN or (not path.suffix and bool(image_type(_head(path)))))
        except (OSError, RuntimeError, ValueError):  # Too long, no such home, or a zero byte: no file, and so no image.
            is_image = False
        part = _part(path) if is_image else None
        if isinstance(part, ImagePart):
            images.append(part)
        else:
            left.append(text)
    return tuple(left), tuple(images)


def _spelled_out(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths. A glob that matches an image is replaced by its matches."""
    for text in paths:
        found = []
        if any(sign in text for sign in "*?[") and "://" not in text and not text.startswith("`"):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                found = sorted(glob.glob(str(Path(text).expanduser()), recursive=True))  # noqa: PTH207 - absolute, too
        yield from found if any(mimetypes.guess_type(each)[0] in _SHOWN for each in found) else [text]


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")


def _too_large(path: str | os.PathLike[str]) -> UsageError:
    return UsageError(f"{path} is larger than the {LARGEST // 1024 // 1024} MiB that an attachment may have")


class Saved:
    """Directory of a saved run. A write that fails ends the saving, never the run.

    Args:
        again: the directory may exist already, from an earlier incarnation of the run.

    Attributes:
        error: reason why the saved run is incomplete, or None.

    Raises:
        UsageError: the directory cannot be created.
    """

    def __init__(self, directory: Path, *, again: bool = False) -> None:
        self.directory = directory.absolute()
        self.error: str | None = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=again)
            self._log = (self.directory / "log.jsonl").open("ab", buffering=0)  # unbuffered: a kill loses no event
        except OSError as error:
            raise UsageError(f"the run can't be saved to {self.directory}: {error.strerror or error}") from error

    @property
    def workspace(self) -> Path:
        """Working directory of python nodes."""
        return self.directory / "workspace"

    def on_event(self, event: Event) -> None:
        """Append the event to the log; a failed write sets `error` and ends the logging."""
        if self.error is not None:
            return
        try:
            data = encode(event)
        # Half of a surrogate pair, from a file name or a model: only an escaped form can be written.
        except UnicodeEncodeError:
            data = json.dumps(to_wire(event), default=str).encode()
        rest = memoryview(data + b"\n")
        try:
            while rest:
                rest = rest[self._log.write(rest) :]
        except OSError as error:
            self._failed(error)

    def keep(self, outcome: Outcome, outputs: dict[str, list[Message]] | None) -> None:
        """Write the outcome, the usage, and for a workflow the messages by node; a failed write sets `error`."""
        wire = outcome.to_wire()
        self._write("outcome.json", wire)
        self._write("usage.json", wire["usage"])
        if outputs is not None:
            self._write("outputs.json", msgspec.to_builtins(outputs))

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _write(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
        try:
            (self.directory / name).write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.error = self.error or f"the run could not be saved to {self.directory}: {error.strerror or error}"
