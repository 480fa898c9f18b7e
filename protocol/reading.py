"""Fills msgspec structs from a positioned tree, and reports everything that does not fit.

msgspec's own decoder stops at the first error and knows no lines. Here the struct's field types are the table:
for each key the type says what may stand there, and a value that does not fit becomes a `Problem` with its
line and column, what was found, what was expected and how to mend it. Nothing is coerced: a number is no text
and `"30"` is no number. Three liberties, all about what people mean: a key without a value (`tools:` and nothing
after it) counts as not given, keys that start with `x-` are the author's own, and a version may be written as a number.

Reading goes on after a problem, with a stand-in for what could not be read, so that one pass finds all of them.
`broken` names the paths of the stand-ins: later checks skip those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Dict
from functools import lru_cache
from typing import Any, TypeVar, Unpack

import msgspec
from msgspec import inspect

from .no_effect import why_without_effect
from .problems import Problem, Remedy, Severity, did_you_mean
from .tree import Entry, Mapping, Node, Path, Scalar, Sequence, describe, dotted, is_null, plain

T = TypeVar("T", bound=msgspec.Struct)

YAML_ERROR = "YAML parsing error: "


class Reading:
    """One file while it is read.

    Attributes:
        prefix: what the texts about shapes begin with; Loki's words by default.
        problems: everything found so far, in the order of reading.
        broken: the paths of values that could not be read.
    """

    def __init__(self, file: str, *, prefix: str = YAML_ERROR) -> None:
        self.file = file
        self.prefix = prefix
        self.problems: list[Problem] = []
        self.broken: set[Path] = set()
        self._near: dict[tuple[str, str], str | None] = {}  # to look for a near name takes its time

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
        """A `cls` with the values of the mapping `node`.

        Args:
            what: how messages call the mapping: `an llm node`.
            given: values of keys that the caller has read already.
            hidden: fields of the struct that are no keys of the file.
            elsewhere: for keys this mapping can't have, where they would belong (`llm nodes`).
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
            if value and value is not _BROKEN and (why := why_without_effect(field)) is not None:
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
        """Add a problem about `path`; an error also marks it as broken."""
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
        """Warn of a key of the mapping at `path` that nothing reads."""
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

    # what a dialect may read in another way

    def node_at(self, path: Path) -> str | None:
        """The name of the node a path leads into, if it does."""
        return node_of(path)

    def taken_as(self, wanted: inspect.Type, extra: Dict[str, Any], node: Node, path: Path) -> Node:  # noqa: ARG002 - to be overridden
        """What stands there as it is to be read; `extra` is what the type's `Meta` says beside it."""
        return node

    # one value

    def _value(self, wanted: inspect.Type, node: Node, path: Path) -> Any:
        """The value of `node` as the type wants it, or `_BROKEN` with a problem reported."""
        whole = wanted
        extra: Dict[str, Any] = {}
        while isinstance(wanted, inspect.Metadata):
            extra = {**(wanted.extra or {}), **extra}
            wanted = wanted.type
        node = self.taken_as(wanted, extra, node, path)
        if extra.get("one_or_many") and isinstance(node, Scalar) and isinstance(node.value, str):
            return (node.value,)
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
        """The texts of a list as one, with commas."""
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
        hint = f"Hint: {_remedy(wanted, node)}"
        self.report("error", "wrong_type", what, path, node, expected=wording(wanted), hint=hint)
        return _BROKEN

    def _missing(
        self, key: str, field: inspect.Field, node: Mapping, path: Path, what: str, fields: Iterable[inspect.Field]
    ) -> Any:
        present = node.entries.get(key)
        place = (present.line, present.column) if present else (node.line, node.column)
        state = "stands there without a value" if present else "is not there"
        required = ", ".join(f"`{other.encode_name}`" for other in fields if other.required)
        message = f"{self.prefix}missing field `{key}`: {what} needs it, and it {state}"
        expected, hint = f"`{key}:` with {wording(field.type)}", f"Hint: the required fields of {what} are {required}."
        self.report("error", "missing_key", message, (*path, key), place, expected=expected, hint=hint)
        return _stand_in(field.type)


def node_of(path: Path) -> str | None:
    """The graph node a path leads into, if it does."""
    return str(path[1]) if len(path) > 1 and path[0] == "nodes" else None


def in_file_order(problems: Iterable[Problem], *, strict: bool = False) -> list[Problem]:
    """The problems by line and column; with `strict`, every warning as an error."""
    ordered = sorted(problems, key=lambda problem: (problem.line, problem.column))
    if not strict:
        return ordered
    return [msgspec.structs.replace(problem, severity="error") for problem in ordered]


# --- what types say ---------------------------------------------------------------------------------------

_BROKEN: Any = object()
_A_TEXT = inspect.StrType(min_length=1)
_TEXTS = frozenset({"one_or_many", "joined"})
"""What the `Meta` of a text says that may be a list of texts."""


@lru_cache(maxsize=64)
def fields_of(cls: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    """The fields of a struct, with their types."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _bare(wanted: inspect.Type) -> inspect.Type:
    while isinstance(wanted, inspect.Metadata):
        wanted = wanted.type
    return wanted


def _fits(wanted: inspect.Type, node: Node) -> bool:
    """Whether a node has the shape of the type; what is inside is not looked at."""
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
        return type(value) is int
    if isinstance(bare, inspect.FloatType):
        return type(value) in (int, float)
    return isinstance(bare, inspect.AnyType) or (isinstance(bare, inspect.NoneType) and value is None)


def _broken_bound(wanted: inspect.Type, value: Any) -> str | None:
    """The bound of the type that the value breaks, in words."""
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
    """A type in words, for `expected`."""
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
    if isinstance(node, Scalar) and "number" in what and isinstance(node.value, str) and _is_number(node.value):
        return f"remove the quotes: {node.text}."
    return f"write {what}."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _stand_in(wanted: inspect.Type) -> Any:
    """A harmless value of the type, for a required field that could not be read."""
    bare = _bare(wanted)
    if isinstance(bare, inspect.VarTupleType):
        return ()
    if isinstance(bare, inspect.DictType):
        return {}
    return ""
