"""Parser for Python tools: reads signatures and docstrings with `ast`. Code of the file never runs.

    def run(city: str, days: int = 3) -> str:
        \"""Forecasts the weather.

        Args:
            city: Where.
            days: How many days.
        \"""

A parameter's type is its annotation, else the type in the docstring (`city (str): Where.`), else the type of its
default, else text. It is optional if it has a default, may be None, or is marked optional in its docstring.
"""

from __future__ import annotations

import ast
import warnings

from .declaration import Declaration
from .docstrings import read_docstring
from .python_types import PythonModule, PythonTypes
from .schemas import NO_VALUE, DeclarationDraft
from .script import ToolScript, UnreadableDeclaration

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
