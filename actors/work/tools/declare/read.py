"""Entry point for reading one tool file of any language.

A file that cannot be read at all (missing, not UTF-8, too large, broken syntax) results in a `ToolFile` without
declarations and with a problem. A function with an invalid signature is left out, with a problem too. So callers check
only the problems.
"""

from __future__ import annotations

import stat
from pathlib import Path

from .bash import read_bash
from .declaration import ToolFile, ToolScript, UnreadableDeclaration
from .python import read_python

EXTENSIONS = (".sh", ".py", ".ts", ".js")
"""Endings of tool files, in the search order for an agent's `tools.*`."""

LARGEST = 256 * 1024
"""Maximum bytes of a tool file, which is written by hand."""


def read_tools(path: Path, *, agent: bool, wordless: bool = False) -> ToolFile:
    """Parse a tool file.

    Args:
        path: a `.sh`, `.py`, `.ts` or `.js` file.
        agent: True for an agent's `tools.*`, in which every function is a tool. False for one global tool, which is
            named after the file and whose function is `main` (bash) or `run`.
        wordless: parse functions of a `.py` file by DevAll's rules: the docstring is optional, a parameter without a
            usable annotation is a text, and `*args` and `**kwargs` are hidden from the model.

    Raises:
        ConfigError: the file is TypeScript or JavaScript, and the extra that parses it is not installed.
    """
    try:
        script = ToolScript(path, _text_of(path))
    except UnreadableDeclaration as wrong:
        script = ToolScript(path, "")
        script.note(wrong)
        return ToolFile(file=path, problems=script.problems)
    if path.suffix == ".sh":
        read = read_bash(script, agent=agent)
    elif path.suffix == ".py":
        read = read_python(script, agent=agent, wordless=wordless)
    else:
        from .typescript import read_typescript  # Imported here because most users never need this parser.

        read = read_typescript(script, agent=agent)
    return ToolFile(
        file=path,
        declarations=[one for one in read if one.function != "_instructions"],
        instructions=next((one for one in read if one.function == "_instructions"), None),
        problems=sorted(script.problems, key=lambda problem: (problem.line, problem.column)),
    )


def _text_of(path: Path) -> str:
    if path.suffix not in EXTENSIONS:
        kind = f"the extension '{path.suffix}'" if path.suffix else "a name without an extension"
        hint = f"expected {', '.join(EXTENSIONS)}"
        raise UnreadableDeclaration("tool_language", f"a tool file can't have {kind}", 0, hint=hint)
    try:
        # Opening a FIFO would block until a writer opens it.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableDeclaration("tool_file", "the path is not a regular file", 0)
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or error
        raise UnreadableDeclaration("tool_file", f"the file can't be read: {why}", 0) from error
    if len(data) > LARGEST:
        message = f"the file is larger than {LARGEST} bytes"
        raise UnreadableDeclaration("tool_file", message, 0, hint="keep data in separate files")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableDeclaration("tool_file", "the file is not UTF-8", line, hint="save it as UTF-8") from error
