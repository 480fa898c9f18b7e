"""Files that a prompt mentions: `what does @src/main.py do?` comes with the file, if there is one of that name."""

from __future__ import annotations

import re
from pathlib import Path

_MENTION = re.compile(r"(?<![\w@])@(\"[^\"\n]+\"|[^\s\"'`]+)")
_ENDS = ".,;:!?)]}>"
MOST = 50
MOST_TRIED = 200
"""Names that are looked for; what stands behind that many is text."""


def files_in(text: str) -> tuple[str, ...]:
    """The files that are there; anything else behind an @ is text."""
    found: dict[str, None] = {}
    tried: set[str] = set()
    for match in _MENTION.finditer(text):
        name = match.group(1).strip('"')
        for each in (name, name.rstrip(_ENDS)):
            if not each or each in tried:
                continue
            tried.add(each)
            if _is_there(each):
                found[each] = None
                break
        if len(found) >= MOST or len(tried) >= MOST_TRIED:
            break
    return tuple(found)


def _is_there(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long, no such home, a zero byte
        return False
