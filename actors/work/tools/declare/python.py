'''Parser for Python tools: reads signatures and docstrings with `ast`. Code of the file never runs.

    def run(city: str, days: int = 3) -> str:
        """Forecasts the weather.

        Args:
            city: Where.
            days: How many days.
        """

A parameter's type is its annotation, else the type in the docstring (`city (str): Where.`), else the type of its
default, else text. It is optional if it has a default, may be None, or is marked optional in its docstring.
'''

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .declaration import Declaration, Schema, ToolScript, UnreadableDeclaration
from .docstrings import read_docstring
from .schemas import (
    NO_VALUE,
    DeclarationDraft,
    TypeReader,
    any_of,
    array,
    described,
    enum,
    fixed_array,
    null,
    obj,
    with_default,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef

UNSUPPORTED = "*args/*kwargs/positional-only parameters are not supported in tool functions"


def read_python(script: ToolScript, *, agent: bool, wordless: bool = False) -> list[Declaration]:
    """Return every tool of the file; problems are noted at `script`. `wordless`: see `read.read_tools`."""
    tree = _parsed(script)
    if tree is None:
        return []
    module = PythonModule(tree)
    # A later definition of the same name replaces the earlier one, as in Python itself.
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    if not agent:
        run = functions.get("run")
        if run is None:
            script.error(
                "no_entry",
                "the file has no function 'run'",
                0,
                hint="a global tool is a file with a function `def run(...)`; "
                "a file with several functions is an agent's tools.py",
            )
            return []
        one = _declaration(script, module, run, script.file.stem)
        return [] if one is None else [one]
    wanted = [node for name, node in functions.items() if name == "_instructions" or not name.startswith("_")]
    if not wanted:
        script.warning("no_tools", "the file declares no tools", 0, hint="a tool is a function at the top level")
    found = (_declaration(script, module, node, node.name, wordless=wordless) for node in wanted)
    return [one for one in found if one is not None]


def _parsed(script: ToolScript) -> ast.Module | None:
    where = script.file.name
    try:
        with warnings.catch_warnings():
            # Warnings about the user's code, such as "\\d": Python reports them when the file runs.
            warnings.simplefilter("ignore")
            return ast.parse(script.text)
    except SyntaxError as error:
        script.error(
            "python_syntax",
            f"failed to parse python: syntax error in {where}: {error.msg}",
            error.lineno or 0,
            len((error.text or "")[: max(0, (error.offset or 1) - 1)].encode(errors="replace")),
        )
    except (ValueError, RecursionError, MemoryError) as error:  # NUL, huge number, nesting too deep
        script.error("python_syntax", f"failed to parse python: {where}: {str(error) or 'too deeply nested'}", 0)
    return None


def _declaration(
    script: ToolScript, module: PythonModule, node: Function, name: str, *, wordless: bool = False
) -> Declaration | None:
    docstring = read_docstring(ast.get_docstring(node, clean=False))
    expected = "" if wordless else "a docstring that says what the function does"
    hint = "" if node.name == "run" else f"or rename it to '_{node.name}', which hides it from the model"
    draft = DeclarationDraft(script, name, node.name, node.lineno, node.col_offset, docstring, expected, hint)
    others = [each for each in (node.args.vararg, node.args.kwarg) if each is not None and not wordless]
    for refused in node.args.posonlyargs + others:
        draft.refuse(
            UnreadableDeclaration(
                "python_parameter",
                f"line {refused.lineno}: {UNSUPPORTED}",
                refused.lineno,
                refused.col_offset,
                expected="parameters with a name of their own",
                hint="a list[str] parameter takes any number of values",
            )
        )
    types = PythonTypes(module)
    for parameter, default in _with_defaults(node.args):
        try:
            value = NO_VALUE if default is None else module.value(default)
            schema, optional = types.parameter(parameter.annotation, docstring.entries.get(parameter.arg), value)
            needed = default is None and not optional
        except UnreadableDeclaration as wrong:
            if not wordless:
                draft.refuse(wrong)
                continue
            schema, needed = {"type": "string"}, default is None
        draft.add(parameter.arg, schema, parameter.lineno, parameter.col_offset, needed=needed)
    for doubt in types.doubts:
        script.note(doubt, "warning")
    return draft.declaration("python")


def _with_defaults(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    missing = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    defaults = [None] * missing + list(arguments.defaults)
    plain = zip(arguments.args, defaults[len(arguments.posonlyargs) :], strict=True)
    return [*plain, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]


# --- annotations as JSON Schemas
#
# Types with a JSON equivalent are exact: `str`, `int`, `list[T]`, `dict[str, T]`, `Literal`, unions, tuples, and the
# file's own aliases, dataclasses, TypedDicts, enums and similar classes, inlined where they are used. An imported type
# is unknown without importing it: it becomes a text for the model, with a warning for the author.


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
_WORDS_IN_DOCSTRINGS: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "array": array({}),
    "object": {"type": "object"},
}
"""Type names in docstrings, in addition to Python's own."""

_LISTS = {"list", "List", "Sequence", "MutableSequence", "Iterable", "Collection", "deque", "Deque"}
_SETS = {"set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet"}
_DICTS = {"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict", "DefaultDict"}
_TUPLES = {"tuple", "Tuple"}
_WRAPPERS = {"Required", "NotRequired", "ReadOnly", "Final", "InitVar", "ClassVar"}


class PythonTypes(TypeReader[ast.expr]):
    """Type parser for the annotations of one function.

    Attributes:
        module: resolves names of the file.
        doubts: probable mistakes found.
    """

    numbers = "integer"

    def __init__(self, module: PythonModule) -> None:
        super().__init__()
        self.module = module
        self.doubts: list[UnreadableDeclaration] = []

    def named(self, text: str) -> Schema:
        """Return the schema of a type named in a docstring; that of a text for an unknown type."""
        try:
            node = ast.parse(text.strip(), mode="eval").body
            known = len(self.doubts)
            schema = _WORDS_IN_DOCSTRINGS.get(text.strip().lower()) or self.schema(node)
            # A type in a docstring may be prose, so doubts about it are dropped. Only annotations are checked.
            del self.doubts[known:]
        except (UnreadableDeclaration, SyntaxError, ValueError, RecursionError, MemoryError):
            return {"type": "string"}
        return schema

    def wrong(self, node: ast.AST, message: str, *, expected: str = "", hint: str = "") -> UnreadableDeclaration:
        line, offset = getattr(node, "lineno", 0), getattr(node, "col_offset", None)
        return UnreadableDeclaration("python_type", message, line, offset, expected=expected, hint=hint)

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
        raise self.wrong(
            node, "this is not a type", expected="a type such as `str`, `list[int]` or `Literal['a', 'b']`"
        )

    def _quoted(self, node: ast.Constant) -> Schema:
        if node.value is None:
            return null()
        if not isinstance(node.value, str):
            raise self.wrong(node, f"{node.value!r} is not a type", hint=f"did you mean Literal[{node.value!r}]?")
        try:
            inner = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self.wrong(node, f"'{node.value[:60]}' is not a type", hint="did you mean Literal?") from None
        for part in ast.walk(inner):  # Problems must be reported at the position of the quoted text.
            if isinstance(part, ast.expr):
                part.lineno, part.col_offset = node.lineno, node.col_offset
        return self.schema(inner)

    def _name(self, node: ast.expr, name: str) -> Schema:
        module = self.module
        if name in module.classes:
            with self.written_out(name):
                return class_schema(self, module.classes[name])
        if name in module.assigned:
            with self.written_out(name):
                return self._alias(node, name, module.assigned[name])
        if name in _PLAIN:
            return dict(_PLAIN[name])
        if name in _LISTS | _SETS | _DICTS | _TUPLES:
            return {"type": "object"} if name in _DICTS else array({})
        message = f"the type '{name}' can't be described to a model, so the function receives a string"
        # One warning per type and function is enough.
        if all(doubt.message != message for doubt in self.doubts):
            hint = "a dataclass, TypedDict or Enum in the same file is described in full"
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
        raise self.wrong(node, f"'{name}' can't be read as a type", hint="define it as a class")

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
            if len(inside) == 2 and isinstance(inside[1], ast.Constant) and inside[1].value is ...:
                return array(self.schema(inside[0]))
            return fixed_array([self.schema(part) for part in inside])
        return self._name(node.value, name or "this")

    def _literals(self, inside: list[ast.expr]) -> Iterator[Any]:
        for part in inside:
            value = self.module.value(part)
            if value is NO_VALUE or isinstance(value, list | dict | float):
                raise self.wrong(part, "Literal may only contain strings, whole numbers, booleans and None")
            yield value

    def _annotation(self, notes: list[ast.expr]) -> str:
        """Return the description in `Annotated[T, "..."]`, `Doc("...")` or `Field(description="...")`."""
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
    """Return the parts of `A | B | C`, which Python nests to the left. A loop, since there may be any number."""
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


# --- classes that JSON can represent: dataclasses, TypedDicts, named tuples, enums, pydantic's models

_ENUMS = {"Enum", "StrEnum", "IntEnum"}
_FACTORIES: dict[str, Any] = {"list": list, "dict": dict, "tuple": list, "str": str, "int": int, "bool": bool}


class _Field(msgspec.Struct, frozen=True):
    annotation: ast.expr
    needed: bool
    default: Any
    text: str


def class_schema(types: PythonTypes, node: ast.ClassDef) -> Schema:
    """Return the schema of a class of the file.

    Raises:
        UnreadableDeclaration: JSON cannot represent the class or one of its fields.
    """
    doc = read_docstring(ast.get_docstring(node, clean=False))
    kind = _kind(types, node)
    if kind == "enum":
        members = types.module.members(node)
        unknown = [name for name, value in members.items() if value is NO_VALUE]
        if unknown or not members:
            what = f"the value of '{unknown[0]}' in" if unknown else "the members of"
            raise types.wrong(
                node,
                f"{what} the enum '{node.name}' can't be determined without running the file",
                hint="write a literal",
            )
        return described(enum(members.values()), doc.description)
    if not kind:
        raise types.wrong(
            node,
            f"the class '{node.name}' can't be created from JSON",
            expected="a dataclass, a TypedDict, a NamedTuple, an Enum or a pydantic model",
        )
    fields = _fields(types, node, kind)
    return described(_object(types, fields), doc.description)


def dict_schema(types: PythonTypes, call: ast.Call) -> Schema:
    """Return the schema of `TypedDict("Name", {"key": type, ...})`."""
    total = _total(call.keywords)
    shape = call.args[1]
    assert isinstance(shape, ast.Dict)
    fields: dict[str, _Field] = {}
    for key, annotation in zip(shape.keys, shape.values, strict=True):
        name = NO_VALUE if key is None else types.module.value(key)
        if not isinstance(name, str):
            raise types.wrong(annotation, "a key of this TypedDict is not a string")
        fields[name] = _Field(annotation, _must_be_there(types, annotation, total), NO_VALUE, "")
    return _object(types, fields)


def _object(types: PythonTypes, fields: dict[str, _Field]) -> Schema:
    properties: dict[str, Schema] = {}
    for name, field in fields.items():
        schema = described(types.schema(field.annotation), field.text)
        properties[name] = schema if field.default is NO_VALUE else with_default(schema, field.default)
    return obj(properties, [name for name, field in fields.items() if field.needed])


def _kind(types: PythonTypes, node: ast.ClassDef) -> str:
    """Return `enum`, `dict`, `tuple`, `model`, `dataclass` or "". A class inherits the kind of its bases."""
    names = [types.module.original(base) for base in node.bases]
    if _ENUMS & set(names):
        return "enum"
    for base, kind in (("TypedDict", "dict"), ("NamedTuple", "tuple"), ("BaseModel", "model")):
        # The file may define its own class with that name.
        if base in names and base not in types.module.classes:
            return kind
    for decorator in node.decorator_list:
        if types.module.original(decorator.func if isinstance(decorator, ast.Call) else decorator) == "dataclass":
            return "dataclass"
    for name in names:
        if name in types.module.classes:
            with types.written_out(f"class {name}"):
                kind = _kind(types, types.module.classes[name])
            if kind in ("dict", "model"):
                return kind
    return ""


def _fields(types: PythonTypes, node: ast.ClassDef, kind: str) -> dict[str, _Field]:
    found: dict[str, _Field] = {}
    # Reversed, so that fields of the first base replace fields of later ones, as in Python's method resolution.
    for base in reversed(node.bases):
        name = types.module.original(base)
        if name in types.module.classes:
            with types.written_out(f"class {name}"):
                found.update(_fields(types, types.module.classes[name], kind))
    doc = read_docstring(ast.get_docstring(node, clean=False))
    total = _total(node.keywords)
    for item, below in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        name = item.target.id
        outer = item.annotation.value if isinstance(item.annotation, ast.Subscript) else item.annotation
        if types.module.original(outer) in ("ClassVar", "KW_ONLY"):
            continue
        needed, default = _default(types, item.value)
        if needed is None:
            continue
        if kind == "dict":
            needed = _must_be_there(types, item.annotation, total)
        entry = doc.entries.get(name)
        text = entry.text if entry is not None else _text(below) or _field_description(types, item.value)
        found[name] = _Field(item.annotation, needed, default, text)
    return found


def _default(types: PythonTypes, value: ast.expr | None) -> tuple[bool | None, Any]:
    """Return True if the field is required, False if not, None if it cannot be passed; and its default."""
    if value is None:
        return True, NO_VALUE
    if not isinstance(value, ast.Call) or types.module.original(value.func) not in ("field", "Field"):
        return False, types.module.value(value)
    said = {word.arg: word.value for word in value.keywords}
    if value.args:  # `Field(...)`, with a literal Ellipsis, means that there is no default.
        required = isinstance(value.args[0], ast.Constant) and value.args[0].value is ...
        return required, NO_VALUE if required else types.module.value(value.args[0])
    if "init" in said and types.module.value(said["init"]) is False:
        return None, NO_VALUE
    if "default" in said:
        return False, types.module.value(said["default"])
    if "default_factory" in said:
        factory = _FACTORIES.get(types.module.original(said["default_factory"]))
        return False, factory() if factory is not None else NO_VALUE
    return True, NO_VALUE


def _total(keywords: list[ast.keyword]) -> bool:
    return not any(
        word.arg == "total" and isinstance(word.value, ast.Constant) and word.value.value is False for word in keywords
    )


def _must_be_there(types: PythonTypes, annotation: ast.expr, total: bool) -> bool:
    """Return True if a key of a TypedDict is required.

    `Required` and `NotRequired` decide, also within `Annotated`; otherwise `total` does.
    """
    while isinstance(annotation, ast.Subscript):
        name = types.module.original(annotation.value)
        if name in ("Required", "NotRequired"):
            return name == "Required"
        if name not in ("Annotated", "ReadOnly"):
            break
        annotation = annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
    return total


def _field_description(types: PythonTypes, value: ast.expr | None) -> str:
    """Return the description in pydantic's `Field(description="...")`."""
    words = value.keywords if isinstance(value, ast.Call) else []
    texts = [types.module.value(word.value) for word in words if word.arg == "description"]
    return texts[0].strip() if texts and isinstance(texts[0], str) else ""


def _text(below: ast.stmt | None) -> str:
    """Return the string literal below a field, which documents it by convention."""
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
        return " ".join(below.value.value.split())
    return ""


# --- names of a file, as far as its text defines them: imports, classes, type aliases, constants

_DEEPEST = 50


class PythonModule:
    """A parsed Python file.

    Attributes:
        classes: by name.
        assigned: the last value of each name assigned at the top level, which may be a type alias.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.assigned: dict[str, ast.expr] = {}
        self._imported: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                self._imported.update((name.asname or name.name, name.name) for name in node.names)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.assigned[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.assigned[node.target.id] = node.value
            elif type(node).__name__ == "TypeAlias":  # `type X = ...`; the class does not exist in Python 3.11.
                alias: Any = node
                self.assigned[alias.name.id] = alias.value

    def original(self, node: ast.expr) -> str:
        """Return the original name, "" if there is none: `t.List` is `List`, and so is `L` after `import List as L`."""
        if isinstance(node, ast.Attribute):
            return node.attr
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.classes or node.id in self.assigned:
            return node.id
        return self._imported.get(node.id, node.id)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the JSON value of an expression, or `NO_VALUE`.

        Resolves literals, constants and enum members of the file.
        """
        if depth > _DEEPEST:
            return NO_VALUE
        if isinstance(node, ast.Name):
            return self.value(self.assigned[node.id], depth + 1) if node.id in self.assigned else NO_VALUE
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.classes:
            return self.members(self.classes[node.value.id]).get(node.attr, NO_VALUE)
        if isinstance(node, ast.Attribute) and node.attr == "value":  # `Color.RED.value`
            return self.value(node.value, depth + 1)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.value(item, depth + 1) for item in node.elts]
            return NO_VALUE if NO_VALUE in items else items
        if isinstance(node, ast.Dict):
            keys = [NO_VALUE if key is None else self.value(key, depth + 1) for key in node.keys]
            values = [self.value(item, depth + 1) for item in node.values]
            known = all(isinstance(key, str) for key in keys) and NO_VALUE not in values
            return dict(zip(keys, values, strict=True)) if known else NO_VALUE
        return _constant(node)

    def members(self, node: ast.ClassDef) -> dict[str, Any]:
        """Return the values of an enum's members, by name; `NO_VALUE` for an expression that would have to run."""
        found: dict[str, Any] = {}
        text = any(self.original(base) == "StrEnum" for base in node.bases)
        for item in node.body:
            if not isinstance(item, ast.Assign) or len(item.targets) != 1 or not isinstance(item.targets[0], ast.Name):
                continue
            name = item.targets[0].id
            if name.startswith("_"):
                continue
            if isinstance(item.value, ast.Call) and self.original(item.value.func) == "auto":
                numbers = [value for value in found.values() if isinstance(value, int)]
                found[name] = name.lower() if text else max(numbers, default=0) + 1
            else:
                found[name] = _constant(item.value)
        return found


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = _json_value(node.operand.value)
        return -number if isinstance(number, int | float) and not isinstance(number, bool) else NO_VALUE
    return _json_value(node.value) if isinstance(node, ast.Constant) else NO_VALUE


def _json_value(value: Any) -> Any:
    if isinstance(value, float):
        known = math.isfinite(value)
    elif isinstance(value, str):
        known = not any("\ud800" <= char <= "\udfff" for char in value)  # A lone surrogate is invalid in JSON text.
    elif isinstance(value, int):
        # Larger integers are not portable in JSON.
        known = abs(value) < 2**63
    else:
        known = value is None
    return value if known else NO_VALUE
