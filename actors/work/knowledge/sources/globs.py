"""Globs: braces are spelled out first, then each part of the path is matched by itself.

    dir/*.md            in dir itself
    dir/*/*.md          one directory below dir, no deeper
    dir/*/README.md     files of that name at any depth below dir, but not in dir itself, as Loki has it
    dir/**/*.{md,txt}   in dir and at any depth below, with either ending
    dir/**              everything below dir

As in a shell, wildcards don't match names that begin with a dot.
"""

from __future__ import annotations

import fnmatch
import re
from itertools import pairwise

from .....protocol.errors import UsageError

ALTERNATIVES = 1000
ANY_DEPTH = "**"


def alternatives(pattern: str) -> list[str]:
    """A pattern with its braces spelled out, in the order in which they are written. Braces may be nested.

    Raises:
        UsageError: they stand for more than a thousand patterns, or are not closed.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        opening = text.find("{")
        if opening < 0:
            done.append(text)
        else:
            closing, commas = _group(text, opening)
            ends = [opening, *commas, closing]
            inner = [text[start + 1 : end] for start, end in pairwise(ends)]
            waiting += [text[:opening] + each + text[closing + 1 :] for each in reversed(inner)]
        if len(done) + len(waiting) > ALTERNATIVES:
            raise UsageError(f"the braces in '{pattern}' stand for more than {ALTERNATIVES} patterns")
    return list(dict.fromkeys(done))


def matcher(part: str) -> re.Pattern[str]:
    """What one part of a path has to look like."""
    simpler = re.sub(r"\*+", "*", part)
    dots = "" if part.startswith(".") else r"(?!\.)"
    return re.compile(dots + fnmatch.translate(simpler), re.DOTALL)


def _group(text: str, opening: int) -> tuple[int, list[int]]:
    """Where a brace is closed, and its commas."""
    depth = 0
    commas: list[int] = []
    for at in range(opening, len(text)):
        match text[at]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if not depth:
                    return at, commas
            case "," if depth == 1:
                commas.append(at)
    raise UsageError(f"'{text}': a brace is opened and not closed; write {{md,txt}}")
