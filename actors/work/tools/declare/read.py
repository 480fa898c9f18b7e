"""Reads one tool file, whatever its language.

A file that can't be read at all (missing, not UTF-8, too large, broken syntax) is a `ToolFile` without declarations and
with a problem that says so, exactly as one with a bad signature: callers have one thing to look at.
"""

from __future__ import annotations

import stat
from pathlib import Path

from .bash import read_bash
from .declaration import ToolFile
from .python import read_python
from .script import Script, Unreadable

EXTENSIONS = (".sh", ".py", ".ts", ".js")
"""Of tool files, in the order in which an agent's `tools.*` is looked for."""

LARGEST = 256 * 1024
"""Bytes of a file that is read; a tool file is written by hand."""


def read_tools(path: Path, *, agent: bool, wordless: bool = False) -> ToolFile:
    """What the file declares.

    Args:
        path: a `.sh`, `.py`, `.ts` or `.js` file.
        agent: whether it is an agent's `tools.*`, in which every function is a tool, or one global tool, named after
            the file, whose function is `main` (bash) or `run`.
        wordless: functions of a `.py` file are read as DevAll reads them: one may do without a docstring, what its
            annotations don't say is a text, and `*args` and `**kwargs` are not the model's.

    Raises:
        ConfigError: a TypeScript file, and the extra that reads them is not installed.
    """
    try:
        script = Script(path, _text_of(path))
    except Unreadable as wrong:
        script = Script(path, "")
        script.note(wrong)
        return ToolFile(file=path, problems=script.problems)
    if path.suffix == ".sh":
        read = read_bash(script, agent=agent)
    elif path.suffix == ".py":
        read = read_python(script, agent=agent, wordless=wordless)
    else:
        from .typescript import read_typescript  # costs a parser that most users never need

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
        raise Unreadable("tool_language", f"a tool file can't have {kind}", 0, hint=hint)
    try:
        # A FIFO would make the reader wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unreadable("tool_file", "not a regular file", 0)
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or error
        raise Unreadable("tool_file", f"the file can't be read: {why}", 0) from error
    if len(data) > LARGEST:
        message = f"the file is larger than {LARGEST} bytes"
        raise Unreadable("tool_file", message, 0, hint="keep data in files of their own")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable("tool_file", "the file is not UTF-8", line, hint="save it as UTF-8") from error
