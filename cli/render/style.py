"""Whether to colour, and whether the terminal can be redrawn, as the customs of the environment want it.

`NO_COLOR` (any value) wins over `CLICOLOR_FORCE` (any value but 0), which wins over what the stream is.
`TERM=dumb` means lines only. rich reads `COLUMNS` by itself.
"""

from __future__ import annotations

import os
from typing import TextIO

_SGR = {"dim": "2", "warning": "33", "error": "31", "question": "1", "title": "1", "text": ""}


def colours(stream: TextIO) -> bool:
    """True if what is written to the stream may carry colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "") not in ("", "0"):
        return True
    return redrawable(stream)


def redrawable(stream: TextIO) -> bool:
    """True if the stream is a terminal that understands cursor movements."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, style: str) -> str:
    """The text in one of the house's styles: dim, warning, error, question, title, text."""
    code = _SGR[style]
    return f"\x1b[{code}m{text}\x1b[0m" if code else text
