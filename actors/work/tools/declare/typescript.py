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

tree-sitter is an extra, `callboard[typescript]`, that only this module and `typescript_types` need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .....protocol.errors import ConfigError
from .....supervisors.installation import install_command
from .declaration import Declaration, Schema
from .docstrings import Docstring, DocumentedParameter, read_jsdoc
from .schemas import NO_VALUE, DeclarationDraft
from .script import ToolScript, UnreadableDeclaration
from .typescript_types import TypeScriptModule, TypeScriptTypes, parsed, text_of

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
    typedefs = _typedefs(root)
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
            f"{script.file}: TypeScript tools need a parser; run: {install_command('typescript')}"
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


def _typedefs(root: Node) -> dict[str, Docstring]:
    """Return the types that comments of the file define, by name."""
    found = (read_jsdoc(text_of(node)) for node in root.children if node.type == "comment")
    return {doc.typedef: doc for doc in found if doc.typedef}


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
