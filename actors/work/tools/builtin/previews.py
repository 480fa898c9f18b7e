"""What fs_write, fs_patch and fs_rm would change, as a diff for the person who is asked to allow it.

It shows what is in a file, so it holds to what the permissions deny to those that read (`FileAccess.unshown`), and
secrets that the vault has handed out are hidden. Where there is no diff to be shown (the call will fail, the disk does
not answer, a directory is to be removed) there is none, and the person sees the arguments.
"""

from __future__ import annotations

import trio

from .....protocol.errors import ToolFailed
from ....io.handed_out import hidden
from ..changes.present import present
from ..changes.record import told
from ..changes.unified import unified
from ..tool import Arguments
from .allowed_paths import AllowedPath, AllowedPaths, in_thread
from .diff import DiffError, parse
from .writing import encoded, patched

MOST_CHARACTERS = 16_000
MOST_LINES = 400
"""Of a diff that a person reads before the answer."""

WITHIN = 2.0
"""Seconds to read a file in; the question does not wait longer for a diff."""


async def preview_of(tool: str, paths: AllowedPaths, arguments: Arguments) -> str:
    """The diff of what a call of `tool` would change; "" if there is none."""
    with trio.move_on_after(WITHIN):
        return await in_thread(lambda: _preview(tool, paths, arguments))
    return ""


def _preview(tool: str, paths: AllowedPaths, arguments: Arguments) -> str:
    try:
        place = paths.find(arguments["path"], follow=tool != "fs_rm")
        if not place.parts or place.access.unshown(str(place.path)):
            return ""
        state, before = present(place)
        if state is not None and before is None:
            return ""
        return _diff(place, before, _after(tool, before, arguments.get("contents", "")))
    except (ToolFailed, DiffError, OSError):
        return ""  # the call itself says what is wrong


def _after(tool: str, before: bytes | None, contents: str) -> bytes | None:
    match tool:
        case "fs_write":
            return encoded(contents)
        case "fs_patch":
            return patched(before or b"", parse(contents))[1]
    return None


def _diff(place: AllowedPath, before: bytes | None, after: bytes | None) -> str:
    name = told("/".join(place.parts))
    diff = unified(before, after, name, characters=MOST_CHARACTERS, lines=MOST_LINES, clean=hidden)
    return hidden(diff.text).removesuffix("\n")
