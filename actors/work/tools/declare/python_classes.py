"""The classes of a tool file that JSON can fill: dataclasses, TypedDicts, named tuples, enums, pydantic's models."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from .declaration import Schema
from .docstrings import read_docstring
from .python_module import NO_VALUE
from .schemas import described, enum, obj, with_default

if TYPE_CHECKING:
    from .python_module import Module
    from .schemas import Expansion
    from .script import Unreadable

_ENUMS = {"Enum", "StrEnum", "IntEnum"}
_FACTORIES: dict[str, Any] = {"list": list, "dict": dict, "tuple": list, "str": str, "int": int, "bool": bool}


class TypeReader(Protocol):
    """Reads the types of fields; see `python_types.Types`, which has classes read here."""

    module: Module
    expansion: Expansion

    def schema(self, node: ast.expr) -> Schema:
        """The schema of an annotation."""

    def wrong(self, node: ast.AST, message: str, *, expected: str = "", hint: str = "") -> Unreadable:
        """An error at this place."""


class _Field(msgspec.Struct, frozen=True):
    annotation: ast.expr
    needed: bool
    default: Any
    text: str


def class_schema(types: TypeReader, node: ast.ClassDef) -> Schema:
    """The schema of a class of the file.

    Raises:
        Unreadable: it is none that JSON can fill, or has a field that it can't.
    """
    doc = read_docstring(ast.get_docstring(node, clean=False))
    kind = _kind(types, node)
    if kind == "enum":
        members = types.module.members(node)
        unknown = [name for name, value in members.items() if value is NO_VALUE]
        if unknown or not members:
            what = f"the value of '{unknown[0]}' in" if unknown else "the members of"
            raise types.wrong(
                node, f"{what} the enum '{node.name}' can't be known without running it", hint="write a literal"
            )
        return described(enum(members.values()), doc.description)
    if not kind:
        raise types.wrong(
            node,
            f"the class '{node.name}' can't be filled from JSON",
            expected="a dataclass, a TypedDict, a NamedTuple, an Enum or a pydantic model",
        )
    fields = _fields(types, node, kind)
    return described(_object(types, fields), doc.description)


def dict_schema(types: TypeReader, call: ast.Call) -> Schema:
    """The schema of `TypedDict("Name", {"key": type, ...})`."""
    total = _total(call.keywords)
    shape = call.args[1]
    assert isinstance(shape, ast.Dict)
    fields: dict[str, _Field] = {}
    for key, annotation in zip(shape.keys, shape.values, strict=True):
        name = NO_VALUE if key is None else types.module.value(key)
        if not isinstance(name, str):
            raise types.wrong(annotation, "a key of this TypedDict is no text")
        fields[name] = _Field(annotation, _must_be_there(types, annotation, total), NO_VALUE, "")
    return _object(types, fields)


def _object(types: TypeReader, fields: dict[str, _Field]) -> Schema:
    properties: dict[str, Schema] = {}
    for name, field in fields.items():
        schema = described(types.schema(field.annotation), field.text)
        properties[name] = schema if field.default is NO_VALUE else with_default(schema, field.default)
    return obj(properties, [name for name, field in fields.items() if field.needed])


def _kind(types: TypeReader, node: ast.ClassDef) -> str:
    """`enum`, `dict`, `tuple`, `model`, `dataclass` or ""; a class is what its bases are."""
    names = [types.module.original(base) for base in node.bases]
    if _ENUMS & set(names):
        return "enum"
    for base, kind in (("TypedDict", "dict"), ("NamedTuple", "tuple"), ("BaseModel", "model")):
        if base in names and base not in types.module.classes:
            return kind
    for decorator in node.decorator_list:
        if types.module.original(decorator.func if isinstance(decorator, ast.Call) else decorator) == "dataclass":
            return "dataclass"
    for name in names:
        if name in types.module.classes:
            with types.expansion.of(f"class {name}"):
                kind = _kind(types, types.module.classes[name])
            if kind in ("dict", "model"):
                return kind
    return ""


def _fields(types: TypeReader, node: ast.ClassDef, kind: str) -> dict[str, _Field]:
    found: dict[str, _Field] = {}
    for base in reversed(node.bases):
        name = types.module.original(base)
        if name in types.module.classes:
            with types.expansion.of(f"class {name}"):
                found.update(_fields(types, types.module.classes[name], kind))
    doc = read_docstring(ast.get_docstring(node, clean=False))
    total = _total(node.keywords)
    for item, below in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        name = item.target.id
        outer = types.module.original(_outer(item.annotation))
        if outer in ("ClassVar", "KW_ONLY"):
            continue
        needed, default = _default(types, item.value)
        if needed is None:
            continue
        if kind == "dict":
            needed = _must_be_there(types, item.annotation, total)
        entry = doc.entries.get(name)
        text = entry.text if entry is not None else _text(below) or _told(types, item.value)
        found[name] = _Field(item.annotation, needed, default, text)
    return found


def _default(types: TypeReader, value: ast.expr | None) -> tuple[bool | None, Any]:
    """Whether the field has to be given (None: it can't be), and its default."""
    if value is None:
        return True, NO_VALUE
    if not isinstance(value, ast.Call) or types.module.original(value.func) not in ("field", "Field"):
        return False, types.module.value(value)
    said = {word.arg: word.value for word in value.keywords}
    if value.args:  # `Field(...)`, with these very dots, is a default that isn't one
        required = isinstance(value.args[0], ast.Constant) and value.args[0].value is ...
        return required, NO_VALUE if required else types.module.value(value.args[0])
    if "init" in said and types.module.value(said["init"]) is False:
        return None, NO_VALUE
    if "default" in said:
        return False, types.module.value(said["default"])
    if "default_factory" in said:
        return False, _made_by(types.module.original(said["default_factory"]))
    return True, NO_VALUE


def _made_by(factory: str) -> Any:
    return _FACTORIES[factory]() if factory in _FACTORIES else NO_VALUE


def _total(keywords: list[ast.keyword]) -> bool:
    return not any(
        word.arg == "total" and isinstance(word.value, ast.Constant) and word.value.value is False for word in keywords
    )


def _must_be_there(types: TypeReader, annotation: ast.expr, total: bool) -> bool:
    """Whether a key of a TypedDict has to be there: `Required` and `NotRequired`, also within `Annotated`, say so."""
    while isinstance(annotation, ast.Subscript):
        name = types.module.original(annotation.value)
        if name in ("Required", "NotRequired"):
            return name == "Required"
        if name not in ("Annotated", "ReadOnly"):
            break
        annotation = annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
    return total


def _outer(annotation: ast.expr) -> ast.expr:
    return annotation.value if isinstance(annotation, ast.Subscript) else annotation


def _told(types: TypeReader, value: ast.expr | None) -> str:
    """The description in pydantic's `Field(description="...")`."""
    words = value.keywords if isinstance(value, ast.Call) else []
    texts = [types.module.value(word.value) for word in words if word.arg == "description"]
    return texts[0].strip() if texts and isinstance(texts[0], str) else ""


def _text(below: ast.stmt | None) -> str:
    """The text under a field, which is its documentation by custom."""
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
        return " ".join(below.value.value.split())
    return ""
