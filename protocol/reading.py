"""Reader of msgspec structs from a positioned tree, which reports everything that does not fit.

msgspec's own decoder stops at the first error and has no line numbers. Here the struct's field types are the table.
For each key the type defines the permitted values. A value that does not fit becomes a `Problem` with its line and
column, the value found, the expectation and a remedy. Nothing is coerced: a number is not a text, and `"30"` is not a
number. There are three exceptions for convenience. A key without a value (`tools:` and nothing after it) counts as
missing. Keys that begin with `x-` belong to the author. A version may be written as a number.

Reading continues after a problem, with a stand-in for the unreadable value, so that one pass finds all problems.
`broken` has the paths of the stand-ins, which later checks skip.

`Reading` fills a whole struct. A reader of a part that no struct describes moves a `Cursor` over the tree: a position
with its value, and methods to report problems there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Dict
from functools import cached_property, lru_cache
from typing import Any, Self, TypeVar, Unpack

import msgspec
from msgspec import inspect

from .problems import Problem, Remedy, Severity, did_you_mean
from .schema import why_without_effect
from .tree import Entry, Mapping, Node, Path, Scalar, Sequence, describe, dotted, is_null, plain

T = TypeVar("T", bound=msgspec.Struct)

YAML_ERROR = "YAML parsing error: "


class Reading:
    """State of reading one file.

    Attributes:
        prefix: prefix of messages about types; Loki's words by default.
        problems: problems so far, in the order of reading.
        broken: paths of unreadable values.
    """

    def __init__(self, file: str, *, prefix: str = YAML_ERROR) -> None:
        self.file = file
        self.prefix = prefix
        self.problems: list[Problem] = []
        self.broken: set[Path] = set()
        self._near: dict[tuple[str, str], str | None] = {}  # cache: searching for a similar name takes time

    def fill(
        self,
        cls: type[T],
        node: Mapping,
        path: Path = (),
        *,
        what: str = "the file",
        given: Dict[str, Any] | None = None,
        hidden: Iterable[str] = (),
        elsewhere: Dict[str, str] | None = None,
    ) -> T:
        """Return a `cls` with the values of the mapping `node`. Keys and values that do not fit are reported.

        An unreadable value is left at its default; a required one becomes a harmless value of its type (see `broken`).

        Args:
            what: name of the mapping in messages: `an llm node`.
            given: values of keys that the caller has read already.
            hidden: fields of the struct without a key in the file.
            elsewhere: for keys that this mapping cannot have, their proper place (`llm nodes`).
        """
        given = given or {}
        fields = {field.encode_name: field for field in fields_of(cls) if field.name not in hidden}
        for key, entry in node.entries.items():
            if key not in fields and not key.startswith("x-"):
                self.unknown_key(key, entry, path, what, fields, elsewhere or {})
        values: dict[str, Any] = {}
        for key, field in fields.items():
            if key in given:
                values[field.name] = given[key]
                continue
            present = node.entries.get(key)
            if present is None or is_null(present.value):
                if field.required:
                    values[field.name] = self._missing(key, field, node, path, what, fields.values())
                continue
            value = self._value(field.type, present.value, (*path, key))
            # No warning for false, 0 or an empty value: such a key turns something off that does not happen anyway.
            if value and value is not _BROKEN and (why := why_without_effect(field.type)) is not None:
                self._without_effect(key, present, path, why)
            if value is not _BROKEN:
                values[field.name] = value
            elif field.required:
                values[field.name] = _stand_in(field.type)
        values.update({name: given[name] for name in hidden if name in given})
        return cls(**values)

    def report(
        self,
        severity: Severity,
        code: str,
        message: str,
        path: Path,
        place: tuple[int, int] | Node,
        **remedy: Unpack[Remedy],
    ) -> None:
        """Add a problem at `path`; an error also marks the path as broken."""
        line, column = place if isinstance(place, tuple) else (place.line, place.column)
        self.problems.append(
            Problem(
                severity=severity,
                file=self.file,
                line=line,
                column=column,
                code=code,
                message=message,
                node=self.node_at(path),
                key=dotted(path) or None,
                **remedy,
            )
        )
        if severity == "error":
            self.broken.add(path)

    def unknown_key(
        self, key: str, entry: Entry, path: Path, what: str, known: Iterable[str], elsewhere: Dict[str, str]
    ) -> None:
        """Warn about an unknown key of the mapping at `path`."""
        known = list(known)
        if key in elsewhere:
            hint: str | None = f"`{key}` is a key of {elsewhere[key]}; remove it here."
        elif (what, key) in self._near:
            hint = self._near[what, key]
        else:
            hint = self._near[what, key] = did_you_mean(key, known)
        message, expected = f"unknown key `{key}` in {what}; it has no effect", f"one of {', '.join(known)}"
        usual = "remove it, or start its name with `x-` if it is a note of your own."
        more = Remedy(hint=hint) if hint else Remedy(expected=expected, hint=usual)
        self.report("warning", "unknown_key", message, (*path, key), (entry.line, entry.column), **more)

    def _without_effect(self, key: str, entry: Entry, path: Path, why: str) -> None:
        what, hint = f"`{key}` has no effect: {why}", "remove it, or leave it for programs that know it."
        self.report("warning", "ignored_key", what, (*path, key), (entry.line, entry.column), hint=hint)

    # overridden by dialects

    def node_at(self, path: Path) -> str | None:
        """Return the name of the node that a path leads into; None for a path outside of the nodes."""
        return node_of(path)

    def taken_as(self, wanted: inspect.Type, extra: Dict[str, Any], node: Node, path: Path) -> Node:  # noqa: ARG002 - to be overridden
        """Return the node to read in place of `node`; a subclass may convert it.

        Args:
            extra: the `Meta(extra=...)` of the type.
        """
        return node

    # one value

    def _value(self, wanted: inspect.Type, node: Node, path: Path) -> Any:
        """Return the value of `node` in the wanted type; `_BROKEN` after reporting a problem."""
        whole = wanted
        extra: Dict[str, Any] = {}
        while isinstance(wanted, inspect.Metadata):
            extra = {**(wanted.extra or {}), **extra}
            wanted = wanted.type
        node = self.taken_as(wanted, extra, node, path)
        if extra.get("one_or_many") and isinstance(node, Scalar) and isinstance(node.value, str):
            return (node.value,)
        # The text of the file, because the number of `version: 1.10` is 1.1.
        if extra.get("number_too") and isinstance(node, Scalar) and type(node.value) in (int, float):
            return node.text
        if extra.get("joined") and isinstance(node, Sequence):
            return self._joined(whole, node, path)
        if isinstance(wanted, inspect.UnionType):
            chosen = next((option for option in wanted.types if _fits(option, node)), None)
            return self._misfit(whole, node, path) if chosen is None else self._value(chosen, node, path)
        if isinstance(wanted, inspect.AnyType):
            return plain(node)
        if not _fits(wanted, node):
            return self._misfit(whole, node, path)
        if isinstance(node, Sequence):
            assert isinstance(wanted, inspect.VarTupleType)
            items = [self._value(wanted.item_type, item, (*path, i)) for i, item in enumerate(node.items)]
            return tuple(item for item in items if item is not _BROKEN)
        if isinstance(node, Mapping):
            return self._mapping(wanted, node, path)
        # `search`: patterns of msgspec and of JSON Schema are not anchored.
        if isinstance(wanted, inspect.StrType) and wanted.pattern and not re.search(wanted.pattern, node.value):
            what = f"{self.prefix}invalid value: `{dotted(path)}` is {describe(node)}"
            shape = extra.get("shape", f"a text like {wanted.pattern}")
            self.report("error", "wrong_value", what, path, node, expected=shape, hint=f"Hint: write {shape}.")
            return _BROKEN
        return self._scalar(wanted, node, path)

    def _mapping(self, wanted: inspect.Type, node: Mapping, path: Path) -> Any:
        if isinstance(wanted, inspect.StructType):
            return self.fill(wanted.cls, node, path, what=f"`{dotted(path)}`")
        assert isinstance(wanted, inspect.DictType)
        values = {key: self._value(wanted.value_type, entry.value, (*path, key)) for key, entry in node.entries.items()}
        return {key: value for key, value in values.items() if value is not _BROKEN}

    def _joined(self, wanted: inspect.Type, node: Sequence, path: Path) -> Any:
        """Return the texts of a list as one text, separated by commas."""
        items = [self._value(_A_TEXT, item, (*path, i)) for i, item in enumerate(node.items)]
        if not items:
            return self._misfit(wanted, node, path)
        return _BROKEN if any(item is _BROKEN for item in items) else ",".join(items)

    def _scalar(self, wanted: inspect.Type, node: Scalar, path: Path) -> Any:
        if isinstance(wanted, inspect.LiteralType) and node.value not in wanted.values:
            names = [str(value) for value in wanted.values]
            expected = f"one of {', '.join(names)}"
            hint = did_you_mean(node.text, names) or f"Hint: write {expected}."
            what = f"{self.prefix}unknown variant `{node.text}` for `{dotted(path)}`"
            self.report("error", "unknown_value", what, path, node, expected=expected, hint=hint)
            return _BROKEN
        bound = _broken_bound(wanted, node.value)
        if bound is not None:
            what = f"{self.prefix}invalid value: `{dotted(path)}` is {describe(node)}"
            hint = f"Hint: write {bound}, or leave the key out for its default."
            self.report("error", "out_of_range", what, path, node, expected=bound, hint=hint)
            return _BROKEN
        return node.value

    # problems

    def _misfit(self, wanted: inspect.Type, node: Node, path: Path) -> Any:
        what = f"{self.prefix}invalid type: `{dotted(path)}` is {describe(node)}"
        for_list = isinstance(node, Sequence) and isinstance(wanted, inspect.Metadata) and wanted.extra
        hint = f"Hint: {(for_list and for_list.get('for_list')) or _remedy(wanted, node)}"
        self.report("error", "wrong_type", what, path, node, expected=wording(wanted), hint=hint)
        return _BROKEN

    def _missing(self, key: str, field: Field, node: Mapping, path: Path, what: str, fields: Iterable[Field]) -> Any:
        present = node.entries.get(key)
        place = (present.line, present.column) if present else (node.line, node.column)
        state = "has no value" if present else "is missing"
        required = ", ".join(f"`{other.encode_name}`" for other in fields if other.required)
        message = f"{self.prefix}missing field `{key}`: {what} needs it, and it {state}"
        expected, hint = f"`{key}:` with {wording(field.type)}", f"Hint: the required fields of {what} are {required}."
        self.report("error", "missing_key", message, (*path, key), place, expected=expected, hint=hint)
        return _stand_in(field.type)


def node_of(path: Path) -> str | None:
    """Return the id of the graph node that a path leads into; None for a path outside of `nodes`."""
    return str(path[1]) if len(path) > 1 and path[0] == "nodes" else None


def in_file_order(problems: Iterable[Problem], *, strict: bool = False) -> list[Problem]:
    """Return the problems by line and column; with `strict`, every warning as an error."""
    ordered = sorted(problems, key=lambda problem: (problem.line, problem.column))
    if not strict:
        return ordered
    return [msgspec.structs.replace(problem, severity="error") for problem in ordered]


# --- types --------------------------------------------------------------------------------------------------

_BROKEN: Any = object()
_A_TEXT = inspect.StrType(min_length=1)
_TEXTS = frozenset({"one_or_many", "joined"})
"""`Meta` markers of a text that may also be a list of texts."""


class Field:
    """Field of a struct: `name`, `encode_name` (its key in a file), `required`, `default`, and `type`.

    `msgspec.inspect.type_info` returns the same for whole structs. It also inspects nested structs, which takes 6 ms
    for all settings, and a file has few of them. So here a type is inspected when a file has its key.
    """

    def __init__(self, info: msgspec.structs.FieldInfo) -> None:
        self.name = info.name
        self.encode_name = info.encode_name
        self.required = info.required
        self.default = info.default
        self._annotation = info.type

    @cached_property
    def type(self) -> inspect.Type:
        return inspect.type_info(self._annotation)


@lru_cache(maxsize=64)
def fields_of(cls: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the fields of a struct."""
    return tuple(Field(info) for info in msgspec.structs.fields(cls))


def _bare(wanted: inspect.Type) -> inspect.Type:
    while isinstance(wanted, inspect.Metadata):
        wanted = wanted.type
    return wanted


def _fits(wanted: inspect.Type, node: Node) -> bool:
    """Return whether a node has the kind of the type; its contents are not checked."""
    bare = _bare(wanted)
    if isinstance(node, Sequence):
        return isinstance(bare, inspect.VarTupleType | inspect.AnyType)
    if isinstance(node, Mapping):
        return isinstance(bare, inspect.DictType | inspect.StructType | inspect.AnyType)
    value = node.value
    if isinstance(bare, inspect.StrType | inspect.LiteralType):
        return isinstance(value, str)
    if isinstance(bare, inspect.BoolType):
        return isinstance(value, bool)
    if isinstance(bare, inspect.IntType):
        # Not `isinstance`, here and below: a bool is an int, and `true` is not a number.
        return type(value) is int
    if isinstance(bare, inspect.FloatType):
        return type(value) in (int, float)
    return isinstance(bare, inspect.AnyType) or (isinstance(bare, inspect.NoneType) and value is None)


def _broken_bound(wanted: inspect.Type, value: Any) -> str | None:
    """Return the violated bound of the type as a text; None if there is none."""
    if isinstance(wanted, inspect.StrType):
        return "a text that is not empty" if wanted.min_length and not value else None
    if not isinstance(wanted, inspect.IntType | inspect.FloatType):
        return None
    noun = wording(wanted)
    if wanted.ge is not None and value < wanted.ge:
        return f"{noun} of at least {wanted.ge}"
    if wanted.gt is not None and value <= wanted.gt:
        return f"{noun} greater than {wanted.gt}"
    if wanted.le is not None and value > wanted.le:
        return f"{noun} of at most {wanted.le}"
    return None


def wording(wanted: inspect.Type) -> str:
    """Return a type as a text for `expected`."""
    bare = wanted
    while isinstance(bare, inspect.Metadata):
        if not _TEXTS.isdisjoint(bare.extra or ()):
            return "text, or a list of texts"
        bare = bare.type
    if isinstance(bare, inspect.UnionType):
        return " or ".join(wording(option) for option in bare.types if not isinstance(option, inspect.NoneType))
    if isinstance(bare, inspect.LiteralType):
        return f"one of {', '.join(str(value) for value in bare.values)}"
    if isinstance(bare, inspect.VarTupleType):
        item = wording(bare.item_type)
        return "a list of texts" if item == "text" else f"a list, each item {item}"
    if isinstance(bare, inspect.StructType):
        return f"a mapping with {', '.join(f'`{field.encode_name}`' for field in bare.fields)}"
    return _WORDS.get(type(bare), "a value")


_WORDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.DictType: "a mapping",
}


def _remedy(wanted: inspect.Type, node: Node) -> str:
    what = wording(wanted)
    if isinstance(node, Scalar) and "text" in what and not isinstance(node.value, str) and node.text:
        quoted = f'"{node.text}"'
        return f"write it as a list: [{quoted}]." if what.startswith("a list") else f"put quotes around it: {quoted}."
    if isinstance(node, Scalar) and what.startswith("a list") and isinstance(node.value, str):
        return f"write it as a list: [{node.text}]."
    if isinstance(node, Scalar) and "number" in what and isinstance(node.value, str):
        if _is_number(node.value):
            return f"remove the quotes: {node.text}."
        if (seconds := _in_seconds(node.value)) is not None:
            return f"write {what} of seconds: {seconds:g}."
    return f"write {what}."


_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def _in_seconds(text: str) -> float | None:
    """Return the seconds of `90s`, `1m`, `2 h`; None for other texts. No key has another unit."""
    # Strips any of the letters that occur in a unit; the lookup in `_UNITS` then checks the whole unit.
    number = text.strip().rstrip("smhdecin").rstrip()
    unit = text.strip()[len(number) :].strip()
    return float(number) * _UNITS[unit] if unit in _UNITS and _is_number(number) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _stand_in(wanted: inspect.Type) -> Any:
    """Return a harmless value of the type, for a required field that could not be read."""
    bare = _bare(wanted)
    if isinstance(bare, inspect.VarTupleType):
        return ()
    if isinstance(bare, inspect.DictType):
        return {}
    return ""


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
