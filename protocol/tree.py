"""Plain values with their positions in the file: `yaml_tree.parse` returns them, and `reading` fills structs from them.

A tree has no reference cycles, so the garbage collector can skip its nodes (`gc=False`). In a large file the
collector would take longer than the parser.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead to a value: `("nodes", "plan", "options", 0)`."""


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """A text, number, boolean or null.

    Attributes:
        text: the text as the user wrote it, without quotes.
        quoted: True if the value was in quotes or a block, or comes from a source where every value is a text. A quoted
            value is never another spelling of a number or boolean.
    """

    value: Any
    text: str
    line: int
    column: int
    quoted: bool = False


class Sequence(msgspec.Struct, frozen=True, gc=False):
    """A list."""

    items: list[Node]
    line: int
    column: int


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key of a mapping with its value; `line` and `column` are the position of the key."""

    value: Node
    line: int
    column: int


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """A mapping, with its keys in the order of the file."""

    entries: dict[str, Entry]
    line: int
    column: int


Node: TypeAlias = Scalar | Sequence | Mapping
"""A value with its place: 1-based `line` and `column` of its first character."""


def dotted(path: Path) -> str:
    """Return a path as text: `("nodes", "plan", "options", 0)` becomes `nodes.plan.options[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def plain(node: Node) -> Any:
    """Return the value as JSON types: new dicts and lists, with no parts shared between aliases."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(entry.value) for key, entry in node.entries.items()}


def is_null(node: Node) -> bool:
    """Return whether the value of a key is empty or null."""
    return isinstance(node, Scalar) and node.value is None


def describe(node: Node) -> str:
    """Describe a value for error texts: `the number 5`, `a list`, `the text 'abc'`."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return f"the boolean {node.text}"
    if isinstance(node.value, str):
        return f"the text {short(node.text)!r}"
    return f"the number {short(node.text)}"


def short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
