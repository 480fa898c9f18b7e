"""What the names of a TypeScript file mean, as far as its text tells: types, enums, constants, functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tree_sitter import Node

NO_VALUE: Final = object()
"""What is no JSON value, or can't be known without running the file."""

_DEEPEST = 50
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|[\s\S]))")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}


class Module:
    """A parsed file.

    Attributes:
        types: interfaces, aliases and enums, by name.
        functions: names of functions that are declared or assigned at the top level.
    """

    def __init__(self, root: Node) -> None:
        self.types: dict[str, Node] = {}
        self.functions: set[str] = set()
        self._constants: dict[str, Node] = {}
        for node in root.named_children:
            declared = node.child_by_field_name("declaration") if node.type == "export_statement" else node
            if declared is None:
                continue
            name = text_of(declared.child_by_field_name("name"))
            if declared.type in ("interface_declaration", "type_alias_declaration", "enum_declaration"):
                self.types[name] = declared
            elif declared.type == "function_declaration":
                self.functions.add(name)
            elif declared.type == "lexical_declaration":
                self._add_constants(declared)

    def _add_constants(self, declared: Node) -> None:
        for variable in declared.named_children:
            value = variable.child_by_field_name("value")
            if value is not None and value.type in ("arrow_function", "function_expression"):
                self.functions.add(text_of(variable.child_by_field_name("name")))
            elif value is not None:
                self._constants[text_of(variable.child_by_field_name("name"))] = value

    def value(self, node: Node, depth: int = 0) -> Any:
        """The JSON value of an expression, or `NO_VALUE`: literals, constants of the file, members of its enums."""
        if depth > _DEEPEST:
            return NO_VALUE
        inside = node.named_children
        if node.type == "identifier" and text_of(node) in self._constants:
            return self.value(self._constants[text_of(node)], depth + 1)
        if node.type in ("parenthesized_expression", "as_expression", "satisfies_expression") and inside:
            return self.value(inside[0], depth + 1)
        if node.type == "array":
            items = [self.value(item, depth + 1) for item in inside if item.type != "comment"]
            return NO_VALUE if NO_VALUE in items else items
        if node.type == "object":
            return self._object(inside, depth)
        if node.type == "member_expression":
            enum = self.types.get(text_of(node.child_by_field_name("object")))
            if enum is None or enum.type != "enum_declaration":
                return NO_VALUE
            return self.members(enum).get(text_of(node.child_by_field_name("property")), NO_VALUE)
        return _literal(node)

    def _object(self, pairs: list[Node], depth: int) -> Any:
        found: dict[str, Any] = {}
        for pair in pairs:
            key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
            if pair.type == "comment":
                continue
            if pair.type != "pair" or key is None or value is None or key.type == "computed_property_name":
                return NO_VALUE
            found[key_of(key)] = self.value(value, depth + 1)
        return NO_VALUE if NO_VALUE in found.values() else found

    def members(self, node: Node) -> dict[str, Any]:
        """The values of an enum's members, by name; `NO_VALUE` where only running it would tell."""
        body = node.child_by_field_name("body")
        found: dict[str, Any] = {}
        before: Any = -1
        for member in body.named_children if body is not None else ():
            if member.type == "comment":
                continue
            name, value = member.child_by_field_name("name"), member.child_by_field_name("value")
            following = before + 1 if isinstance(before, int) else NO_VALUE
            before = following if value is None else _literal(value)
            found[key_of(name or member)] = before
        return found


def _literal(node: Node) -> Any:
    if node.type == "unary_expression" and node.children and node.children[0].type == "-":
        operand = node.child_by_field_name("argument")
        number = NO_VALUE if operand is None else _number(text_of(operand))
        return -number if isinstance(number, int | float) else NO_VALUE
    if node.type == "number":
        return _number(text_of(node))
    if node.type == "string" or (node.type == "template_string" and not _substitutes(node)):
        return _string(text_of(node))
    return {"true": True, "false": False, "null": None, "undefined": None}.get(node.type, NO_VALUE)


def _substitutes(template: Node) -> bool:
    return any(child.type == "template_substitution" for child in template.named_children)


def _number(text: str) -> int | float | object:
    text = text.replace("_", "")
    try:
        if re.fullmatch(r"\d{1,18}|0[xX][0-9a-fA-F]{1,15}|0[oO][0-7]{1,20}|0[bB][01]{1,60}", text):
            return int(text, 10 if text.isdigit() else 0)
        number = float(text) if re.fullmatch(r"(\d{1,300}\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text) else NO_VALUE
    except ValueError:
        return NO_VALUE
    return NO_VALUE if number == float("inf") else number


def _string(quoted: str) -> Any:
    def plain(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if not code:
            return _LETTERS.get(match[4], match[4])
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else ""

    text = _ESCAPE.sub(plain, quoted[1:-1])
    try:  # `\\ud83d\\ude00` is one character
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return NO_VALUE


def key_of(node: Node) -> str:
    """The name of a property: `a`, `"a"` or `1`."""
    name = _string(text_of(node)) if node.type == "string" else NO_VALUE
    return text_of(node) if name is NO_VALUE else str(name)


def text_of(node: Node | None) -> str:
    """The text of a node, "" if there is none."""
    return "" if node is None or node.text is None else node.text.decode()


def offset_of(node: Node) -> int:
    """Where it stands in its line, as `Script` counts."""
    return node.start_point.column
