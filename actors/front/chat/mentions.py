"""Files mentioned in a prompt: `what does @src/main.py do?` attaches the file, if it exists."""

from __future__ import annotations

import re
from pathlib import Path

_MENTION = re.compile(r"(?<![\w@])@(\"[^\"\n]+\"|[^\s\"'`]+)")
_ENDS = ".,;:!?)]}>"
MOST = 50
MOST_TRIED = 200
"""Maximum number of names to look for; later ones are plain text."""


def files_in(text: str) -> tuple[str, ...]:
    """Return the mentioned files that exist; other words with an @ are plain text."""
    found: dict[str, None] = {}
    tried: set[str] = set()
    for match in _MENTION.finditer(text):
        name = match.group(1).strip('"')
        # First literally, then without punctuation: `see @main.py.` mentions main.py, but a name may end in a dot.
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
    except (OSError, RuntimeError, ValueError):  # name too long, unknown home directory, or a zero byte
        return False
