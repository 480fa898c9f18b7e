"""JSON that scripts and models wrote: bounded before it becomes state, and read in spite of half characters.

State is walked by recursive code (compared, rendered, encoded), here and in the programs that read it. So what is
nested deeper than any sensible document is refused where it comes in, and whatever is state can be worked on.

Models and the programs around them cut texts between the two halves of an emoji: escapes like `\\ud83d` without their
other half, bytes that are no UTF-8. Such a half is no character: no file, no socket and no strict JSON decoder takes
it. Each becomes U+FFFD, the replacement character, where the text comes in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

DEEPEST = 200
"""Levels of lists and objects in one value."""


class NotJson(ValueError):
    """The text is no JSON, or none that can become state; says why."""


def decode(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        NotJson: see there.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotJson(str(error)) from error
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    if is_too_deep(value):
        raise NotJson(_TOO_DEEP)
    return value


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects are nested in it more than `DEEPEST` levels. Does not recurse itself."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return False
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    return bool(level)


_TOO_DEEP = f"lists and objects are nested more than {DEEPEST} deep"


T = TypeVar("T")

REPLACEMENT = "\ufffd"

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding JSON may raise: it is none, has another shape, is not UTF-8, or is nested without end."""

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
"""An escape of a JSON string: a whole pair, a lone half (group 1), or any other; so `\\\\ud83d` is not mistaken."""


def replaced(text: str | bytes) -> str:
    """The text of a JSON document with the replacement character for every half of one."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    return _ESCAPE.sub(lambda escape: REPLACEMENT if escape[1] else escape[0], text)


def decode_mended(decode: Callable[[str | bytes], T], text: str | bytes) -> T:
    """What `decode` makes of a JSON document; if it can't read it for half characters, of the document without them.

    Raises: what `decode` raises, if half characters are not what is wrong.
    """
    try:
        return decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are of the first kind
        without = replaced(text)
        if without == text:
            raise
        return decode(without)
