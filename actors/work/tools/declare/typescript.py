"""Parser for TypeScript tools: reads exported functions, their types and their JSDoc with tree-sitter.

    /**
     * Forecasts the weather.
     * @param city - Where.
     * @param days - How many days.
     */
    export function run(city: string, days: number = 3): string { ... }

Only `export function` (also `async`) is a tool. A function exported in any other form is an error, because it looks
like a tool. JavaScript may also export as CommonJS does, and take one object whose properties the comment documents:

    /**
     * Adds numbers.
     * @typedef {Object} Args
     * @property {number} a - The first.
     * @property {number} [b] - The second.
     * @param {Args} args
     */
    exports.run = function ({ a, b }) { ... }

A parameter is optional if it is `name?`, may be null or undefined, or has a default. Without an annotation, as in
JavaScript, its type is the one in the JSDoc, else that of its default, else text.

tree-sitter is an extra, `callboard[typescript]`, that only this module needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from .....protocol.errors import ConfigError
from .....supervisors.installation import install_command
from .declaration import Declaration, Schema, ToolScript, UnreadableDeclaration
from .docstrings import Docstring, DocumentedParameter, read_jsdoc
from .schemas import NO_VALUE, DeclarationDraft, TypeReader, any_of, array, described, enum, fixed_array, obj

if TYPE_CHECKING:
    from tree_sitter import Node

FUNCTION_VALUES = ("arrow_function", "function_expression", "generator_function")


def read_typescript(script: ToolScript, *, agent: bool) -> list[Declaration]:
    """Return every tool of the file; problems are noted at `script`.

    Raises:
        ConfigError: tree-sitter is not installed.
    """
    root = _parsed(script)
    if root is None:
        return []
    module = TypeScriptModule(root)
    functions: dict[str, tuple[Node, Docstring]] = {}
    overloads: dict[str, Docstring] = {}
    for exported, doc in _exports(root):
        _refuse_lookalikes(script, module, exported, agent=agent)
        declared = exported.child_by_field_name("declaration")
        name = "" if declared is None else text_of(declared.child_by_field_name("name"))
        if declared is None or _is_default(exported):
            continue
        if declared.type == "function_signature":
            # The JSDoc is often at the first overload signature, not at the implementation.
            overloads.setdefault(name, doc)
        elif declared.type in ("function_declaration", "generator_function_declaration"):
            functions[name] = (declared, doc if doc.description else overloads.get(name, doc))
    for name, node, doc in _common_js(root) if script.file.suffix == ".js" else ():
        functions.setdefault(name, (node, doc))
    comments = (read_jsdoc(text_of(node)) for node in root.children if node.type == "comment")
    typedefs = {doc.typedef: doc for doc in comments if doc.typedef}
    wanted = {name: one for name, one in functions.items() if _wanted(name, agent=agent)}
    if not wanted and not agent and not script.problems:
        script.error("no_entry", "the file exports no function 'run'", 0, expected="`export function run(...)`")
    elif not wanted and agent and not script.problems:
        script.warning("no_tools", "the file declares no tools", 0, hint="a tool is an `export function`")
    found = (
        _declaration(script, module, name, node, doc, typedefs, name if agent else script.file.stem)
        for name, (node, doc) in wanted.items()
    )
    return [one for one in found if one is not None]


def _wanted(name: str, *, agent: bool) -> bool:
    return (name == "_instructions" or not name.startswith("_")) if agent else name == "run"


def _parsed(script: ToolScript) -> Node | None:
    try:
        root = parsed(script.text)
    except ImportError as error:
        raise ConfigError(
            f"{script.file}: reading TypeScript tools needs a parser; run: {install_command('typescript')}"
        ) from error
    if not root.has_error:
        return root
    broken = _first_error(root)
    script.error(
        "typescript_syntax",
        f"failed to parse typescript: syntax error in {script.file.name}",
        broken.start_point.row + 1,
        broken.start_point.column,
        expected=f"'{broken.type}'" if broken.is_missing else "",
    )
    return None


def _first_error(root: Node) -> Node:
    """Return the first node that the parser could not read; it is near the nodes with `has_error`."""
    node = root
    while True:
        broken = next((child for child in node.children if child.is_error or child.is_missing or child.has_error), None)
        if broken is None or node.is_error:
            return node
        node = broken


def _exports(root: Node) -> Iterator[tuple[Node, Docstring]]:
    above = Docstring()
    for node in root.children:
        if node.type == "comment":  # A comment such as `// @ts-ignore` may separate the JSDoc from the function.
            above = read_jsdoc(text_of(node)) if text_of(node).startswith("/**") else above
            continue
        if node.type == "export_statement":
            yield node, above
        above = Docstring()


def _common_js(root: Node) -> Iterator[tuple[str, Node, Docstring]]:
    """Yield the functions of `exports.NAME = ...`, `module.exports.NAME = ...` and `module.exports = {NAME, ...}`."""
    declared: dict[str, tuple[Node, Docstring]] = {}
    above = Docstring()
    for node in root.children:
        if node.type == "comment":
            above = read_jsdoc(text_of(node)) if text_of(node).startswith("/**") else above
            continue
        doc, above = above, Docstring()
        if node.type == "function_declaration":
            declared[text_of(node.child_by_field_name("name"))] = (node, doc)
        elif node.type in ("lexical_declaration", "variable_declaration"):
            for variable in node.named_children:
                value = variable.child_by_field_name("value")
                if value is not None and value.type in FUNCTION_VALUES:
                    declared[text_of(variable.child_by_field_name("name"))] = (value, doc)
    above = Docstring()
    for node in root.children:
        if node.type == "comment":
            above = read_jsdoc(text_of(node)) if text_of(node).startswith("/**") else above
            continue
        doc, above = above, Docstring()
        assigned = node.named_children[0] if node.type == "expression_statement" and node.named_children else None
        if assigned is None or assigned.type != "assignment_expression":
            continue
        target = text_of(assigned.child_by_field_name("left"))
        value = assigned.child_by_field_name("right")
        name = target.removeprefix("module.").removeprefix("exports.")
        if target == "module.exports" and value is not None and value.type == "object":
            for pair in value.named_children:
                key = text_of(pair.child_by_field_name("key")) or text_of(pair)
                made = pair.child_by_field_name("value")
                found = _function_of(pair if made is None else made, declared, doc)
                if found is not None:
                    yield key, *found
        elif value is not None and name != target and name.isidentifier():
            found = _function_of(value, declared, doc)
            if found is not None:
                yield name, *found


def _function_of(
    value: Node, declared: dict[str, tuple[Node, Docstring]], doc: Docstring
) -> tuple[Node, Docstring] | None:
    if value.type in ("arrow_function", "function_expression"):
        return value, doc
    known = declared.get(text_of(value))
    return None if known is None else (known[0], known[1] if known[1].description else doc)


def _is_default(exported: Node) -> bool:
    return any(child.type == "default" for child in exported.children)


def _refuse_lookalikes(script: ToolScript, module: TypeScriptModule, exported: Node, *, agent: bool) -> None:
    """Note errors for exported functions in a form that is not supported."""
    declared = exported.child_by_field_name("declaration")
    value = exported.child_by_field_name("value")
    found: list[tuple[str, str]] = []
    if _is_default(exported):
        made = declared or value
        if made is not None and made.type in ("function_declaration", *FUNCTION_VALUES):
            found.append(("default" if agent else "run", "a default export"))
    elif declared is not None and declared.type == "generator_function_declaration":
        found.append((text_of(declared.child_by_field_name("name")), "a generator"))
    elif declared is not None and declared.type in ("lexical_declaration", "variable_declaration"):
        for variable in declared.named_children:
            made = variable.child_by_field_name("value")
            if made is not None and made.type in FUNCTION_VALUES:
                kind = "an arrow function" if made.type == "arrow_function" else "a function expression"
                found.append((text_of(variable.child_by_field_name("name")), kind))
    elif exported.child_by_field_name("source") is None:
        for clause in exported.named_children:
            for one in clause.named_children if clause.type == "export_clause" else ():
                local = text_of(one.child_by_field_name("name"))
                if local in module.functions:
                    found.append((text_of(one.child_by_field_name("alias")) or local, "an export list"))
    for name, kind in found:
        if _wanted(name, agent=agent):
            script.error(
                "typescript_export",
                f"'{name}' is {kind}, which is not supported in tool files",
                exported.start_point.row + 1,
                exported.start_point.column,
                expected=f"`export function {name if name != 'default' else 'name'}(...)`",
            )


def _declaration(
    script: ToolScript,
    module: TypeScriptModule,
    function: str,
    node: Node,
    doc: Docstring,
    typedefs: dict[str, Docstring],
    name: str,
) -> Declaration | None:
    if node.type == "generator_function_declaration":  # A generator is already noted as an error.
        return None
    start = node.start_point
    expected = "a `/** ... */` comment right above it that says what it does"
    draft = DeclarationDraft(script, name, function, start.row + 1, start.column, doc, expected, "")
    types = TypeScriptTypes(module)
    taken = node.child_by_field_name("parameters")
    properties = _object_of(node, doc, typedefs)
    if properties:
        for key, said in properties.items():
            schema, optional = types.parameter(None, said, NO_VALUE)
            draft.add(key, schema, start.row + 1, start.column, needed=not (said.optional or optional))
        return draft.declaration("typescript", takes_object=True)
    for parameter in taken.named_children if taken is not None else ():
        if parameter.type == "comment":
            continue
        try:
            key, schema, needed = _property(types, doc, parameter)
        except UnreadableDeclaration as wrong:
            draft.refuse(wrong)
            continue
        draft.add(key, schema, parameter.start_point.row + 1, parameter.start_point.column, needed=needed)
    return draft.declaration("typescript")


def _object_of(node: Node, doc: Docstring, typedefs: dict[str, Docstring]) -> dict[str, DocumentedParameter]:
    """Return the documented properties of a JavaScript function's single object; empty for other functions."""
    taken = node.child_by_field_name("parameters")
    parameters = [each for each in taken.named_children if each.type != "comment"] if taken is not None else []
    alone = node.child_by_field_name("parameter")  # The parameter of an arrow function without parentheses.
    if len(parameters) + (alone is not None) != 1:
        return {}
    if parameters and parameters[0].child_by_field_name("type") is not None:
        return {}
    kinds = [said.type for said in doc.entries.values()]
    named = typedefs.get(kinds[0]) if len(kinds) == 1 else None
    if named is not None:
        return named.properties
    if doc.properties:
        return doc.properties
    nested = {key.partition(".")[2]: said for key, said in doc.entries.items() if key.count(".") == 1}
    is_pattern = (
        bool(parameters) and getattr(parameters[0].child_by_field_name("pattern"), "type", "") == "object_pattern"
    )
    return nested if is_pattern or (nested and kinds and kinds[0].lower() == "object") else {}


def _property(types: TypeScriptTypes, doc: Docstring, parameter: Node) -> tuple[str, Schema, bool]:
    pattern = parameter.child_by_field_name("pattern")
    if pattern is None or pattern.type != "identifier":
        wrong = pattern or parameter
        kinds = {"rest_pattern": "rest", "object_pattern": "destructured object", "array_pattern": "destructured array"}
        raise UnreadableDeclaration(
            "typescript_parameter",
            f"{kinds.get(wrong.type, 'such')} parameters are not supported in tool functions: {text_of(wrong)[:40]}",
            wrong.start_point.row + 1,
            wrong.start_point.column,
            expected="parameters with a name of their own",
        )
    name = text_of(pattern)
    said = doc.entries.get(name)
    default = parameter.child_by_field_name("value")
    value = NO_VALUE if default is None else types.module.value(default)
    annotation = parameter.child_by_field_name("type")
    schema, optional = types.parameter(None if annotation is None else annotation.named_children[0], said, value)
    types.describe(schema, name, doc.entries)
    needed = parameter.type == "required_parameter" and default is None and not optional
    return name, schema, needed


# --- types as JSON Schemas
#
# Types with a JSON equivalent are exact: primitive types, arrays, tuples, unions, literals, object types, `Record`, and
# the file's own interfaces, aliases and enums, inlined where they are used. Any other type is an error with its
# position: the function would not receive a `Date` or a `Map`.


_PLAIN: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "any": {},
    "unknown": {},
    "object": {"type": "object"},
}
_IN_COMMENTS: Final[dict[str, Schema]] = {
    **_PLAIN,
    "bool": {"type": "boolean"},
    "integer": {"type": "integer"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "array": {"type": "array"},
}
"""Type names in JSDoc, in any case: llm-functions accepts `{Integer}` and `{Boolean}`."""

_CLOSURE = [
    (re.compile(r"\.<"), "<"),
    (re.compile(r"^\s*\?(.+)$"), r"(\1) | null"),
    (re.compile(r"^\s*!"), ""),
    (re.compile(r"=\s*$"), ""),
    (re.compile(r"^\s*\*\s*$"), "any"),
]
"""Spellings of JSDoc that TypeScript lacks: `Array.<string>`, `?string`, `!Object`, `string=`, `*`."""

_ARRAYS = ("Array", "ReadonlyArray")
EXPECTED = "string, number, boolean, a literal, array, union, object or Record, or a type declared in this file"


class TypeScriptTypes(TypeReader["Node"]):
    """Type parser of one function.

    Attributes:
        module: resolves names of the file.
    """

    numbers = "number"

    def __init__(self, module: TypeScriptModule) -> None:
        super().__init__()
        self.module = module
        self._of_comment = False

    def named(self, text: str) -> Schema:
        """Return the schema of a type named in a comment; that of a text for an unknown type."""
        for pattern, instead in _CLOSURE:
            text = pattern.sub(instead, text)
        root = parsed(f"type T = {text}")
        if root.has_error or root.named_child_count != 1:
            return {"type": "string"}
        value = root.named_children[0].child_by_field_name("value")
        self._of_comment = True
        try:
            return {"type": "string"} if value is None else self.schema(value)
        except UnreadableDeclaration:
            return {"type": "string"}
        finally:
            self._of_comment = False

    def describe(self, schema: Schema, name: str, params: Mapping[str, DocumentedParameter]) -> None:
        """Set the description of the property `depth` of the parameter `options` from `@param options.depth`."""
        for key, inner in schema.get("properties", {}).items():
            path = f"{name}.{key}"
            if path in params and params[path].text:
                inner["description"] = params[path].text
            self.describe(inner, path, params)

    def wrong(self, node: Node, message: str, *, expected: str = "", hint: str = "") -> UnreadableDeclaration:
        line, offset = node.start_point.row + 1, node.start_point.column
        return UnreadableDeclaration("typescript_type", message, line, offset, expected=expected, hint=hint)

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
            name = text_of(node)
            # JSDoc spells its types in any case; in code, `Integer` would be a type of the file.
            if self._of_comment and name not in self.module.types and name.lower() in _IN_COMMENTS:
                return dict(_IN_COMMENTS[name.lower()])
            return self._own(node, name)
        raise self.wrong(node, f"the type '{_short(node)}' is not supported", expected=EXPECTED)

    def _tuple(self, inside: list[Node]) -> Schema:
        for part in inside:
            if part.type in ("rest_type", "optional_type"):
                raise self.wrong(
                    part, f"'{_short(part)}' in a tuple is not supported", expected="`T[]`, or a fixed number"
                )
        # `[from: string, to: string]` contains parameters, whose types are one level deeper.
        typed = [part.child_by_field_name("type") if part.type.endswith("_parameter") else None for part in inside]
        plain = zip(typed, inside, strict=True)
        return fixed_array([self.schema(part if type is None else type.named_children[0]) for type, part in plain])

    def _generic(self, node: Node, name: str, arguments: list[Node]) -> Schema:
        if name in _ARRAYS and len(arguments) == 1:
            return array(self.schema(arguments[0]))
        if name in (("Record", "Object") if self._of_comment else ("Record",)) and len(arguments) == 2:
            return self._record(arguments[0], arguments[1])
        if name in ("Partial", "Required", "Readonly") and len(arguments) == 1:
            schema = self.schema(arguments[0])
            if "properties" not in schema or name == "Readonly":
                return schema
            return {**schema, "required": [] if name == "Partial" else list(schema["properties"])}
        raise self.wrong(node, f"the type '{_short(node)}' is not supported", expected=EXPECTED)

    def _record(self, keys: Node, values: Node) -> Schema:
        names = self.schema(keys)
        inner = self.schema(values)
        if "enum" in names:  # `Record<"a" | "b", T>` is an object with exactly these keys.
            return obj({str(key): dict(inner) for key in names["enum"]}, [str(key) for key in names["enum"]])
        return {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}

    def _own(self, node: Node, name: str) -> Schema:
        declared = self.module.types.get(name)
        if declared is None:
            hint = "use a string, and convert it to a date" if name == "Date" else ""
            raise self.wrong(node, f"the type '{name}' is not defined in this file", expected=EXPECTED, hint=hint)
        if declared.child_by_field_name("type_parameters") is not None:
            raise self.wrong(node, f"the type '{name}' has type parameters, which are not supported", expected=EXPECTED)
        doc = read_jsdoc(text_of(_above(declared))).description
        with self.written_out(name):
            if declared.type == "interface_declaration":
                return described(self._object(declared), doc)
            if declared.type == "enum_declaration":
                members = self.module.members(declared)
                if not members or NO_VALUE in members.values():
                    raise self.wrong(
                        node, f"the members of the enum '{name}' can't be determined without running the file"
                    )
                return described(enum(members.values()), doc)
            value = declared.child_by_field_name("value")
            assert value is not None
            return described(self.schema(value), doc)

    def _both(self, node: Node) -> Schema:
        merged = obj({}, [])
        for part in _flat(node):
            schema = self.schema(part)
            if "properties" not in schema:
                raise self.wrong(part, f"'{_short(part)}' is not an object type, so it can't be combined with &")
            _merge(merged, schema)
        return merged

    def _object(self, node: Node) -> Schema:
        """Return the schema of an object type, or of an interface body including the extended types."""
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
            raise self.wrong(member, f"'{_short(member)}' can't be created from JSON", expected="`name: type`")
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
    """Return the parts of `A | B | C` (or with &), which the parser nests to the left.

    A loop, since there may be any number.
    """
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


def _short(node: Node) -> str:
    text = " ".join(text_of(node).split())
    return text if len(text) <= 40 else text[:37] + "..."


# --- names of a file, as far as its text defines them

_DEEPEST = 50
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|[\s\S]))")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}


class TypeScriptModule:
    """A parsed TypeScript file.

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
                for variable in declared.named_children:
                    key, value = text_of(variable.child_by_field_name("name")), variable.child_by_field_name("value")
                    if value is not None and value.type in ("arrow_function", "function_expression"):
                        self.functions.add(key)
                    elif value is not None:
                        self._constants[key] = value

    def value(self, node: Node, depth: int = 0) -> Any:
        """Return the JSON value of an expression, or `NO_VALUE`.

        Resolves literals, constants and enum members of the file.
        """
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
        """Return the values of an enum's members, by name; `NO_VALUE` for an expression that would have to run."""
        body = node.child_by_field_name("body")
        found: dict[str, Any] = {}
        before: Any = -1
        for member in body.named_children if body is not None else ():
            if member.type == "comment":
                continue
            name, value = member.child_by_field_name("name"), member.child_by_field_name("value")
            # As in TypeScript: a member without a value continues the numbers, and is an error after a text.
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
    plain = all(child.type != "template_substitution" for child in node.named_children)
    if node.type == "string" or (node.type == "template_string" and plain):
        return _string(text_of(node))
    return {"true": True, "false": False, "null": None, "undefined": None}.get(node.type, NO_VALUE)


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
    try:  # `\\ud83d\\ude00` is one character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return NO_VALUE


def key_of(node: Node) -> str:
    """Return the name of a property without quotes: `a` for `a` and `"a"`, `1` for `1`."""
    name = _string(text_of(node)) if node.type == "string" else NO_VALUE
    return text_of(node) if name is NO_VALUE else str(name)


def parsed(text: str) -> Node:
    """Return the syntax tree of a file. Raises ImportError if tree-sitter is not installed."""
    import tree_sitter
    import tree_sitter_typescript

    language = tree_sitter.Language(tree_sitter_typescript.language_typescript())
    return tree_sitter.Parser(language).parse(text.encode()).root_node


def text_of(node: Node | None) -> str:
    """Return the text of a node; "" for None."""
    return "" if node is None or node.text is None else node.text.decode()
