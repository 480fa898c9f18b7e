"""A place in a file that is read: what stands there, what is below it, and how to report what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from .problems import Remedy, Severity
from .tree import Entry, Mapping, Node, Path, Scalar, Sequence, describe, dotted, is_null

if TYPE_CHECKING:
    from .reading import Reading


class Cursor:
    """A value of a file while it is read: where it is, and a way to report what is wrong with it.

    Attributes:
        node: the value; of a key that is missing, the mapping that lacks it.
        path: where it sits.
        place: line and column that problems are reported at.
    """

    def __init__(self, reading: Reading, node: Node, path: Path = (), place: tuple[int, int] | None = None) -> None:
        self.reading = reading
        self.node = node
        self.path = path
        self.place = place or (node.line, node.column)

    @property
    def entries(self) -> dict[str, Entry]:
        """The entries of a mapping; none of any other value."""
        return self.node.entries if isinstance(self.node, Mapping) else {}

    def __getitem__(self, key: str) -> Self:
        """The value under a key, which may be missing."""
        entry = self.entries.get(key)
        return type(self)(self.reading, self.node if entry is None else entry.value, (*self.path, key))

    def get(self, key: str) -> Self | None:
        """The value under a key; None if it is missing, or stands there without a value."""
        entry = self.entries.get(key)
        return None if entry is None or is_null(entry.value) else self[key]

    def key(self, key: str) -> Self:
        """The value under a key, whose problems are reported at the key; at the mapping if that is missing."""
        entry = self.entries.get(key)
        found = self[key]
        found.place = found.place if entry is None else (entry.line, entry.column)
        return found

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self.node, Sequence)

    @property
    def items(self) -> list[Self]:
        """The items of a list; none of any other value."""
        items = self.node.items if isinstance(self.node, Sequence) else []
        return [type(self)(self.reading, item, (*self.path, i)) for i, item in enumerate(items)]

    @property
    def text(self) -> str | None:
        """The value, if it is a text."""
        return self.node.value if isinstance(self.node, Scalar) and isinstance(self.node.value, str) else None

    @property
    def is_broken(self) -> bool:
        """Whether an error was reported about this value, or about one inside of it."""
        return any(broken[: len(self.path)] == self.path for broken in self.reading.broken)

    def report(self, severity: Severity, code: str, message: str, **remedy: Unpack[Remedy]) -> None:
        """Report a problem of this value."""
        self.reading.report(severity, code, message, self.path, self.place, **remedy)

    def error(self, code: str, message: str, **remedy: Unpack[Remedy]) -> None:
        """Report an error about this value."""
        self.report("error", code, message, **remedy)

    def misfit(self, expected: str) -> None:
        """Report that this value has another type than it should."""
        message = f"invalid type: `{dotted(self.path)}` is {describe(self.node)}"
        self.error("wrong_type", message, expected=expected)

    def warn(self, code: str, message: str, hint: str | None = None) -> None:
        """Report a warning about this value."""
        self.report("warning", code, message, hint=hint)
