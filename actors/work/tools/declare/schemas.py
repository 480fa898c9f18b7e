"""JSON Schema building blocks for the parsers of all three languages.

While a type is parsed, "may be null" is one more alternative, `{"type": "null"}`. A parameter that may be null becomes
optional (`without_null`), because models omit a value more reliably than they write null. In nested types it remains an
alternative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Generic, TypeVar, final

from .....protocol.problems import did_you_mean
from .declaration import Declaration, Language, Schema, ToolScript, UnreadableDeclaration, repeats_above
from .docstrings import Docstring, DocumentedParameter

Node = TypeVar("Node")

NO_VALUE: Final = object()
"""Marker for an expression that is not a JSON value, or whose value is unknown without running the file."""

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

_DEEPEST = 40
MOST_PARTS = 2_000
"""Maximum parts of one function's schema; ten nested types that each use the next one twice make a thousand."""


def null() -> Schema:
    """Return the schema of `None`."""
    return {"type": "null"}


def array(items: Schema) -> Schema:
    """Return the schema of a list. `items` is always present, since some providers refuse an array without it."""
    return {"type": "array", "items": items}


def fixed_array(items: Sequence[Schema]) -> Schema:
    """Return the schema of a tuple: the number of items is exact.

    Their order has no notation that all providers accept.
    """
    return {**array(any_of(items) if items else {}), "minItems": len(items), "maxItems": len(items)}


def obj(properties: dict[str, Schema], required: Iterable[str]) -> Schema:
    """Return the schema of an object with these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def parameters(properties: dict[str, Schema], required: Iterable[str]) -> Schema:
    """Return the schema of a function's parameters."""
    return {"type": "object", "properties": properties, "required": list(required)}


def enum(values: Iterable[Any]) -> Schema:
    """Return the schema for a choice of values; null among them becomes a separate alternative."""
    # By type and value: True equals 1 in Python, but not in JSON.
    values = list(dict.fromkeys((type(value), value) for value in values))
    plain = [value for _, value in values if value is not None]
    schema: Schema = {}
    if plain:
        kinds = {_TYPES[type(value)] for value in plain}
        schema = {"type": kinds.pop(), "enum": plain} if len(kinds) == 1 else {"enum": plain}
    if len(plain) == len(values):
        return schema
    return any_of([schema, null()]) if plain else null()


def any_of(parts: Iterable[Schema]) -> Schema:
    """Return the schema for a choice of schemas, in its shortest form."""
    flat: list[Schema] = []
    for part in parts:
        for one in part["anyOf"] if set(part) == {"anyOf"} else [part]:
            _join(flat, one)
    # An alternative without restrictions admits everything.
    if {} in flat:
        return {}
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _join(flat: list[Schema], one: Schema) -> None:
    if one in flat and not _enums(one):
        return
    for number, other in enumerate(flat):
        if _enums(one) and _enums(other) and one.get("type") == other.get("type"):
            merged = dict.fromkeys((type(value), value) for value in [*other["enum"], *one["enum"]])
            flat[number] = {**other, "enum": [value for _, value in merged]}
            return
    flat.append(one)


def _enums(schema: Schema) -> bool:
    return "enum" in schema and not schema.keys() - {"enum", "type"}


def without_null(schema: Schema) -> tuple[Schema, bool]:
    """Return the schema without the alternative null, and True if there was one."""
    if schema == null():
        return {}, True
    parts = schema.get("anyOf", [])
    if null() not in parts:
        return schema, False
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**any_of(part for part in parts if part != null()), **rest}, True


def described(schema: Schema, description: str = "", **more: Any) -> Schema:
    """Return the schema with a description, unless that is empty, followed by `more`."""
    schema = dict(schema)
    if description:
        schema.pop("description", None)
        schema["description"] = description
    schema.update(more)
    return schema


def with_default(schema: Schema, value: Any) -> Schema:
    """Return the schema with this default, unless that is null or of another type, as `(1, 2)` for a named tuple is."""
    kind = schema.get("type")
    if isinstance(value, list):
        fits = kind in (None, "array")
    elif isinstance(value, dict):
        fits = kind in (None, "object")
    else:
        fits = value is not None and kind in (None, _TYPES[type(value)], "number" if type(value) is int else None)
    return {**schema, "default": value} if fits else schema


class TypeReader(ABC, Generic[Node]):
    """Base of the type parsers of one function. Named types are inlined; cycles and oversized schemas are errors."""

    numbers: ClassVar[str]
    """Type that an integer default value suggests."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._open: list[str] = []
        self._parts = 0

    @abstractmethod
    def wrong(self, node: Node, message: str, *, expected: str = "", hint: str = "") -> UnreadableDeclaration:
        """Return an error at this place."""

    @abstractmethod
    def named(self, text: str) -> Schema:
        """Return the schema of a type named in a comment; for an unknown type, that of a text."""

    @abstractmethod
    def _schema(self, node: Node) -> Schema: ...

    def parameter(self, annotation: Node | None, said: DocumentedParameter | None, value: Any) -> tuple[Schema, bool]:
        """Return the schema of a parameter, and True if its type or its comment makes it optional.

        Args:
            annotation: its type, which takes precedence over the comment.
            said: its documentation in the comment.
            value: its default, or `NO_VALUE`.
        """
        if annotation is not None:
            schema = self.schema(annotation)
        else:
            schema = self.named(said.type) if said is not None and said.type else self.of_value(value)
        schema, optional = without_null(schema)
        schema = described(schema, said.text if said is not None else "")
        if value is not NO_VALUE:
            schema = with_default(schema, value)
        return schema, optional or (annotation is None and said is not None and said.optional)

    def schema(self, node: Node) -> Schema:
        """Return the schema of a type; null is a separate alternative.

        Raises:
            UnreadableDeclaration: the type has no schema.
        """
        self._nodes.append(node)
        try:
            # Below Python's recursion limit, so that the author gets an error with a place instead of a crash.
            if len(self._nodes) > _DEEPEST:
                raise self.wrong(node, "the type is nested too deeply")
            self._part()
            return self._schema(node)
        finally:
            self._nodes.pop()

    def of_value(self, value: Any) -> Schema:
        """Return the schema that a default value suggests; that of a text for None and for `NO_VALUE`."""
        if isinstance(value, list):
            return array({})
        if isinstance(value, dict):
            return {"type": "object"}
        if value is NO_VALUE or value is None:
            return {"type": "string"}
        return {"type": self.numbers if type(value) is int else _TYPES[type(value)]}

    @contextmanager
    def written_out(self, name: str) -> Iterator[None]:
        """Protect the block, which inlines the type `name`, against endless recursion and oversized schemas.

        Raises:
            UnreadableDeclaration: the type contains itself, or the schema is too large.
        """
        if name in self._open:
            hint = "use an object, or JSON as a string, for nested data"
            raise self.wrong(self._nodes[-1], f"the type '{name}' contains itself", hint=hint)
        self._part()
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()

    def _part(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise self.wrong(self._nodes[-1], "the types of this function are too large to be described to a model")


@final
class DeclarationDraft:
    """Builder for the declaration of a Python or TypeScript function, parameter by parameter.

    Problems that make the function unusable as a tool are noted at `script`.

    Args:
        name: the tool's name for the model.
        function: its name in the file.
        line, offset: its position.
        doc: its parsed comment.
        expected: the comment that it needs, for the error about a missing one; "" if it is optional.
        hint: remedy in that error.
    """

    def __init__(
        self,
        script: ToolScript,
        name: str,
        function: str,
        line: int,
        offset: int,
        doc: Docstring,
        expected: str,
        hint: str,
    ) -> None:
        self._script = script
        self._name = name
        self._function = function
        self._line = line
        self._doc = doc
        self._properties: dict[str, Schema] = {}
        self._required: list[str] = []
        self._fine = name == "_instructions" or script.usable_name(name, line)
        if expected and not doc.description and name != "_instructions":
            message = f"Missing or empty description on function: {function}"
            self.refuse(UnreadableDeclaration("no_description", message, line, offset, expected=expected, hint=hint))

    def refuse(self, wrong: UnreadableDeclaration) -> None:
        """Note an error that makes the function unusable as a tool."""
        self._script.note(wrong)
        self._fine = False

    def add(self, name: str, schema: Schema, line: int, offset: int, *, needed: bool) -> None:
        """Add a parameter, which a call must include if `needed`. Warn of a name that some providers reject."""
        self._script.doubt_name(name, line, offset)
        self._properties[name] = schema
        if needed:
            self._required.append(name)

    def declaration(self, language: Language, *, takes_object: bool = False) -> Declaration | None:
        """Return the declaration; None after an error. Warn about documented names that are not parameters."""
        if not self._fine:
            return None
        for said in () if takes_object else self._doc.entries:
            if said.split(".")[0] not in self._properties:
                comment = "docstring" if language == "python" else "comment"
                message = (
                    f"the {comment} of '{self._function}' describes '{said}', and the function has no such parameter"
                )
                hint = did_you_mean(said, self._properties) or ""
                self._script.warning("docstring_parameter", message, self._line, hint=hint)
        return Declaration(
            name=self._name,
            description=self._doc.description,
            parameters=parameters(self._properties, self._required),
            file=self._script.file,
            function=self._function,
            line=self._line,
            language=language,
            interpreter=self._script.interpreter,
            repeats=repeats_above(self._script, self._line),
            takes_object=takes_object,
        )
