"""First files of an agent, a server list or a workflow: copies of templates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..protocol.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PROMPTS = {
    "hello": "Ada",
    "approval": "a walk by the sea",
    "fanout": "the bicycle",
    "script": "count the words of this sentence",
    "demo": "The build is red since this morning, we cannot release!",
}
"""Suitable prompt for each template, in the order of `--help`."""


def write_files(contents: dict[Path, bytes]) -> None:
    """Write the files, creating their directories.

    Raises:
        UsageError: a file can't be written.
    """
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise UsageError(f"{error.filename or path}: can't be written: {error.strerror}") from error


def template_copies(source: Traversable, target: Path) -> dict[Path, Traversable]:
    """Return the files of a template by the paths of their copies below `target`."""
    found: dict[Path, Traversable] = {}
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            found |= template_copies(entry, target / entry.name)
        elif entry.is_file():
            found[target / entry.name] = entry
    return found
