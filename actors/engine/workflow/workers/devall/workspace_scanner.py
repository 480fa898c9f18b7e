"""Stands in for DevAll's `utils.workspace_scanner`: what lies in a directory."""

from __future__ import annotations

import dataclasses
import os
import typing
from pathlib import Path


@dataclasses.dataclass
class WorkspaceEntry:
    """A file or a directory; `path` is relative to where the search began, `depth` counts from 1."""

    path: str
    type: str
    size: typing.Optional[int]
    modified_ts: typing.Optional[float]
    depth: int


def iter_workspace_entries(
    root: typing.Union[Path, str],
    *,
    recursive: bool = True,
    max_depth: int = 5,
    include_hidden: bool = False,
) -> typing.Iterator[WorkspaceEntry]:
    """Everything below a directory, each directory by the names of what is in it."""
    base = Path(root).resolve()
    todo = [(base, 1)]
    while todo:
        directory, depth = todo.pop()
        try:
            children = sorted(directory.iterdir(), key=lambda child: child.name.lower())
        except OSError:
            continue
        for child in children:
            if child.name.startswith(".") and not include_hidden:
                continue
            is_directory = child.is_dir()
            try:
                found: typing.Optional[os.stat_result] = child.stat()
            except OSError:
                found = None
            yield WorkspaceEntry(
                path=str(child.relative_to(base)),
                type="directory" if is_directory else "file",
                size=found.st_size if found is not None and child.is_file() else None,
                modified_ts=found.st_mtime if found is not None else None,
                depth=depth,
            )
            if recursive and is_directory and depth < max_depth:
                todo.append((child, depth + 1))
