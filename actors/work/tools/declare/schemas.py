"""Pieces of JSON Schema that the readers of all three languages build from.

While a type is read, "may be null" is one more alternative, `{"type": "null"}`. A parameter that may be null becomes
one that need not be given (`without_null`), because models are better at leaving out than at writing null; deeper
inside it stays an alternative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Generic, TypeVar, final

from .....protocol.problems import did_you_mean
from .declaration import Declaration, Language, Schema
from .docstrings import Docstring, Entry
from .repeats import repeats_above
from .script import Script, Unreadable

Node = TypeVar("Node")

NO_VALUE: Final = object()
"""What is no JSON value, or can't be known without running the file."""

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

_DEEPEST = 40
MOST_PARTS = 2_000
"""Parts of one function's schema; ten nested types that each use the next one twice are a thousand."""


def null() -> Schema:
    """The type of `None`."""
    return {"type": "null"}


def array(items: Schema) -> Schema:
    """A list. `items` is always there, since some providers refuse an array without it."""
    return {"type": "array", "items": items}


def fixed_array(items: Sequence[Schema]) -> Schema:
    """A tuple; its items' order can't be told in a way that all providers know, their number can."""
    return {**array(any_of(items) if items else {}), "minItems": len(items), "maxItems": len(items)}


def obj(properties: dict[str, Schema], required: Iterable[str]) -> Schema:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def parameters(properties: dict[str, Schema], required: Iterable[str]) -> Schema:
    """What a function takes."""
    return {"type": "object", "properties": properties, "required": list(required)}


def enum(values: Iterable[Any]) -> Schema:
    """One of these values; null among them is an alternative of its own."""
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
    """One of these, written as shortly as it can be."""
    flat: list[Schema] = []
    for part in parts:
        for one in part["anyOf"] if set(part) == {"anyOf"} else [part]:
            _join(flat, one)
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
    """The schema without the alternative null, and whether there was one."""
    if schema == null():
        return {}, True
    parts = schema.get("anyOf", [])
    if null() not in parts:
        return schema, False
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**any_of(part for part in parts if part != null()), **rest}, True


def described(schema: Schema, description: str = "", **more: Any) -> Schema:
    """The schema with a description, unless that is empty, and with `more` behind it."""
    schema = dict(schema)
    if description:
        schema.pop("description", None)
        schema["description"] = description
    schema.update(more)
    return schema


def with_default(schema: Schema, value: Any) -> Schema:
    """The schema with this default, unless that is null or of another type, as `(1, 2)` for a named tuple is."""
    kind = schema.get("type")
    if isinstance(value, list):
        fits = kind in (None, "array")
    elif isinstance(value, dict):
        fits = kind in (None, "object")
    else:
        fits = value is not None and kind in (None, _TYPES[type(value)], "number" if type(value) is int else None)
    return {**schema, "default": value} if fits else schema


class TypeReader(ABC, Generic[Node]):
    """Reads the types of one function, which are written out in place: no circle, no explosion."""

    numbers: ClassVar[str]
    """The type that a default value suggests which is a whole number."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._open: list[str] = []
        self._parts = 0

    @abstractmethod
    def wrong(self, node: Node, message: str, *, expected: str = "", hint: str = "") -> Unreadable:
        """An error at this place."""

    @abstractmethod
    def named(self, text: str) -> Schema:
        """The schema of a type in a comment; text if it is none that we know."""

    @abstractmethod
    def _schema(self, node: Node) -> Schema: ...

    def parameter(self, annotation: Node | None, said: Entry | None, value: Any) -> tuple[Schema, bool]:
        """The schema of a parameter, and whether its type or its comment let it be left out.

        Args:
            annotation: its type, which knows better than the comment.
            said: what the comment says of it.
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
        """The schema of a type; null is an alternative of its own.

        Raises:
            Unreadable: there is none.
        """
        self._nodes.append(node)
        try:
            if len(self._nodes) > _DEEPEST:
                raise self.wrong(node, "the type is nested too deeply")
            self._part()
            return self._schema(node)
        finally:
            self._nodes.pop()

    def of_value(self, value: Any) -> Schema:
        """The schema that a default value suggests."""
        if isinstance(value, list):
            return array({})
        if isinstance(value, dict):
            return {"type": "object"}
        if value is NO_VALUE or value is None:
            return {"type": "string"}
        return {"type": self.numbers if type(value) is int else _TYPES[type(value)]}

    @contextmanager
    def written_out(self, name: str) -> Iterator[None]:
        """While the type `name` is written out.

        Raises:
            Unreadable: it is being written out already, or enough was written.
        """
        if name in self._open:
            hint = "take an object, or JSON as a text, for nested data"
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
            raise self.wrong(self._nodes[-1], "the types of this function are too large to be told to a model")


@final
class Draft:
    """The declaration of a Python or TypeScript function, put together parameter by parameter.

    What keeps the function from being a tool is noted at `script`.

    Args:
        name: what the model calls.
        function: its name in the file.
        line, offset: where it stands.
        doc: what its comment says.
        expected: the comment that it needs; "" if it may do without.
    """

    def __init__(
        self, script: Script, name: str, function: str, line: int, offset: int, doc: Docstring, expected: str, hint: str
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
            self.refuse(Unreadable("no_description", message, line, offset, expected=expected, hint=hint))

    def refuse(self, wrong: Unreadable) -> None:
        """This keeps it from being a tool."""
        self._script.note(wrong)
        self._fine = False

    def add(self, name: str, schema: Schema, line: int, offset: int, *, needed: bool) -> None:
        """One more parameter."""
        self._script.doubt_name(name, line, offset)
        self._properties[name] = schema
        if needed:
            self._required.append(name)

    def declaration(self, language: Language) -> Declaration | None:
        """The tool; None if it can't be one. What its comment says of parameters that are none is doubted."""
        if not self._fine:
            return None
        for said in self._doc.entries:
            if said.split(".")[0] not in self._properties:
                comment = "docstring" if language == "python" else "comment"
                message = f"the {comment} of '{self._function}' describes '{said}', which is no parameter"
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
        )
