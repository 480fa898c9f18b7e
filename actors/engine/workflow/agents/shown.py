"""What a function's result shows beside its text: texts, images and files, as a model can be given them.

Text files are text. PDFs and images go as they are. Anything else shows its name and size, since what models take
of it differs too much.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from .....protocol.chat import FilePart, ImagePart, Part, TextPart
from .....protocol.errors import ToolFailed
from ....work.models.codec import file_as_text
from ....work.tools.tool import Shown

LARGEST = 20 * 1024 * 1024
"""Bytes of one file; what providers take is less."""

MOST = 20
"""Files of one result."""


class _Written(msgspec.Struct, frozen=True):
    """A part as the function's process writes it: `text`, or a file."""

    text: str = ""
    path: str = ""
    name: str = ""
    media_type: str = ""


def shown(file: Path) -> Shown | None:
    """The parts that stand in a file; None if there are none.

    Raises:
        ToolFailed: one of them can't be read.
    """
    try:
        written = msgspec.json.decode(file.read_bytes(), type=tuple[_Written, ...])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ToolFailed(f"what the function shows can't be read: {error}") from error
    if sum(bool(each.path) for each in written) > MOST:
        raise ToolFailed(f"the function shows more than {MOST} files")
    return Shown(tuple(_part(each) for each in written)) if written else None


def _part(written: _Written) -> Part:
    if not written.path:
        return TextPart(written.text)
    file = Path(written.path)
    try:
        size = file.stat().st_size
        if not file.is_file() or size > LARGEST:
            return TextPart(f"[file: {written.name}, {size} bytes; it is not shown]")
        data = file.read_bytes()
    except OSError as error:
        raise ToolFailed(f"the file {file} can't be shown: {error.strerror}") from error
    kind = written.media_type
    if kind.startswith("image/") and kind != "image/svg+xml":
        return ImagePart(media_type=kind, data=data)
    if kind == "application/pdf":
        return FilePart(name=written.name, data=data, media_type=kind)
    if _is_text(data):
        return TextPart(file_as_text(FilePart(name=written.name, data=data)))
    return TextPart(f"[file: {written.name}, {kind}, {size} bytes]")


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
