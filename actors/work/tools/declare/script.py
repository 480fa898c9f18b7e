"""Text of a tool file, with the problems found in it, and the directive `@meta effect`.

Parsers raise `UnreadableDeclaration` deep inside a signature. The parser of the function catches it, notes a problem
and continues with the next function, so that one pass finds all problems.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

from .....protocol.problems import Problem, Severity, did_you_mean
from .....protocol.repeats import REPEATS, Repeats

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names that providers accept for a tool or a parameter."""

MOST_PROBLEMS = 100
"""Maximum errors noted per file, and maximum warnings."""


class UnreadableDeclaration(Exception):
    """A part of a declaration that has no schema.

    Attributes:
        offset: position in the line, 0-based, in UTF-8 bytes (as `ast` and tree-sitter count); None: the whole line.
    """

    def __init__(
        self, code: str, message: str, line: int, offset: int | None = None, *, expected: str = "", hint: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.line = line
        self.offset = offset
        self.expected = expected
        self.hint = hint


class ToolScript:
    """A tool file during parsing.

    Attributes:
        file: its path.
        text: its content.
        lines: its lines, without their ends.
        interpreter: the command of its `#!` line.
        problems: the problems found so far.
    """

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.text = text
        self.lines = [line.removesuffix("\r") for line in text.split("\n")]
        self.interpreter = interpreter_of(self.lines[0])
        self.problems: list[Problem] = []
        self._noted: Counter[Severity] = Counter()

    def error(self, code: str, message: str, line: int, offset: int | None = None, **more: str) -> None:
        """Note an error that makes a function or the whole file unusable. `more`: `expected`, `hint`."""
        self.note(UnreadableDeclaration(code, message, line, offset, **more))

    def warning(self, code: str, message: str, line: int, offset: int | None = None, **more: str) -> None:
        """Note a probable mistake."""
        self.note(UnreadableDeclaration(code, message, line, offset, **more), "warning")

    def note(self, wrong: UnreadableDeclaration, severity: Severity = "error") -> None:
        """Note an error or a warning of a parser."""
        self._noted[severity] += 1
        # Counted but dropped: a broken file can produce a problem per line.
        if self._noted[severity] > MOST_PROBLEMS:
            return
        column = 0
        if wrong.offset is not None and 0 < wrong.line <= len(self.lines):
            before = self.lines[wrong.line - 1].encode(errors="replace")[: wrong.offset]
            column = len(before.decode(errors="replace")) + 1
        self.problems.append(
            Problem(
                severity=severity,
                file=str(self.file),
                code=wrong.code,
                message=wrong.message,
                line=wrong.line,
                column=column,
                expected=wrong.expected or None,
                hint=wrong.hint or None,
            )
        )

    def usable_name(self, name: str, line: int) -> bool:
        """Return True if the name is valid for a tool; note an error if not."""
        if NAME.fullmatch(name):
            return True
        self.error(
            "tool_name",
            f"'{name[:80]}' can't be the name of a tool",
            line,
            expected="1 to 64 letters, digits, `_` and `-`",
            hint=f"rename it, for instance to '{re.sub(r'[^A-Za-z0-9_-]+', '_', name)[:64] or 'tool'}'",
        )
        return False

    def doubt_name(self, name: str, line: int, offset: int | None = None) -> None:
        """Warn of a parameter name that some providers reject."""
        if not NAME.fullmatch(name):
            self.warning(
                "parameter_name",
                f"some models can't fill a parameter called '{name[:80]}'",
                line,
                offset,
                expected="1 to 64 letters, digits, `_` and `-`",
            )


def interpreter_of(first_line: str) -> tuple[str, ...]:
    """Return the command of a `#!` line; () for any other line.

    `env` is removed, since the PATH is searched anyway. It remains where it does more (`env -i`, `env A=1 x`).
    """
    if not first_line.startswith("#!"):
        return ()
    try:
        words = shlex.split(first_line[2:])
    except ValueError:  # An unclosed quote.
        words = first_line[2:].split()
    if not words or Path(words[0]).name != "env":
        return tuple(words)
    program = words[2:] if words[1:2] == ["-S"] else words[1:]
    if not program or program[0].startswith("-") or "=" in program[0]:
        return tuple(words)
    return tuple(program)


# --- directive about repeated calls of a function: `@meta effect NAME`, in a comment above it
#
#     # @meta effect read              changes nothing
#     # @meta effect idempotent        two calls have the effect of one
#     # @meta effect keyed             does its work once per key, which is in CALLBOARD_CALL_KEY
#     # @meta effect write             two calls do the work twice (the default)
#
# In Python and TypeScript the directive is in the comment right above the function (`# @meta`, `// @meta`, a line of
# the JSDoc). In bash it is a tag.


_DIRECTIVE = re.compile(r"\s*(?:#+|//+|/?\*+)\s*@meta\s+effect\b\s*(.*?)\s*(?:\*/)?\s*$")
_ABOVE = re.compile(r"\s*(?:#|//|/?\*|@|\*/)")
"""Lines allowed between the directive and the function: comments and decorators."""


def read_repeats(script: ToolScript, said: str, line: int) -> Repeats | None:
    """Return the value of a directive; note a warning for an unknown one."""
    for known in REPEATS:
        if known == said:
            return known
    script.warning(
        "unknown_effect",
        f"@meta effect {said}: there is no such effect",
        line,
        expected=", ".join(REPEATS),
        hint=did_you_mean(said, REPEATS) or "",
    )
    return None


def repeats_above(script: ToolScript, line: int) -> Repeats | None:
    """Return the directive in the comment above the function at this line (1-based); None if there is none."""
    at = line - 2
    while at >= 0 and _ABOVE.match(script.lines[at]):
        found = _DIRECTIVE.match(script.lines[at])
        if found is not None:
            return read_repeats(script, found[1], at + 1)
        at -= 1
    return None
