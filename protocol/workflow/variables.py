"""References `${NAME}` in a workflow file, replaced in the tree before structs are made of it.

A name is looked up in `vars`, then in the environment. A text that consists of one reference takes the value with its
type, so `context_window: ${N}` is a number. Inside of a longer text the value is inserted as text. A variable may
refer to others. Text that is not a valid reference (`${a-b}`, `$X`) stays unchanged, and `$${X}` is the text `${X}`.

A value gets the position of its use, so a number for `name: ${N}` is reported on that line. Mappings and lists from
`vars` keep their own positions. The size of the result is counted during replacement, because a few lines of doubling
references would fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from typing import Any

import msgspec

from ..problems import Problem, did_you_mean
from ..tree import Entry, Mapping, Node, Path, Scalar, Sequence, dotted, plain
from ..yaml_tree import MAX_DEPTH
from .dialect import Dialect

MAX_GROWTH = 500_000
"""Most values that the references of a file may produce, plus one per 32 characters of text."""

MAX_CHAIN = 50
"""Longest chain of variables that refer to one another."""

_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z0-9_]+)\}")


class _Value(msgspec.Struct, frozen=True):
    """A resolved value with its weight and its depth, which count at every place of its use."""

    node: Node
    weight: int
    height: int


class Resolver:
    """Resolver for the references of one file.

    Args:
        given: the variables as nodes, from the file, with overrides from the caller or a parent file.
        environ: the environment; names in `vars` override it.
    """

    def __init__(self, file: str, dialect: Dialect, given: Dict[str, Node], environ: Dict[str, str]) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._dialect = dialect
        self._given = given
        self._environ = environ
        self._known: dict[str, _Value] = {}
        self._open: list[str] = []
        self._growth = 0
        self._full = False

    def resolved(self, node: Node, path: Path = ()) -> Node:
        """Return the node without references. An unresolvable reference is left in place and reported."""
        return self._within(node, path, 0).node

    def variables(self) -> dict[str, Node]:
        """Return every variable with its references replaced. An unresolvable one is left in place and reported."""
        for name, node in self._given.items():
            self._lookup(name, Scalar("", "", node.line, node.column), ("vars", name), 0)
        return {name: self._known[name].node for name in self._given if name in self._known}

    # the tree

    def _within(self, node: Node, path: Path, depth: int) -> _Value:
        if isinstance(node, Scalar):
            return self._text(node, path, depth) if isinstance(node.value, str) else _Value(node, 1, 0)
        if depth > MAX_DEPTH:
            self._report("too_deep", f"the variables are nested more than {MAX_DEPTH} levels deep", node, path, "")
            return _Value(Scalar("", "", node.line, node.column), 0, 0)
        if isinstance(node, Sequence):
            parts = [self._within(item, (*path, i), depth + 1) for i, item in enumerate(node.items)]
            made: Node = Sequence([part.node for part in parts], node.line, node.column)
        else:
            parts = []
            entries: dict[str, Entry] = {}
            for key, entry in node.entries.items():
                parts.append(self._within(entry.value, (*path, key), depth + 1))
                entries[key] = Entry(parts[-1].node, entry.line, entry.column)
            made = Mapping(entries, node.line, node.column)
        height = 1 + max((part.height for part in parts), default=0)
        return _Value(made, 1 + sum(part.weight for part in parts), height)

    def _text(self, node: Scalar, path: Path, depth: int) -> _Value:
        if "${" not in node.value:
            return _Value(node, 1 + len(node.value) // 32, 0)
        whole = _REFERENCE.fullmatch(node.value.strip())
        if whole is not None and not whole[1]:
            return self._put(self._lookup(whole[2], node, path, depth), node, path, depth)

        def written(match: re.Match[str]) -> str:
            if match[1] and self._dialect.escapes:
                return match[0][1:]
            value = self._lookup(match[2], node, path, depth)
            if not self._grow(value.weight, node, path):
                return ""
            return match[1] + str(plain(value.node))  # as DevAll writes it: `True`, `None`, `[1, 2]`

        text = _REFERENCE.sub(written, node.value)
        return _Value(Scalar(text, text, node.line, node.column, quoted=True), 1 + len(text) // 32, 0)

    def _put(self, value: _Value, at: Scalar, path: Path, depth: int) -> _Value:
        if depth + value.height > MAX_DEPTH:
            self._report(
                "too_deep",
                f"the value of {at.text} is nested more than {MAX_DEPTH} levels deep at this place",
                at,
                path,
                "",
            )
            return _Value(at, 0, 0)
        if not self._grow(value.weight, at, path):
            return _Value(at, 0, 0)
        if isinstance(value.node, Scalar):
            # A problem about the value names the line of its use and not the line in `vars`.
            return _Value(msgspec.structs.replace(value.node, line=at.line, column=at.column), value.weight, 0)
        return value

    # names

    def _lookup(self, name: str, at: Scalar, path: Path, depth: int) -> _Value:
        if name in self._known:
            return self._known[name]
        if name in self._open:
            # In this dialect `X: ${X}` takes X from the environment. A longer cycle is an error in every dialect.
            if self._open[-1] == name and self._dialect.variables_see_environment:
                return self._from_environment(name, at, path)
            chain = " -> ".join([*self._open[self._open.index(name) :], name])
            hint = f"Hint: give one of them a value: `vars: {{{name}: ...}}`."
            if self._open[-1] == name:
                hint = "Hint: remove it from `vars`; names that `vars` lacks are looked up in the environment."
            self._report("variable_cycle", f"the variables refer to each other: {chain}", at, path, hint)
            return _Value(at, 0, 0)
        if name not in self._given:
            return self._from_environment(name, at, path)
        if len(self._open) >= MAX_CHAIN:
            self._report("too_deep", f"more than {MAX_CHAIN} variables refer to each other in a row", at, path, "")
            return _Value(at, 0, 0)
        self._open.append(name)
        try:
            value = self._within(self._given[name], ("vars", name), depth)
        finally:
            self._open.pop()
        self._known[name] = value
        return value

    def _from_environment(self, name: str, at: Scalar, path: Path) -> _Value:
        found = self._environ.get(name)
        if found is not None:
            # Quoted: a variable of the environment is a text, even if it looks like a number or a boolean.
            return _Value(Scalar(found, found, at.line, at.column, quoted=True), 1 + len(found) // 32, 0)
        known = [other for other in self._given if other != name]
        near = did_you_mean(name, [*known, *self._environ])
        self._report(
            "unknown_variable",
            f"`${{{name}}}` has no value, but `{dotted(path)}` uses it: it is neither in `vars` nor in the environment",
            at,
            path,
            f"Hint: {f'{near} Or ' if near else ''}"
            f"set it: `vars: {{{name}: ...}}` in the file, `--var {name}=...`, or `{name}=...` in .env"
            + (f"; for the text itself write `$${{{name}}}`." if self._dialect.escapes else "."),
        )
        return _Value(at, 0, 0)

    def _grow(self, weight: int, at: Scalar, path: Path) -> bool:
        # Every use counts again: a chain of variables that double each other would otherwise fill the memory.
        self._growth += weight
        if self._growth <= MAX_GROWTH:
            return True
        if not self._full:
            self._full = True
            self._report("too_large", "the file is too large after its variables are replaced", at, path, "")
        return False

    def _report(self, code: str, message: str, at: Node, path: Path, hint: str) -> None:
        self.problems.append(
            Problem(
                severity="error",
                file=self._file,
                line=at.line,
                column=at.column,
                code=code,
                message=message,
                key=dotted(path) or None,
                hint=hint or None,
            )
        )


def as_node(value: Any, line: int = 0, column: int = 0) -> Node:
    """Return a value of a caller's `variables` as a tree; a value that JSON can't hold becomes a text."""
    if isinstance(value, Dict):
        return Mapping({str(key): Entry(as_node(item), line, column) for key, item in value.items()}, line, column)
    if isinstance(value, list | tuple):
        return Sequence([as_node(item) for item in value], line, column)
    known = value is None or isinstance(value, str | bool | int | float)
    return Scalar(value if known else str(value), _as_written(value), line, column, quoted=isinstance(value, str))


def _as_written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


_OF_VARIABLES = ("unknown_variable", "variable_cycle")


def drop_repeated(problems: list[Problem]) -> list[Problem]:
    """Drop problems about a value if its variable is already reported as undefined."""
    places = {(p.file, p.line, p.column) for p in problems if p.code in _OF_VARIABLES}
    return [p for p in problems if p.code in _OF_VARIABLES or (p.file, p.line, p.column) not in places]
