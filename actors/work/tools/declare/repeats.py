"""Directive about repeated calls of a tool file's function: `@meta effect NAME`, in a comment above it.

    # @meta effect read              changes nothing
    # @meta effect idempotent        two calls have the effect of one
    # @meta effect keyed             does its work once per key, which is in CALLBOARD_CALL_KEY
    # @meta effect write             two calls do the work twice (the default)

In Python and TypeScript the directive is in the comment right above the function (`# @meta`, `// @meta`, a line of the
JSDoc). In bash it is a tag.
"""

from __future__ import annotations

import re

from .....protocol.problems import did_you_mean
from .....protocol.repeats import REPEATS, Repeats
from .script import ToolScript

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
