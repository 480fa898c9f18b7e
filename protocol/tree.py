"""Plain values that know where they were written: what `yaml_tree.parse` gives and `reading` fills structs from.

A tree has no circles, so the garbage collector need not look at its parts (`gc=False`), which takes longer than to
build them where there are hundreds of thousands.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Path: TypeAlias = tuple[str | int, ...]
"""Where a value sits: `("nodes", "plan", "options", 0)`."""


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """A text, number, boolean or null.

    Attributes:
        text: what the user wrote, without quotes.
        quoted: it stood in quotes or in a block, or came from where everything is text: no other spelling of something
            else can be meant.
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
    """One key of a mapping; `line` and `column` are the key's."""

    value: Node
    line: int
    column: int


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """A mapping, keys in the file's order."""

    entries: dict[str, Entry]
    line: int
    column: int


Node: TypeAlias = Scalar | Sequence | Mapping
"""A value with its place: 1-based `line` and `column` of its first character."""


def dotted(path: Path) -> str:
    """`("nodes", "plan", "options", 0)` as `nodes.plan.options[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def plain(node: Node) -> Any:
    """The value as JSON would hold it: fresh dicts and lists, nothing shared between aliases."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(entry.value) for key, entry in node.entries.items()}


def is_null(node: Node) -> bool:
    """Whether a key stands there without a value."""
    return isinstance(node, Scalar) and node.value is None


def describe(node: Node) -> str:
    """What a value is, for error texts: `the number 5`, `a list`, `the text 'abc'`."""
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
