"""Which program runs a tool file, as a command line that ends with our runner.

A `#!` line of the file decides. Otherwise, or if it says no more than the language (`env python3`), bash files get
`bash`, python files `./.venv/bin/python` of the working directory if there is one and else `python3`, and TypeScript
files `tsx` or a node that knows types by itself. A `#!/bin/sh` is not followed: tool files need bash.

tsx is not started by its own command: that starts a second node, which inherits none of our descriptors. It is loaded
into ours instead (`node --import <its loader>`), as its documentation offers.
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
"""Seconds for npx to fetch tsx, the first time."""


def command(declaration: Declaration, environ: Mapping[str, str]) -> list[str]:
    """The command line of one call.

    Raises:
        ToolFailed: the interpreter is not there.
    """
    named = declaration.interpreter
    if declaration.language == "bash":
        program = named if named and Path(named[0]).name == "bash" else ("bash",)
        runner = "\n".join(part.read_text() for part in (FUNCTIONS / "ask.sh", RUNNERS / "run.sh"))
        # With -c, `$0` is the user's file, as it would be if it were started by itself.
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
    """The command line for a TypeScript file where there is no tsx and node knows no types: tsx fetched by npx.

    Raises:
        ToolFailed: there is no npx, or it got no tsx.
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
    """The module that makes node read TypeScript, as a URL, in the package that this command belongs to."""
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
