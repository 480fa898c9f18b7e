"""Python's annotations as JSON Schemas.

What JSON has is exact: `str`, `int`, `list[T]`, `dict[str, T]`, `Literal`, unions, tuples, and the file's own
aliases, dataclasses, TypedDicts, enums and the like, written out where they are used. A type that comes from elsewhere
can't be known without importing it: it is a text for the model, and a warning for the author.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from .declaration import Schema
from .python_classes import class_schema, dict_schema
from .python_module import NO_VALUE, Module
from .schemas import Circle, Expansion, TooLarge, any_of, array, described, enum, fixed_array, null
from .script import Unreadable

__all__ = ["NO_VALUE", "Types"]

_PLAIN: Final[dict[str, Schema]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "NoneType": {"type": "null"},
    "Any": {},
    "object": {},
    "LiteralString": {"type": "string"},
    "AnyStr": {"type": "string"},
    "Text": {"type": "string"},
    "Path": {"type": "string"},
    "PathLike": {"type": "string"},
    "Decimal": {"type": "number"},
}
_SAID: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "array": array({}),
    "object": {"type": "object"},
}
"""Words for types in docstrings, besides Python's own."""

_LISTS = {"list", "List", "Sequence", "MutableSequence", "Iterable", "Collection", "deque", "Deque"}
_SETS = {"set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet"}
_DICTS = {"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict", "DefaultDict"}
_TUPLES = {"tuple", "Tuple"}
_WRAPPERS = {"Required", "NotRequired", "ReadOnly", "Final", "InitVar", "ClassVar"}
_DEEPEST = 40


class Types:
    """Reads the annotations of one function.

    Attributes:
        module: where its names come from.
        doubts: what was read, but is probably not meant.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.doubts: list[Unreadable] = []
        self.expansion = Expansion()
        self._depth = 0

    def schema(self, node: ast.expr) -> Schema:
        """The schema of an annotation; None is an alternative of its own.

        Raises:
            Unreadable: there is none.
        """
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise self.wrong(node, "the type is nested too deeply")
            self.expansion.part()
            return self._schema(node)
        except Circle as circle:
            raise self.wrong(
                node, f"the type '{circle}' contains itself", hint="take a dict, or JSON as a text, for nested data"
            ) from None
        except TooLarge:
            raise self.wrong(node, "the types of this function are too large to be told to a model") from None
        finally:
            self._depth -= 1

    def named(self, text: str) -> Schema:
        """The schema of a type in a docstring; text if it is none that we know."""
        try:
            node = ast.parse(text.strip(), mode="eval").body
            known = len(self.doubts)
            schema = _SAID.get(text.strip().lower()) or self.schema(node)
            del self.doubts[known:]
        except (Unreadable, SyntaxError, ValueError, RecursionError, MemoryError):
            return {"type": "string"}
        return schema

    def of_value(self, value: Any) -> Schema:
        """The schema that a default value suggests."""
        if isinstance(value, list):
            return array({})
        if isinstance(value, dict):
            return {"type": "object"}
        if value is NO_VALUE or value is None:
            return {"type": "string"}
        return {"type": enum([value])["type"]}

    def wrong(self, node: ast.AST, message: str, *, expected: str = "", hint: str = "") -> Unreadable:
        """An error at this place."""
        line, offset = getattr(node, "lineno", 0), getattr(node, "col_offset", None)
        return Unreadable("python_type", message, line, offset, expected=expected, hint=hint)

    def _schema(self, node: ast.expr) -> Schema:
        if isinstance(node, ast.Constant):
            return self._quoted(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return any_of([self.schema(part) for part in _alternatives(node)])
        if isinstance(node, ast.Subscript):
            inside = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
            return self._generic(node, self.module.original(node.value), inside)
        name = self.module.original(node)
        if name:
            return self._name(node, name)
        raise self.wrong(node, "this is no type", expected="a type such as `str`, `list[int]` or `Literal['a', 'b']`")

    def _quoted(self, node: ast.Constant) -> Schema:
        if node.value is None:
            return null()
        if not isinstance(node.value, str):
            raise self.wrong(node, f"{node.value!r} is no type", hint=f"did you mean Literal[{node.value!r}]?")
        try:
            inner = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self.wrong(node, f"'{node.value[:60]}' is no type", hint="did you mean Literal?") from None
        for part in ast.walk(inner):  # problems are to be reported where the text stands
            if isinstance(part, ast.expr):
                part.lineno, part.col_offset = node.lineno, node.col_offset
        return self.schema(inner)

    def _name(self, node: ast.expr, name: str) -> Schema:
        module = self.module
        if name in module.classes:
            with self.expansion.of(name):
                return class_schema(self, module.classes[name])
        if name in module.assigned:
            with self.expansion.of(name):
                return self._alias(node, name, module.assigned[name])
        if name in _PLAIN:
            return dict(_PLAIN[name])
        if name in _LISTS | _SETS | _DICTS | _TUPLES:
            return {"type": "object"} if name in _DICTS else array({})
        message = f"the type '{name}' can't be told to a model, so the function is given a text"
        if all(doubt.message != message for doubt in self.doubts):
            hint = "a dataclass, TypedDict or Enum in the same file is told in full"
            self.doubts.append(self.wrong(node, message, hint=hint))
        return {"type": "string"}

    def _alias(self, node: ast.expr, name: str, value: ast.expr) -> Schema:
        if not isinstance(value, ast.Call):
            return self.schema(value)
        made_by = self.module.original(value.func)
        if made_by == "NewType" and len(value.args) == 2:
            return self.schema(value.args[1])
        if made_by == "TypedDict" and len(value.args) == 2 and isinstance(value.args[1], ast.Dict):
            return dict_schema(self, value)
        raise self.wrong(node, f"'{name}' can't be read as a type", hint="write it as a class")

    def _generic(self, node: ast.Subscript, name: str, inside: list[ast.expr]) -> Schema:
        if name in ("Optional", "Union"):
            parts = [self.schema(part) for part in inside]
            return any_of([*parts, null()] if name == "Optional" else parts)
        if name == "Literal":
            return enum(self._literals(inside))
        if name == "Annotated":
            return described(self.schema(inside[0]), self._annotation(inside[1:]))
        if name in _WRAPPERS:
            return self.schema(inside[0])
        if name in _LISTS:
            return array(self.schema(inside[0]))
        if name in _SETS:
            return {**array(self.schema(inside[0])), "uniqueItems": True}
        if name in _DICTS:
            values = self.schema(inside[1]) if len(inside) == 2 else {}
            return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
        if name in _TUPLES:
            return self._tuple(inside)
        return self._name(node.value, name or "this")

    def _tuple(self, inside: list[ast.expr]) -> Schema:
        if len(inside) == 2 and isinstance(inside[1], ast.Constant) and inside[1].value is ...:
            return array(self.schema(inside[0]))
        return fixed_array([self.schema(part) for part in inside])

    def _literals(self, inside: list[ast.expr]) -> Iterator[Any]:
        for part in inside:
            value = self.module.value(part)
            if value is NO_VALUE or isinstance(value, list | dict | float):
                raise self.wrong(part, "Literal takes texts, whole numbers, booleans and None")
            yield value

    def _annotation(self, notes: list[ast.expr]) -> str:
        """The description in `Annotated[T, "..."]`, `Doc("...")` or `Field(description="...")`."""
        for note in notes:
            told: list[ast.expr] = [note]
            if isinstance(note, ast.Call):
                told = [*note.args[:1], *(word.value for word in note.keywords if word.arg == "description")]
            for one in told:
                text = self.module.value(one)
                if isinstance(text, str):
                    return text.strip()
        return ""


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """The parts of `A | B | C`, which Python nests to the left, however many."""
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]
