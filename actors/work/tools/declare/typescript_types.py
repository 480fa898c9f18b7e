"""TypeScript's types as JSON Schemas.

What JSON has is exact: primitive types, arrays, tuples, unions, literals, object types, `Record`, and the
file's own interfaces, aliases and enums, written out where they are used. Anything else is an error with its place:
a `Date` or a `Map` would not be what the function gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .declaration import Schema
from .jsdoc import Param, read_jsdoc
from .schemas import Circle, Expansion, TooLarge, any_of, array, described, enum, fixed_array, obj
from .script import Unreadable
from .typescript_module import NO_VALUE, Module, key_of, offset_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "any": {},
    "unknown": {},
    "object": {"type": "object"},
}
_ARRAYS = ("Array", "ReadonlyArray")
_DEEPEST = 40
EXPECTED = "string, number, boolean, a literal, array, union, object or Record, or a type declared in this file"


class Types:
    """Reads the types of one function.

    Attributes:
        module: where its names come from.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._expansion = Expansion()
        self._depth = 0

    def schema(self, node: Node) -> Schema:
        """The schema of a type; null and undefined are an alternative of their own.

        Raises:
            Unreadable: there is none.
        """
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise _wrong(node, "the type is nested too deeply")
            self._expansion.part()
            return self._schema(node)
        except Circle as circle:
            raise _wrong(node, f"the type '{circle}' contains itself") from None
        except TooLarge:
            raise _wrong(node, "the types of this function are too large to be told to a model") from None
        finally:
            self._depth -= 1

    def named(self, text: str) -> Schema:
        """The schema of a type in a comment; text if it is none that we know."""
        import tree_sitter
        import tree_sitter_typescript

        language = tree_sitter.Language(tree_sitter_typescript.language_typescript())
        root = tree_sitter.Parser(language).parse(f"type T = {text}".encode()).root_node
        if root.has_error or root.named_child_count != 1:
            return {"type": "string"}
        value = root.named_children[0].child_by_field_name("value")
        try:
            return {"type": "string"} if value is None else self.schema(value)
        except Unreadable:
            return {"type": "string"}

    def of_value(self, value: Any) -> Schema:
        """The schema that a default value suggests."""
        if isinstance(value, list):
            return array({})
        if isinstance(value, dict):
            return {"type": "object"}
        if isinstance(value, bool):
            return {"type": "boolean"}
        return {"type": "number" if isinstance(value, int | float) else "string"}

    def describe(self, schema: Schema, name: str, params: Mapping[str, Param]) -> None:
        """Put what `@param options.depth` says at the property `depth` of the parameter `options`."""
        for key, inner in schema.get("properties", {}).items():
            path = f"{name}.{key}"
            if path in params and params[path].text:
                inner["description"] = params[path].text
            self.describe(inner, path, params)

    def _schema(self, node: Node) -> Schema:
        kind, inside = node.type, [child for child in node.named_children if child.type != "comment"]
        if kind in ("parenthesized_type", "readonly_type") and inside:
            return self.schema(inside[0])
        if kind == "predefined_type" and text_of(node) in _PLAIN:
            return dict(_PLAIN[text_of(node)])
        if kind == "literal_type" and inside:
            value = self.module.value(inside[0])
            if value is not NO_VALUE:
                return enum([value])
        if kind == "array_type" and inside:
            return array(self.schema(inside[0]))
        if kind == "tuple_type":
            return self._tuple(inside)
        if kind == "union_type":
            return any_of([self.schema(part) for part in _flat(node)])
        if kind == "intersection_type":
            return self._both(node)
        if kind == "object_type":
            return self._object(node)
        if kind == "generic_type":
            arguments = node.child_by_field_name("type_arguments")
            name = text_of(node.child_by_field_name("name"))
            return self._generic(node, name, arguments.named_children if arguments is not None else [])
        if kind == "type_identifier":
            return self._own(node, text_of(node))
        raise _wrong(node, f"the type '{_short(node)}' is not supported", expected=EXPECTED)

    def _tuple(self, inside: list[Node]) -> Schema:
        for part in inside:
            if part.type in ("rest_type", "optional_type"):
                raise _wrong(part, f"'{_short(part)}' in a tuple is not supported", expected="`T[]`, or a fixed number")
        # `[from: string, to: string]` holds parameters, whose types are a level deeper.
        plain = [self._named_part(part) for part in inside]
        return fixed_array([self.schema(part) for part in plain])

    def _named_part(self, part: Node) -> Node:
        annotation = part.child_by_field_name("type") if part.type.endswith("_parameter") else None
        return part if annotation is None else annotation.named_children[0]

    def _generic(self, node: Node, name: str, arguments: list[Node]) -> Schema:
        if name in _ARRAYS and len(arguments) == 1:
            return array(self.schema(arguments[0]))
        if name == "Record" and len(arguments) == 2:
            return self._record(arguments[0], arguments[1])
        if name in ("Partial", "Required", "Readonly") and len(arguments) == 1:
            schema = self.schema(arguments[0])
            if "properties" not in schema or name == "Readonly":
                return schema
            return {**schema, "required": [] if name == "Partial" else list(schema["properties"])}
        raise _wrong(node, f"the type '{_short(node)}' is not supported", expected=EXPECTED)

    def _record(self, keys: Node, values: Node) -> Schema:
        names = self.schema(keys)
        inner = self.schema(values)
        if "enum" in names:  # `Record<"a" | "b", T>` is an object with just these
            return obj({str(key): dict(inner) for key in names["enum"]}, [str(key) for key in names["enum"]])
        return {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}

    def _own(self, node: Node, name: str) -> Schema:
        declared = self.module.types.get(name)
        if declared is None:
            hint = "take a string, and make the date of it" if name == "Date" else ""
            raise _wrong(node, f"the type '{name}' is not defined in this file", expected=EXPECTED, hint=hint)
        if declared.child_by_field_name("type_parameters") is not None:
            raise _wrong(node, f"the type '{name}' has parameters, which is not supported", expected=EXPECTED)
        doc = read_jsdoc(text_of(_above(declared))).description
        with self._expansion.of(name):
            if declared.type == "interface_declaration":
                return described(self._object(declared), doc)
            if declared.type == "enum_declaration":
                return described(self._enum(node, name, declared), doc)
            value = declared.child_by_field_name("value")
            assert value is not None
            return described(self.schema(value), doc)

    def _enum(self, node: Node, name: str, declared: Node) -> Schema:
        members = self.module.members(declared)
        if not members or NO_VALUE in members.values():
            raise _wrong(node, f"the members of the enum '{name}' can't be known without running it")
        return enum(members.values())

    def _both(self, node: Node) -> Schema:
        merged = obj({}, [])
        for part in _flat(node):
            schema = self.schema(part)
            if "properties" not in schema:
                raise _wrong(part, f"'{_short(part)}' is no object type, so it can't be joined with &")
            _merge(merged, schema)
        return merged

    def _object(self, node: Node) -> Schema:
        """An object type, or the body of an interface with what it extends."""
        schema = obj({}, [])
        for child in node.named_children:
            if child.type == "extends_type_clause":
                for base in child.named_children:
                    _merge(schema, self.schema(base))
        body = node.child_by_field_name("body") if node.type == "interface_declaration" else node
        above = ""
        for member in body.named_children if body is not None else ():
            if member.type == "comment":
                above = read_jsdoc(text_of(member)).description
                continue
            self._member(schema, member, above)
            above = ""
        return schema

    def _member(self, schema: Schema, member: Node, description: str) -> None:
        annotation = member.child_by_field_name("type")
        if member.type == "index_signature" and annotation is not None:
            schema["additionalProperties"] = self.schema(annotation.named_children[0]) or True
            return
        name = member.child_by_field_name("name")
        if member.type != "property_signature" or name is None or name.type == "computed_property_name":
            raise _wrong(member, f"'{_short(member)}' can't be filled from JSON", expected="`name: type`")
        inner = {} if annotation is None else self.schema(annotation.named_children[0])
        _merge(
            schema,
            {
                "properties": {key_of(name): described(inner, " ".join(description.split()))},
                "required": [] if any(child.type == "?" for child in member.children) else [key_of(name)],
            },
        )


def _merge(into: Schema, schema: Schema) -> None:
    for name, inner in schema.get("properties", {}).items():
        into["properties"][name] = inner
        needed = name in schema["required"]
        if needed and name not in into["required"]:
            into["required"].append(name)
    if schema.get("additionalProperties", False) is not False:
        into["additionalProperties"] = schema["additionalProperties"]


def _flat(node: Node) -> list[Node]:
    """The parts of `A | B | C` (or with &), which the parser nests to the left, however many."""
    parts: list[Node] = []
    kind = node.type
    while node.type == kind:
        inside = [child for child in node.named_children if child.type != "comment"]
        parts.extend(reversed(inside[1:]))
        if not inside:
            return parts[::-1]
        node = inside[0]
    return [node, *reversed(parts)]


def _above(declared: Node) -> Node | None:
    outer = declared.parent if declared.parent is not None and declared.parent.type == "export_statement" else declared
    before = outer.prev_sibling
    return before if before is not None and before.type == "comment" else None


def _wrong(node: Node, message: str, *, expected: str = "", hint: str = "") -> Unreadable:
    return Unreadable(
        "typescript_type", message, node.start_point.row + 1, offset_of(node), expected=expected, hint=hint
    )


def _short(node: Node) -> str:
    text = " ".join(text_of(node).split())
    return text if len(text) <= 40 else text[:37] + "..."
