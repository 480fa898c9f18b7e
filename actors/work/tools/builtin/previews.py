"""Diffs that preview a file tool's call in its approval question.

A diff contains parts of the file. Files that permissions deny to read (`FileAccess.unshown`) therefore get none, and
secrets of the vault are redacted. No diff is available either if the disk does not respond or a directory is removed;
the user then sees only the arguments.

A patch or an edit that cannot apply raises: the model receives the reason, and the user is not asked about a call that
fails anyway.
"""

from __future__ import annotations

import trio

from .....protocol.errors import ToolFailed
from ....io.handed_out import hidden
from ..changes.present import present
from ..changes.record import printable_path
from ..changes.unified import unified
from ..tool import Arguments
from .allowed_paths import AllowedPath, AllowedPaths, in_thread
from .writing import encoded, rewritten

MOST_CHARACTERS = 16_000
MOST_LINES = 400
"""Limits of a diff in an approval question."""

WITHIN = 2.0
"""Seconds to read the file; the question does not wait longer for a diff."""


REWRITES = ("fs_patch", "fs_edit")
"""Tools whose calls depend on the file's content."""


async def preview_of(tool: str, paths: AllowedPaths, arguments: Arguments) -> str:
    """Return the diff of the change that a call of `tool` would make; "" if there is none.

    Raises:
        ToolFailed: a patch or an edit cannot apply.
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
        return ""  # The call itself reports the error.


def _diff(place: AllowedPath, before: bytes | None, after: bytes | None) -> str:
    name = printable_path("/".join(place.parts))
    diff = unified(before, after, name, characters=MOST_CHARACTERS, lines=MOST_LINES, clean=hidden)
    return hidden(diff.text).removesuffix("\n")
