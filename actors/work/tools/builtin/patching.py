"""fs_patch: a unified diff, applied to one file as a whole or not at all. See `diff` for what fits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .....protocol.errors import ToolFailed
from ..tool import Arguments
from .diff import DiffError, Hunk, apply, parse
from .places import Place, explained, in_thread
from .setting import Setting
from .writing import LARGEST, encoded, locked, replace, status_of

if TYPE_CHECKING:
    from .....supervisors import Actor


async def fs_patch(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Patch a file; one that is not there is made if the diff only adds."""
    encoded(arguments["contents"])
    return await in_thread(lambda: _patch(setting.places.find(arguments["path"]), arguments["contents"]), changes=True)


def _patch(place: Place, diff: str) -> str:
    try:
        return _patched(place, parse(diff))
    except DiffError as error:
        raise ToolFailed(f"'{place.shown}' was not patched: {error}") from error


def _patched(place: Place, hunks: list[Hunk]) -> str:
    creates = not any(hunk.old for hunk in hunks)
    with place.above(make=creates) as directory, explained(place), locked(directory):
        old = status_of(place, directory)
        if old is None and not creates:
            raise FileNotFoundError(2, "No such file or directory")
        # Bytes that are no UTF-8 pass through unchanged.
        text = "" if old is None else _read(place, directory, old).decode(errors="surrogateescape")
        applied = apply(text, hunks)
        replace(place, directory, old, applied.text.encode(errors="surrogateescape"))
    moved = "".join(f"; hunk {number} stood at line {line}" for number, line in applied.moved)
    many = "1 hunk" if len(hunks) == 1 else f"{len(hunks)} hunks"
    return f"patched {place.shown}: {many}, +{applied.added} -{applied.removed} lines{moved}"


def _read(place: Place, directory: int, status: os.stat_result) -> bytes:
    if status.st_size > LARGEST:
        raise ToolFailed(f"'{place.shown}' is {status.st_size} bytes; files up to {LARGEST} bytes can be patched")
    descriptor = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(LARGEST + 1)
