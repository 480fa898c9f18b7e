"""Interpreter of a tool file, as a command line that ends with the runner of this package.

A `#!` line of the file decides, unless it is missing or names only the language (`env python3`). Then bash files run
with `bash`. Python files run with `./.venv/bin/python` of the working directory if it exists, else with `python3`.
TypeScript files run with `tsx`, or with a node that supports types. A `#!/bin/sh` is ignored: tool files need bash.

The `tsx` command itself is not used: it starts a second node, which inherits no descriptors. Its loader is loaded into
the first node instead (`node --import <its loader>`), as its documentation offers.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.errors import CallboardError, ToolFailed
from ...library import PROMPT_UTILS

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ..declare.declaration import Declaration

RUNNERS = Path(__file__).parent / "runners"
FUNCTIONS = PROMPT_UTILS.parent

PLAIN_PYTHON = ((), ("python",), ("python3",))

NEEDS_TSX = "it needs `tsx` (npm install -g tsx) or node 22.18 or later"

NPX_WITHIN = 120.0
"""Seconds for npx to download tsx, the first time."""


def command(declaration: Declaration, environ: Mapping[str, str]) -> list[str]:
    """Return the command line of one call.

    Raises:
        ToolFailed: the interpreter does not exist.
    """
    named = declaration.interpreter
    if declaration.language == "bash":
        program = named if named and Path(named[0]).name == "bash" else ("bash",)
        runner = "\n".join(part.read_text() for part in (FUNCTIONS / "ask.sh", RUNNERS / "run.sh"))
        # With -c, `$0` is the user's file, as if it had been started directly.
        return [*_located(program, declaration, environ), "-c", runner, str(declaration.file.absolute())]
    if declaration.language == "python":
        own = Path(".venv/bin/python")
        python = str(own.absolute()) if own.exists() else "python3"
        program = (python,) if named in PLAIN_PYTHON else named
        return [*_located(program, declaration, environ), str(RUNNERS / "run.py")]
    if not named or Path(named[-1]).name in ("tsx", "node"):
        return [*_node(declaration, environ), str(RUNNERS / "run.mjs")]
    return [*_located(named, declaration, environ), str(RUNNERS / "run.mjs")]


async def command_by_npx(me: Actor, declaration: Declaration, environ: Mapping[str, str]) -> list[str]:
    """Return the command line for a TypeScript file with tsx from npx.

    For machines with neither tsx nor a node that supports types.

    Raises:
        ToolFailed: npx is missing, or could not install tsx.
    """
    from .....supervisors.process import run_process

    npx = shutil.which("npx", path=environ.get("PATH"))
    if npx is None:
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: {NEEDS_TSX}")
    ask_for_it = [npx, "--yes", "--package=tsx", "--call", "command -v tsx"]
    try:
        done = await run_process(me, ask_for_it, name="npx", env=environ, timeout=NPX_WITHIN)
    except CallboardError as error:
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: {NEEDS_TSX}; npx got none: {error}") from error
    words = done.stdout.decode(errors="replace").split()
    loader = _loader(words[-1]) if done.status == 0 and words else None
    if loader is None:
        message = f"Tool '{declaration.name}' can't be run: {NEEDS_TSX}; npx got none"
        raise ToolFailed(message, stderr=done.stderr_tail)
    node = _found("node", declaration, environ)
    return [node, "--import", loader, str(RUNNERS / "run.mjs")]


def _node(declaration: Declaration, environ: Mapping[str, str]) -> list[str]:
    places = [Path(home, "node_modules", ".bin") for home in (Path.cwd(), *declaration.file.absolute().parents)]
    node = _found("node", declaration, environ)
    for directory in (*map(str, places), environ.get("PATH")):
        tsx = shutil.which("tsx", path=directory)
        if tsx is not None and (loader := _loader(tsx)) is not None:
            return [node, "--import", loader]
    return [node]


def _loader(tsx: str) -> str | None:
    """Return the URL of the module that makes node read TypeScript, from the package of this `tsx` command."""
    loader = Path(tsx).resolve().with_name("loader.mjs")
    return loader.as_uri() if loader.is_file() else None


def _located(program: tuple[str, ...], declaration: Declaration, environ: Mapping[str, str]) -> tuple[str, ...]:
    return (_found(program[0], declaration, environ), *program[1:])


def _found(program: str, declaration: Declaration, environ: Mapping[str, str]) -> str:
    found = shutil.which(program, path=environ.get("PATH"))
    if found is None:
        named = ", which its first line names," if declaration.interpreter else ""
        missing = "is not there" if "/" in program else "is not on the PATH"
        hint = f"; {NEEDS_TSX}" if program == "node" else ""
        raise ToolFailed(f"Tool '{declaration.name}' can't be run: '{program}'{named} {missing}{hint}")
    return found
