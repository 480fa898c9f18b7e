"""TypeScript tools: exported functions, their types and their JSDoc, read with tree-sitter.

    /**
     * Forecasts the weather.
     * @param city - Where.
     * @param days - How many days.
     */
    export function run(city: string, days: number = 3): string { ... }

Only `export function` (also `async`) is a tool; what else is exported as a function is an error, because it looks like
one. A parameter need not be given if it is `name?`, may be null or undefined, or has a default. Without an annotation,
as in JavaScript, its type is the one in the JSDoc, that of its default, or text.

tree-sitter is an extra, `callboard[typescript]`: this module alone needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .....protocol.errors import ConfigError
from .declaration import Declaration, Schema
from .docstrings import Docstring, read_jsdoc
from .schemas import NO_VALUE, Draft
from .script import Script, Unreadable
from .typescript_types import Module, Types, parsed, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

FUNCTION_VALUES = ("arrow_function", "function_expression", "generator_function")


def read_typescript(script: Script, *, agent: bool) -> list[Declaration]:
    """Every tool of the file; what is wrong is noted at `script`.

    Raises:
        ConfigError: tree-sitter is not installed.
    """
    root = _parsed(script)
    if root is None:
        return []
    module = Module(root)
    functions: dict[str, tuple[Node, Docstring]] = {}
    overloads: dict[str, Docstring] = {}
    for exported, doc in _exports(root):
        _refuse_lookalikes(script, module, exported, agent=agent)
        declared = exported.child_by_field_name("declaration")
        name = "" if declared is None else text_of(declared.child_by_field_name("name"))
        if declared is None or _is_default(exported):
            continue
        if declared.type == "function_signature":
            overloads.setdefault(name, doc)
        elif declared.type in ("function_declaration", "generator_function_declaration"):
            functions[name] = (declared, doc if doc.description else overloads.get(name, doc))
    wanted = {name: one for name, one in functions.items() if _wanted(name, agent=agent)}
    if not wanted and not agent and not script.problems:
        script.error("no_entry", "the file exports no function 'run'", 0, expected="`export function run(...)`")
    elif not wanted and agent and not script.problems:
        script.warning("no_tools", "the file declares no tools", 0, hint="a tool is an `export function`")
    found = (
        _declaration(script, module, node, doc, name if agent else script.file.stem)
        for name, (node, doc) in wanted.items()
    )
    return [one for one in found if one is not None]


def _wanted(name: str, *, agent: bool) -> bool:
    return (name == "_instructions" or not name.startswith("_")) if agent else name == "run"


def _parsed(script: Script) -> Node | None:
    try:
        root = parsed(script.text)
    except ImportError as error:
        raise ConfigError(
            f"{script.file}: TypeScript tools need a parser; run: pip install 'callboard[typescript]'"
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
    """The first place that the parser could make nothing of; it is never far below nodes that `has_error`."""
    node = root
    while True:
        broken = next((child for child in node.children if child.is_error or child.is_missing or child.has_error), None)
        if broken is None or node.is_error:
            return node
        node = broken


def _exports(root: Node) -> Iterator[tuple[Node, Docstring]]:
    above = Docstring()
    for node in root.children:
        if node.type == "comment":  # `// @ts-ignore` may stand between
            above = read_jsdoc(text_of(node)) if text_of(node).startswith("/**") else above
            continue
        if node.type == "export_statement":
            yield node, above
        above = Docstring()


def _is_default(exported: Node) -> bool:
    return any(child.type == "default" for child in exported.children)


def _refuse_lookalikes(script: Script, module: Module, exported: Node, *, agent: bool) -> None:
    """Note exports that are functions, but in a form that is no tool."""
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


def _declaration(script: Script, module: Module, node: Node, doc: Docstring, name: str) -> Declaration | None:
    if node.type != "function_declaration":  # a generator, which is noted already
        return None
    start = node.start_point
    function = text_of(node.child_by_field_name("name"))
    expected = "a `/** ... */` comment right above it that says what it does"
    draft = Draft(script, name, function, start.row + 1, start.column, doc, expected, "")
    types = Types(module)
    taken = node.child_by_field_name("parameters")
    for parameter in taken.named_children if taken is not None else ():
        if parameter.type == "comment":
            continue
        try:
            key, schema, needed = _property(types, doc, parameter)
        except Unreadable as wrong:
            draft.refuse(wrong)
            continue
        draft.add(key, schema, parameter.start_point.row + 1, parameter.start_point.column, needed=needed)
    return draft.declaration("typescript")


def _property(types: Types, doc: Docstring, parameter: Node) -> tuple[str, Schema, bool]:
    pattern = parameter.child_by_field_name("pattern")
    if pattern is None or pattern.type != "identifier":
        wrong = pattern or parameter
        kinds = {"rest_pattern": "rest", "object_pattern": "destructured object", "array_pattern": "destructured array"}
        raise Unreadable(
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
