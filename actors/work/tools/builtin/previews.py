"""Preview of the call of a file tool: the diff for the person who is asked to allow it.

A diff shows what is in a file, so it holds to what the permissions deny to those that read (`FileAccess.unshown`), and
secrets that the vault has handed out are hidden. Where there is no diff to be shown (the disk does not answer, a
directory is to be removed) there is none, and the person sees the arguments.

A patch or an edit that cannot apply raises: the model reads why, and no person is asked about a call that fails anyway.
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
from .writing import encoded, rewritten

MOST_CHARACTERS = 16_000
MOST_LINES = 400
"""Of a diff that a person reads before the answer."""

WITHIN = 2.0
"""Seconds to read a file in; the question does not wait longer for a diff."""


REWRITES = ("fs_patch", "fs_edit")
"""Tools whose calls depend on what is in the file."""


async def preview_of(tool: str, paths: AllowedPaths, arguments: Arguments) -> str:
    """The diff of what a call of `tool` would change; "" if there is none.

    Raises:
        ToolFailed: it is a patch or an edit that cannot apply.
    """
    with trio.move_on_after(WITHIN):
        return await in_thread(lambda: _preview(tool, paths, arguments))
    return ""


def _preview(tool: str, paths: AllowedPaths, arguments: Arguments) -> str:
    if tool in REWRITES:
        place = paths.find(arguments["path"])
        before, after = rewritten(place, tool, arguments)
        return "" if place.access.unshown(str(place.path)) else _diff(place, before, after)
    try:
        place = paths.find(arguments["path"], follow=tool != "fs_rm")
        if not place.parts or place.access.unshown(str(place.path)):
            return ""
        state, before = present(place)
        if state is not None and before is None:
            return ""
        return _diff(place, before, encoded(arguments["contents"]) if tool == "fs_write" else None)
    except (ToolFailed, OSError):
        return ""  # the call itself says what is wrong


def _diff(place: AllowedPath, before: bytes | None, after: bytes | None) -> str:
    name = told("/".join(place.parts))
    diff = unified(before, after, name, characters=MOST_CHARACTERS, lines=MOST_LINES, clean=hidden)
    return hidden(diff.text).removesuffix("\n")
