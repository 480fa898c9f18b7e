"""Replacement for DevAll's `utils.workspace_scanner`: listing of a directory."""

from __future__ import annotations

import dataclasses
import os
import typing
from pathlib import Path


@dataclasses.dataclass
class WorkspaceEntry:
    """File or directory; `path` is relative to the listed directory, `depth` begins at 1."""

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
    """Yield everything below a directory, the entries of each directory sorted by name."""
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
