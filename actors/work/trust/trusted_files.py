"""Reader for trusted files of a workspace: a file is used only if its bytes are the recorded ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from .decisions import TrustedFile, TrustRecord, as_it_is, record_of, sum_of
from .workspace_files import Kind, count_files, levels, read_inside, root_of

State = Literal["new", "trusted", "changed", "gone"]

LONGEST_DIFF = 200
"""Maximum lines of a diff."""

_KINDS: dict[Kind, tuple[str, str]] = {
    "instructions": ("AGENTS.md", "AGENTS.md"),
    "skills": ("a skill", "{} skills"),
    "hooks": ("hooks", "hooks"),
    "servers": (".mcp.json", ".mcp.json"),
}


class Trusted:
    """Trusted contents of one workspace.

    Args:
        root: of the workspace, with links resolved.
        record: the user's decision; None if there is none yet.

    Attributes:
        root: the `root` argument.
        passed_over: requested files that were ignored, because they are new or have changed.
    """

    def __init__(self, root: Path, record: TrustRecord | None) -> None:
        self.root = root
        self.passed_over: dict[str, None] = {}
        self._record = record

    @property
    def is_trusted(self) -> bool:
        """True if the user has trusted the workspace, in the state of that time."""
        return self._record is not None and self._record.trusted

    @property
    def is_refused(self) -> bool:
        """True if the user has refused the workspace."""
        return self._record is not None and not self._record.trusted

    def read(self, path: Path) -> bytes | None:
        """Return a file's bytes if it is trusted, else None."""
        if not self.is_trusted:
            return None
        assert self._record is not None
        # The record uses paths as found, so a file reached through a link has the name of the link.
        name = os.path.relpath(path, self.root)
        data = read_inside(self.root, path)
        if data is None:
            return None
        seen = self._record.files.get(name)
        # Hash the bytes that are returned, not the file again: it may change in between.
        if seen is None or seen.sum != sum_of(data):
            self.passed_over[name] = None
            return None
        return data

    def text(self, path: Path) -> str | None:
        """Return the same as text, without a byte order mark."""
        data = self.read(path)
        return None if data is None else data.decode("utf-8-sig", "replace")

    def below(self, directory: Path) -> list[str]:
        """Return the trusted files in a directory, by path relative to it."""
        if not self.is_trusted:
            return []
        assert self._record is not None
        start = os.path.relpath(directory, self.root) + "/"
        return [name[len(start) :] for name in self._record.files if name.startswith(start)]


def workspace_of(directory: Path, environ: Mapping[str, str]) -> Trusted | None:
    """Return the workspace of a directory; None where none is possible."""
    root = root_of(directory, environ)
    return None if root is None else Trusted(root, record_of(root, environ))


def offers(trusted: Trusted, directory: Path) -> str:
    """Return a description of the files that a workspace would load; "" for none. Fast: reads no file."""
    found = count_files(trusted.root, levels(directory, trusted.root))
    return ", ".join(_KINDS[kind][count > 1].format(count) for kind, count in found.items())


class TrustComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of a workspace's file with its trusted state.

    Attributes:
        name: its path relative to the root.
        diff: the change since, as a unified diff; "" if none can be displayed.
    """

    name: str
    kind: Kind
    state: State
    diff: str = ""


def compare_with_trusted(root: Path, environ: Mapping[str, str]) -> list[TrustComparison]:
    """Compare all files that need trust, including removed ones, with their trusted state. Reads the files."""
    before, now = record_of(root, environ), as_it_is(root)
    # A refusal records no files, so every file counts as new.
    old = before.files if before is not None and before.trusted else {}
    found = [_compared(name, seen, old.get(name)) for name, seen in now.files.items()]
    gone = (
        TrustComparison(name=name, kind=seen.kind, state="gone") for name, seen in old.items() if name not in now.files
    )
    return [*found, *gone]


def _compared(name: str, seen: TrustedFile, before: TrustedFile | None) -> TrustComparison:
    if before is None:
        return TrustComparison(name=name, kind=seen.kind, state="new")
    if before.sum == seen.sum:
        return TrustComparison(name=name, kind=seen.kind, state="trusted")
    diff = "" if before.text is None or seen.text is None else _diff(before.text, seen.text, name)
    return TrustComparison(name=name, kind=seen.kind, state="changed", diff=diff)


def _diff(before: str, after: str, name: str) -> str:
    from difflib import unified_diff

    lines: Iterable[str] = unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)
    shown = list(lines)
    more = [f"... {len(shown) - LONGEST_DIFF} more lines"] if len(shown) > LONGEST_DIFF else []
    return "\n".join([*shown[:LONGEST_DIFF], *more])
