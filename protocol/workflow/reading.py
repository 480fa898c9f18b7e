"""Rules for reading workflow files: `protocol.reading`, with the habits of DevAll's files.

- A block has a `type` and a `config`; the type decides which keys the config may have (`typed`).
- An empty text for an optional text counts as absent. `yes` and `no` without quotes are booleans, as in YAML 1.1.
  Some numbers may have quotes, and some texts may be written as numbers.
- A key may be known only in the guide, or be at the wrong level, or have another name. The methods `renamed`,
  `ignored` and `misplaced` report it with the right spelling.

A problem names its node; a problem in a subgraph names the way to it, `review/writer`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Mapping as Dict
from functools import lru_cache
from typing import Any, Self, TypeVar

import msgspec
from msgspec import inspect

from ..problems import did_you_mean
from ..reading import Cursor, Reading
from ..tree import Entry, Mapping, Node, Path, Scalar, describe, dotted
from ..yaml_tree import Source
from .dialect import Dialect, Known

T = TypeVar("T", bound=msgspec.Struct)

_YES = frozenset({"yes", "Yes", "YES", "on", "On", "ON"})
_NO = frozenset({"no", "No", "NO", "off", "Off", "OFF"})


class WorkflowReading(Reading):
    """The state of reading one file.

    Attributes:
        names: for the path of every node read so far, its name in problems.
        variables: values for `${NAME}` in the file.
        inside: number of broken values in subgraphs that are already read; the outer graph may still be checked.
    """

    def __init__(self, source: Source, dialect: Dialect, known: Known, variables: dict[str, Node]) -> None:
        super().__init__(source.file, prefix="")
        self.source = source
        self.dialect = dialect
        self.known = known
        self.variables = variables
        self.names: dict[Path, str] = {}
        self.inside = 0

    @property
    def unread(self) -> int:
        """Number of values that could not be read, in the graphs that are still open."""
        return len(self.broken) - self.inside

    def node_at(self, path: Path) -> str | None:
        for length in range(len(path), 0, -1):
            name = self.names.get(path[:length])
            if name is not None:
                return name
        return None

    def taken_as(self, wanted: inspect.Type, extra: Dict[str, Any], node: Node, path: Path) -> Node:
        if not isinstance(node, Scalar):
            return node
        value = node.value
        if isinstance(wanted, inspect.BoolType):
            return self.boolean(node, path)
        if extra.get("as_text") and isinstance(value, bool | int | float):
            return Scalar(node.text, node.text, node.line, node.column)
        if extra.get("loose"):
            return self._number(wanted, node, path)
        # DevAll refuses blank text wherever it requires a text.
        if isinstance(wanted, inspect.StrType) and wanted.min_length and isinstance(value, str) and value.isspace():
            return Scalar("", node.text, node.line, node.column)
        return node

    def boolean(self, node: Scalar, path: Path) -> Scalar:
        """Return the value with `yes`, `no` and the like as booleans, as YAML 1.1 and DevAll read them."""
        if node.quoted or not isinstance(node.value, str) or node.value not in _YES | _NO:
            return node
        right = "true" if node.value in _YES else "false"
        self._loosely(node, path, f"`{dotted(path)}` is {node.value}, which YAML 1.2 has as text", f"write {right}.")
        return Scalar(node.value in _YES, node.text, node.line, node.column)

    def _number(self, wanted: inspect.Type, node: Scalar, path: Path) -> Node:
        """Return a number for a number in quotes or with a fraction, as DevAll does."""
        cast = int if isinstance(wanted, inspect.IntType) else float
        if isinstance(node.value, bool) or not isinstance(node.value, str | float) or cast is type(node.value):
            return node
        try:
            number = cast(node.value)
        except (ValueError, OverflowError):
            return node
        if number != number or abs(number) >= 2**63:
            return node
        self._loosely(node, path, f"`{dotted(path)}` is {describe(node)}, read as {number}", f"write {number}.")
        return Scalar(number, str(number), node.line, node.column)

    def _loosely(self, node: Scalar, path: Path, message: str, hint: str) -> None:
        self.report("warning", "loose_value", message, path, node, hint=hint)


class FileValue(Cursor):
    """A value of a workflow file during reading."""

    reading: WorkflowReading

    def block(
        self,
        cls: type[T],
        what: str,
        *,
        given: Dict[str, Any] | None = None,
        hidden: Iterable[str] = (),
        elsewhere: Dict[str, str] | None = None,
    ) -> T:
        """Fill a struct from this mapping with `Reading.fill`; an empty text for an optional text counts as absent."""
        optional = _optional_texts(cls)
        entries = {key: entry for key, entry in self.entries.items() if not (key in optional and _is_empty(entry))}
        node = Mapping(entries, self.node.line, self.node.column)
        return self.reading.fill(cls, node, self.path, what=what, given=given, hidden=hidden, elsewhere=elsewhere)

    # --- shapes -----------------------------------------------------------------------------------------------

    def mapping(self, what: str, example: str) -> Self | None:
        """Return this value if it is a mapping, else report a problem and return None."""
        if isinstance(self.node, Mapping):
            return self
        message, hint = f"{what} is {describe(self.node)}", f"Hint: write {example}."
        self.error("wrong_type", message, expected="a mapping", hint=hint)
        return None

    def mapping_at(self, key: str, example: str) -> Self | None:
        """Return the mapping under a key; None if the key is absent or holds another value, which is reported."""
        found = self.get(key)
        return None if found is None else found.mapping(f"`{key}`", example)

    def each(self, key: str, what: str, example: str) -> list[Self]:
        """Return the items of the list under `key`; empty if the key is absent, or if it holds another value, which is
        reported.
        """
        found = self.get(key)
        if found is not None and not found.is_list:
            found.error(
                "wrong_type",
                f"`{dotted(found.path)}` is {describe(found.node)}",
                expected=f"a list of {what}",
                hint=f"Hint: put a dash before each of them: `- {example}`.",
            )
        return found.items if found is not None else []

    def some(self, key: str, what: str, example: str, expected: str, hint: str) -> list[Self]:
        """Return the items of the list under `key`, or the single mapping under it; an empty list is reported."""
        if isinstance(self[key].node, Mapping):
            return [self[key]]
        items = self.each(key, what, example)
        if not items and not self[key].is_broken:
            self.key(key).error("missing_key", f"`{key}` is empty", expected=expected, hint=hint)
        return items

    def typed(
        self,
        what: str,
        kinds: Collection[str],
        *,
        also: Collection[str] | None = (),
        needs_config: bool = True,
        aliases: Dict[str, str] | None = None,
        default: str | None = None,
    ) -> tuple[str, Self] | None:
        """Return the type of a block and its config; None if one of them is missing or invalid, which is reported.

        Args:
            also: keys allowed in addition to `type` and `config`; None if the caller checks them.
            needs_config: if True, a missing `config` is an error; otherwise it counts as an empty one.
            aliases: other names of types, which are accepted with a warning.
            default: the type of a block that has no `type`.
        """
        kind = default if default and self.get("type") is None else self._kind(what, kinds, aliases or {})
        config = self.get("config")
        beside = ("type", "config", *(self.entries if also is None else also))
        strays = {key: e for key, e in self.entries.items() if key not in beside and not key.startswith("x-")}
        for key, entry in strays.items():
            inside = {key: f"the `config` of {what}"} if config is None else {}
            self.reading.unknown_key(key, entry, self.path, what, beside, inside)
        if config is None and needs_config:
            indented = f"; `{next(iter(strays))}` belongs under it" if strays else ""
            self.key("config").error(
                "missing_key",
                f"missing field `config`: {what} needs it{indented}",
                expected="`config:` with a mapping",
                hint="Hint: write `config:` and indent its keys under it; `config: {}` if there are none.",
            )
            return None
        if config is None:
            config = self.with_entries({})["config"]
        found = config.mapping(f"the `config` of {what}", "`config:` and its keys")
        return None if kind is None or found is None else (kind, found)

    def _kind(self, what: str, kinds: Collection[str], aliases: Dict[str, str]) -> str | None:
        known = ", ".join(kinds)
        kind = self.get("type")
        if kind is None:
            message, hint = f"missing field `type`: {what} needs it", f"Hint: write one of {known}."
            self.key("type").error("missing_key", message, expected=f"type: one of {known}", hint=hint)
            return None
        found = kind.node.text if isinstance(kind.node, Scalar) else ""
        if found in kinds:
            return found
        if found in aliases:
            kind.warn(
                "other_spelling",
                f"DevAll's own engine does not know the type `{found}` of {what}",
                f"write `type: {aliases[found]}`, which means the same and is known to both.",
            )
            return aliases[found]
        found = found if isinstance(kind.node, Scalar) else describe(kind.node)
        near = did_you_mean(found, [*kinds, *aliases]) or f"write one of {known}."
        message = f"unknown type `{found}` of {what}"
        kind.error("unknown_type", message, expected=f"one of {known}", hint=f"Hint: {near}")
        return None

    # --- keys that are not what their author thinks ---------------------------------------------------------

    def renamed(self, wrong: str, right: str, what: str) -> Self:
        """Return the mapping with the key `wrong` renamed to `right`, with a warning; unchanged if `right` exists."""
        if wrong not in self.entries or right in self.entries:
            return self
        self.key(wrong).warn(
            "other_spelling",
            f"DevAll's own engine does not read `{wrong}` in {what}",
            f"write `{right}`, which means the same and is read by both.",
        )
        return self.with_entries({right if key == wrong else key: entry for key, entry in self.entries.items()})

    def ignored(self, keys: Dict[str, str], what: str) -> Self:
        """Return the mapping without the keys that this dialect ignores, each with a warning and a remedy."""
        for key, hint in keys.items():
            if key in self.entries:
                message = f"`{key}` in {what} has no effect with `compat: devall`"
                self.key(key).warn("ignored_key", message, hint)
        return self.without(*keys)

    def misplaced(self, keys: Dict[str, str], what: str) -> Self:
        """Return the mapping without keys that have no effect here, each with a warning that names the right place."""
        for key, hint in keys.items():
            if self.get(key) is not None:
                self.key(key).warn("unknown_key", f"unknown key `{key}` in {what}; it has no effect", hint)
        return self.without(*keys)

    # --- other values in its place --------------------------------------------------------------------------

    def with_entries(self, entries: dict[str, Entry]) -> Self:
        """Return a mapping of these entries at the position of this value."""
        return type(self)(self.reading, Mapping(entries, self.node.line, self.node.column), self.path, self.place)

    def with_value(self, key: str, value: Node) -> Self:
        """Return the mapping with another value under a key."""
        place = self.entries.get(key) or next(iter(self.entries.values()))
        return self.with_entries({**self.entries, key: msgspec.structs.replace(place, value=value)})

    def without(self, *keys: str) -> Self:
        """Return the mapping without some keys."""
        return self.with_entries({key: entry for key, entry in self.entries.items() if key not in keys})


def _is_empty(entry: Entry) -> bool:
    return isinstance(entry.value, Scalar) and entry.value.value == ""


@lru_cache(maxsize=64)
def _optional_texts(cls: type[msgspec.Struct]) -> frozenset[str]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return frozenset(field.encode_name for field in info.fields if not field.required and _is_text(field.type))


def _is_text(wanted: inspect.Type) -> bool:
    while isinstance(wanted, inspect.Metadata):
        wanted = wanted.type
    if isinstance(wanted, inspect.UnionType):
        return any(_is_text(option) for option in wanted.types)
    return isinstance(wanted, inspect.StrType | inspect.LiteralType)
