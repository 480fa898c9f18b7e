"""How a workflow file is read: `protocol.reading`, with the habits of DevAll's files.

- A block is a `type` and a `config`; the type decides what the config may say (`typed`).
- An empty text for an optional one counts as not given. `yes` and `no` without quotes are booleans, as in YAML 1.1.
  Some numbers may stand in quotes, and some texts may be written as numbers.
- A key may be one that only the guide knows, or that stands at the wrong level, or has another name: `renamed`,
  `ignored` and `misplaced` say so with the right spelling.

A problem names the node it belongs to; one in a subgraph names the way there, `review/writer`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Mapping as Dict
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ...problems import did_you_mean
from ...reading import Reading
from ...source import Entry, Mapping, Node, Path, Scalar, Sequence, describe, dotted
from ..dialect import Dialect
from ..known import Known

T = TypeVar("T", bound=msgspec.Struct)

_YES = frozenset({"yes", "Yes", "YES", "on", "On", "ON"})
_NO = frozenset({"no", "No", "NO", "off", "Off", "OFF"})


class WorkflowReading(Reading):
    """One file while it is read.

    Attributes:
        names: for the path of every node read so far, how problems call it.
    """

    def __init__(self, file: str, dialect: Dialect, known: Known) -> None:
        super().__init__(file, prefix="")
        self.dialect = dialect
        self.known = known
        self.names: dict[Path, str] = {}

    def node_at(self, path: Path) -> str | None:
        for length in range(len(path), 0, -1):
            name = self.names.get(path[:length])
            if name is not None:
                return name
        return None

    # blocks

    def block(
        self,
        cls: type[T],
        node: Mapping,
        path: Path,
        *,
        what: str,
        given: Dict[str, Any] | None = None,
        hidden: Iterable[str] = (),
        elsewhere: Dict[str, str] | None = None,
    ) -> T:
        """`fill`, for which an empty text in the place of an optional one is not there."""
        optional = _optional_texts(cls)
        entries = {
            key: entry for key, entry in node.entries.items() if not (key in optional and _is_empty(entry.value))
        }
        return self.fill(
            cls,
            Mapping(entries, node.line, node.column),
            path,
            what=what,
            given=given,
            hidden=hidden,
            elsewhere=elsewhere,
        )

    def mapping(self, node: Node, path: Path, what: str, example: str) -> Mapping | None:
        """The node as a mapping, or None with a problem reported."""
        if isinstance(node, Mapping):
            return node
        self.report(
            "error",
            "wrong_type",
            f"{what} is {describe(node)}",
            path,
            node,
            expected="a mapping",
            hint=f"Hint: write {example}.",
        )
        return None

    def items(self, node: Mapping, key: str, path: Path, what: str, example: str) -> list[tuple[Node, Path]]:
        """The items of the list under `key` with their paths; none, perhaps with a problem, if there is no list."""
        entry = node.entries.get(key)
        if entry is None or is_null(entry.value):
            return []
        if isinstance(entry.value, Sequence):
            return [(item, (*path, key, i)) for i, item in enumerate(entry.value.items)]
        self.report(
            "error",
            "wrong_type",
            f"`{dotted((*path, key))}` is {describe(entry.value)}",
            (*path, key),
            entry.value,
            expected=f"a list of {what}",
            hint=f"Hint: put a dash before each of them: `- {example}`.",
        )
        return []

    def typed(
        self,
        node: Mapping,
        path: Path,
        *,
        what: str,
        kinds: Collection[str],
        also: Collection[str] | None = (),
        needs_config: bool = True,
        aliases: Dict[str, str] | None = None,
    ) -> tuple[str, Mapping, Path] | None:
        """The type of a block, its config and the config's path; None with a problem reported.

        Args:
            also: what may stand beside `type` and `config`; None if the caller looks at that.
            needs_config: no `config` is a mistake; else it is an empty one.
            aliases: names of types that are read as another, with a warning.
        """
        kind = self._kind(node, path, what, kinds, aliases or {})
        config = node.entries.get("config")
        beside = ("type", "config", *(node.entries if also is None else also))
        strays = {key: e for key, e in node.entries.items() if key not in beside and not key.startswith("x-")}
        empty = config is None or is_null(config.value)
        for key, entry in strays.items():
            inside = {key: f"the `config` of {what}"}
            self.unknown_key(key, entry, path, what, beside, inside if empty else {})
        if empty and needs_config:
            place = (config.line, config.column) if config is not None else (node.line, node.column)
            indented = f"; `{next(iter(strays))}` belongs under it" if strays else ""
            self.report(
                "error",
                "missing_key",
                f"missing field `config`: {what} needs it{indented}",
                (*path, "config"),
                place,
                expected="`config:` with a mapping",
                hint="Hint: write `config:` and indent its keys under it; `config: {}` if there are none.",
            )
            return None
        inner = Mapping({}, node.line, node.column)
        if not empty and config is not None:
            found = self.mapping(config.value, (*path, "config"), f"the `config` of {what}", "`config:` and its keys")
            if found is None:
                return None
            inner = found
        return None if kind is None else (kind, inner, (*path, "config"))

    def _kind(
        self, node: Mapping, path: Path, what: str, kinds: Collection[str], aliases: Dict[str, str]
    ) -> str | None:
        known = ", ".join(kinds)
        entry = node.entries.get("type")
        if entry is None or is_null(entry.value):
            place = (entry.line, entry.column) if entry else (node.line, node.column)
            self.report(
                "error",
                "missing_key",
                f"missing field `type`: {what} needs it",
                (*path, "type"),
                place,
                expected=f"type: one of {known}",
                hint=f"Hint: write one of {known}.",
            )
            return None
        found = entry.value.text if isinstance(entry.value, Scalar) else describe(entry.value)
        if isinstance(entry.value, Scalar) and found in kinds:
            return found
        if isinstance(entry.value, Scalar) and found in aliases:
            self.report(
                "warning",
                "other_spelling",
                f"DevAll's own engine does not know the type `{found}` of {what}",
                (*path, "type"),
                entry.value,
                hint=f"write `type: {aliases[found]}`, which means the same and is known to both.",
            )
            return aliases[found]
        near = did_you_mean(found, [*kinds, *aliases])
        self.report(
            "error",
            "unknown_type",
            f"unknown type `{found}` of {what}",
            (*path, "type"),
            entry.value,
            expected=f"one of {known}",
            hint=f"Hint: {near or f'write one of {known}.'}",
        )
        return None

    # keys that are not what their author thinks

    def renamed(self, node: Mapping, path: Path, names: Dict[str, str], what: str) -> Mapping:
        """The mapping with other spellings of its keys replaced, each with a warning."""
        if names.keys().isdisjoint(node.entries):
            return node
        entries: dict[str, Entry] = {}
        for key, entry in node.entries.items():
            right = names.get(key)
            if right is None or right in node.entries:
                entries[key] = entry
                continue
            self.report(
                "warning",
                "other_spelling",
                f"DevAll's own engine does not read `{key}` in {what}",
                (*path, key),
                (entry.line, entry.column),
                hint=f"write `{right}`, which means the same and is read by both.",
            )
            entries[right] = entry
        return Mapping(entries, node.line, node.column)

    def ignored(self, node: Mapping, path: Path, keys: Dict[str, str], what: str) -> Mapping:
        """The mapping without the keys that this dialect passes over, each with a warning and the way to mend it."""
        if keys.keys().isdisjoint(node.entries):
            return node
        for key, hint in keys.items():
            entry = node.entries.get(key)
            if entry is not None:
                self.report(
                    "warning",
                    "ignored_key",
                    f"`{key}` in {what} has no effect with `compat: devall`",
                    (*path, key),
                    (entry.line, entry.column),
                    hint=hint,
                )
        return Mapping({k: e for k, e in node.entries.items() if k not in keys}, node.line, node.column)

    def misplaced(self, node: Mapping, path: Path, keys: Dict[str, str], what: str) -> Mapping:
        """The mapping without keys that have no effect here, each with a warning that says where it would have one."""
        if keys.keys().isdisjoint(node.entries):
            return node
        for key, hint in keys.items():
            entry = node.entries.get(key)
            if entry is not None and not is_null(entry.value):
                self.report(
                    "warning",
                    "unknown_key",
                    f"unknown key `{key}` in {what}; it has no effect",
                    (*path, key),
                    (entry.line, entry.column),
                    hint=hint,
                )
        return Mapping({k: e for k, e in node.entries.items() if k not in keys}, node.line, node.column)

    # values

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
        if isinstance(wanted, inspect.StrType) and wanted.min_length and isinstance(value, str) and value.isspace():
            return Scalar("", node.text, node.line, node.column)
        return node

    def boolean(self, node: Scalar, path: Path) -> Scalar:
        """The value with `yes` and the like as what YAML 1.1 means by them, which is what DevAll reads."""
        if node.quoted or not isinstance(node.value, str) or node.value not in _YES | _NO:
            return node
        right = "true" if node.value in _YES else "false"
        self._loosely(node, path, f"`{dotted(path)}` is {node.value}, which YAML 1.2 has as text", f"write {right}.")
        return Scalar(node.value in _YES, node.text, node.line, node.column)

    def _number(self, wanted: inspect.Type, node: Scalar, path: Path) -> Node:
        """A number that stands in quotes or has a fraction, as DevAll takes it."""
        cast = int if isinstance(wanted, inspect.IntType) else float
        if isinstance(node.value, bool) or not isinstance(node.value, str | float) or cast is type(node.value):
            return node
        try:
            number = cast(node.value)
        except (ValueError, OverflowError):
            return node
        if number != number or abs(number) >= 2**63:
            return node
        self._loosely(node, path, f"`{dotted(path)}` is {describe(node)}, taken as {number}", f"write {number}.")
        return Scalar(number, str(number), node.line, node.column)

    def _loosely(self, node: Scalar, path: Path, message: str, hint: str) -> None:
        self.report("warning", "loose_value", message, path, node, hint=hint)


def is_null(node: Node) -> bool:
    """Whether a key stands there without a value."""
    return isinstance(node, Scalar) and node.value is None


def with_value(node: Mapping, key: str, value: Node) -> Mapping:
    """The mapping with another value under a key."""
    entry = node.entries.get(key)
    place = entry if entry is not None else next(iter(node.entries.values()))
    return Mapping({**node.entries, key: msgspec.structs.replace(place, value=value)}, node.line, node.column)


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value == ""


@lru_cache(maxsize=64)
def _optional_texts(cls: type[msgspec.Struct]) -> frozenset[str]:
    """The keys of a struct that are a text or nothing."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return frozenset(field.encode_name for field in info.fields if not field.required and _is_text(field.type))


def _is_text(wanted: inspect.Type) -> bool:
    while isinstance(wanted, inspect.Metadata):
        wanted = wanted.type
    if isinstance(wanted, inspect.UnionType):
        return any(_is_text(option) for option in wanted.types)
    return isinstance(wanted, inspect.StrType | inspect.LiteralType)
