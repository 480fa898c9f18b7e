"""Reads what a workspace's user trusts, by one rule for all of it: the bytes are those of the record."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Literal

import msgspec

from .offered import Kind, here, read_inside
from .place import levels, root_of
from .record import Record, Seen, as_it_is, record_of, sum_of

State = Literal["new", "trusted", "changed", "gone"]

LONGEST_DIFF = 200
"""Lines of a diff."""

_KINDS: dict[Kind, tuple[str, str]] = {
    "instructions": ("AGENTS.md", "AGENTS.md"),
    "skills": ("a skill", "{} skills"),
    "hooks": ("hooks", "hooks"),
    "servers": (".mcp.json", ".mcp.json"),
}


class Trusted:
    """What of one workspace counts.

    Args:
        root: of the workspace, without links.
        record: what its user has said; None for nothing yet.

    Attributes:
        root: as given.
        passed_over: files that were asked for and do not count, for they are new or have changed.
    """

    def __init__(self, root: Path, record: Record | None) -> None:
        self.root = root
        self.passed_over: dict[str, None] = {}
        self._record = record

    @property
    def is_trusted(self) -> bool:
        """Whether its user has said so, of whatever was there then."""
        return self._record is not None and self._record.trusted

    @property
    def is_refused(self) -> bool:
        """Whether its user does not want to hear of it."""
        return self._record is not None and not self._record.trusted

    def read(self, path: Path) -> bytes | None:
        """A file's bytes, if it counts."""
        if not self.is_trusted:
            return None
        assert self._record is not None
        name = os.path.relpath(path, self.root)
        data = read_inside(self.root, path)
        if data is None:
            return None
        seen = self._record.files.get(name)
        if seen is None or seen.sum != sum_of(data):
            self.passed_over[name] = None
            return None
        return data

    def text(self, path: Path) -> str | None:
        """The same as a text, without a byte order mark."""
        data = self.read(path)
        return None if data is None else data.decode("utf-8-sig", "replace")

    def below(self, directory: Path) -> list[str]:
        """The files that were trusted in a directory, by their paths from there."""
        if not self.is_trusted:
            return []
        assert self._record is not None
        start = os.path.relpath(directory, self.root) + "/"
        return [name[len(start) :] for name in self._record.files if name.startswith(start)]


def workspace_of(directory: Path, environ: Mapping[str, str]) -> Trusted | None:
    """The workspace that a directory lies in; None where there can be none."""
    root = root_of(directory, environ)
    return None if root is None else Trusted(root, record_of(root, environ))


def offers(trusted: Trusted, directory: Path) -> str:
    """What a workspace has that would count, in words; "" for nothing. A quick look, without reading a file."""
    found = here(trusted.root, levels(directory, trusted.root))
    return ", ".join(_KINDS[kind][count > 1].format(count) for kind, count in found.items())


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a workspace, beside what was trusted of it.

    Attributes:
        name: its path from the root.
        diff: what has changed since, as a unified diff; "" if that can't be shown.
    """

    name: str
    kind: Kind
    state: State
    diff: str = ""


def look(root: Path, environ: Mapping[str, str]) -> list[Look]:
    """All files of a workspace that would count, and those that did and are gone. Reads them."""
    before, now = record_of(root, environ), as_it_is(root)
    old = before.files if before is not None and before.trusted else {}
    found = [_looked(name, seen, old.get(name)) for name, seen in now.files.items()]
    gone = (Look(name=name, kind=seen.kind, state="gone") for name, seen in old.items() if name not in now.files)
    return [*found, *gone]


def _looked(name: str, seen: Seen, before: Seen | None) -> Look:
    if before is None:
        return Look(name=name, kind=seen.kind, state="new")
    if before.sum == seen.sum:
        return Look(name=name, kind=seen.kind, state="trusted")
    diff = "" if before.text is None or seen.text is None else _diff(before.text, seen.text, name)
    return Look(name=name, kind=seen.kind, state="changed", diff=diff)


def _diff(before: str, after: str, name: str) -> str:
    lines: Iterable[str] = unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)
    shown = list(lines)
    more = [f"... {len(shown) - LONGEST_DIFF} more lines"] if len(shown) > LONGEST_DIFF else []
    return "\n".join([*shown[:LONGEST_DIFF], *more])
