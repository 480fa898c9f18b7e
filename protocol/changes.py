"""File changes by the tools of runs, with diffs, and results of undoing them."""

from __future__ import annotations

from typing import Literal

import msgspec

How = Literal["created", "changed", "removed"]
"""Change of a file, from before the runs to after them."""

Back = Literal["content", "removed", "returned"]
"""Undo of a change: the earlier content was restored, a file created by a run was removed, or a removed file was
restored.
"""


class ChangedFile(msgspec.Struct, kw_only=True):
    """File or directory that runs have changed.

    Attributes:
        path: absolute.
        how: what became of it.
        kind: what it is, or was.
        added, removed: how many lines came and went; None where that is not known, or there are no lines.
        diff: unified and bounded; empty where there is none, and `note` says why.
        note: what has to be known of the diff, or why there is none.
    """

    path: str
    how: How
    kind: Literal["file", "link", "directory", "other"] = "file"
    added: int | None = None
    removed: int | None = None
    diff: str = ""
    note: str = ""


class FileBack(msgspec.Struct, kw_only=True):
    """File or directory in its state before the runs, with the action that restored it."""

    path: str
    done: Back


class FileLeft(msgspec.Struct, kw_only=True):
    """A file or directory that was left as it is, or was taken back in part, and why."""

    path: str
    why: str


class Restored(msgspec.Struct, kw_only=True):
    """Result of an undo of changes."""

    restored: list[FileBack] = []
    left: list[FileLeft] = []
