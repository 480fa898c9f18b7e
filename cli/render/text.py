"""Text from models, tools, scripts and files, made harmless before a terminal sees it.

A terminal obeys what it reads: an escape sequence in a model's answer could retitle the window, hide a line,
or put text into the clipboard. So control characters are shown as what they are (`\\x1b`), never sent. The
same goes for the Unicode marks that reorder a line, with which a dangerous question can be made to look like
a harmless one.
"""

from __future__ import annotations

import json
import re
from typing import Any

_KEPT = {ord("\t"), ord("\n")}
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_REORDERING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\x{code:02x}" for code in _CONTROLS if code not in _KEPT}
_ESCAPES |= {code: f"\\u{code:04x}" for code in _REORDERING}
_ESCAPES |= {0x2028: "\n", 0x2029: "\n"}
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def safe(text: str) -> str:
    """The text with every control character but tab and newline spelled out; CRLF becomes a newline."""
    return text.replace("\r\n", "\n").translate(_ESCAPES)


def one_line(text: str, width: int = 120) -> str:
    """The text, safe, on one line of at most `width` characters, the cut shown as `…`."""
    line = " ".join(safe(text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def uncoloured(text: str) -> str:
    """The text without the colours a program gave it; not yet harmless."""
    return _COLOURS.sub("", text)


def counted(number: int, word: str) -> str:
    """`1 error`, `2 errors`, `1,200 chunks`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def json_object(**fields: Any) -> str:
    """What `-o json` prints of a command: one object, with the version of its shape."""
    return json.dumps({"schema_version": 1, **fields}, indent=2, ensure_ascii=False) + "\n"


def with_node(message: str, node: str | None) -> str:
    """An error's text, with the node it happened at unless the text names it."""
    message = message.strip()
    return message if node is None or f"'{node}'" in message else f"node '{node}': {message}"
