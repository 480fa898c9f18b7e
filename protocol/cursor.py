"""Cursor: a position in a file that is being read, with its value, and methods to report problems there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from .problems import Remedy, Severity
from .tree import Entry, Mapping, Node, Path, Scalar, Sequence, describe, dotted, is_null

if TYPE_CHECKING:
    from .reading import Reading


class Cursor:
    """Value of a file while it is read, with its position and methods to report problems.

    Attributes:
        node: the value; for a missing key, the mapping that lacks it.
        path: keys that lead to the value.
        place: line and column at which problems are reported.
    """

    def __init__(self, reading: Reading, node: Node, path: Path = (), place: tuple[int, int] | None = None) -> None:
        self.reading = reading
        self.node = node
        self.path = path
        self.place = place or (node.line, node.column)

    @property
    def entries(self) -> dict[str, Entry]:
        """Entries of a mapping; none for any other value."""
        return self.node.entries if isinstance(self.node, Mapping) else {}

    def __getitem__(self, key: str) -> Self:
        """Return the value of a key, which may be missing."""
        entry = self.entries.get(key)
        return type(self)(self.reading, self.node if entry is None else entry.value, (*self.path, key))

    def get(self, key: str) -> Self | None:
        """Return the value of a key; None if it is missing or null."""
        entry = self.entries.get(key)
        return None if entry is None or is_null(entry.value) else self[key]

    def key(self, key: str) -> Self:
        """Return the value of a key. Its problems are reported at the key, or at the mapping if the key is missing."""
        entry = self.entries.get(key)
        found = self[key]
        found.place = found.place if entry is None else (entry.line, entry.column)
        return found

    @property
    def is_list(self) -> bool:
        """True if the value is a list."""
        return isinstance(self.node, Sequence)

    @property
    def items(self) -> list[Self]:
        """Items of a list; none for any other value."""
        items = self.node.items if isinstance(self.node, Sequence) else []
        return [type(self)(self.reading, item, (*self.path, i)) for i, item in enumerate(items)]

    @property
    def text(self) -> str | None:
        """The value if it is a text, else None."""
        return self.node.value if isinstance(self.node, Scalar) and isinstance(self.node.value, str) else None

    @property
    def is_broken(self) -> bool:
        """True if an error was reported for this value, or for a value inside of it."""
        return any(broken[: len(self.path)] == self.path for broken in self.reading.broken)

    def report(self, severity: Severity, code: str, message: str, **remedy: Unpack[Remedy]) -> None:
        """Report a problem with this value."""
        self.reading.report(severity, code, message, self.path, self.place, **remedy)

    def error(self, code: str, message: str, **remedy: Unpack[Remedy]) -> None:
        """Report an error in this value."""
        self.report("error", code, message, **remedy)

    def misfit(self, expected: str) -> None:
        """Report that this value has the wrong type."""
        message = f"invalid type: `{dotted(self.path)}` is {describe(self.node)}"
        self.error("wrong_type", message, expected=expected)

    def warn(self, code: str, message: str, hint: str | None = None) -> None:
        """Report a warning about this value."""
        self.report("warning", code, message, hint=hint)
