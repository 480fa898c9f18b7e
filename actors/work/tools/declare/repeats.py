"""What a tool file says of calls that are made twice: `@meta effect NAME`, in a comment above the function.

    # @meta effect read              it changes nothing
    # @meta effect idempotent        two calls leave the world as one does
    # @meta effect keyed             it does its work once for each key, which it finds in CALLBOARD_CALL_KEY
    # @meta effect write             two calls do the work twice (what is assumed where nothing is said)

In Python and TypeScript it stands in the comment right above the function (`# @meta`, `// @meta`, a line of the JSDoc),
in bash it is a tag like others.
"""

from __future__ import annotations

import re

from .....protocol.problems import did_you_mean
from .....protocol.repeats import REPEATS, Repeats
from .script import Script

_DIRECTIVE = re.compile(r"\s*(?:#+|//+|/?\*+)\s*@meta\s+effect\b\s*(.*?)\s*(?:\*/)?\s*$")
_ABOVE = re.compile(r"\s*(?:#|//|/?\*|@|\*/)")
"""A line that may stand between the directive and the function: comments and decorators."""


def read_repeats(script: Script, said: str, line: int) -> Repeats | None:
    """The value of a directive; a warning is noted for one that is none."""
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


def repeats_above(script: Script, line: int) -> Repeats | None:
    """What the comment above the function in this line (1-based) says; None if it says nothing."""
    at = line - 2
    while at >= 0 and _ABOVE.match(script.lines[at]):
        found = _DIRECTIVE.match(script.lines[at])
        if found is not None:
            return read_repeats(script, found[1], at + 1)
        at -= 1
    return None
