"""JSON that scripts and models wrote: bounded before it becomes state, and read in spite of half characters.

State is walked by recursive code (compared, rendered, encoded), here and in the programs that read it. So what is
nested deeper than any sensible document is refused where it comes in, and whatever is state can be worked on.

Models and the programs around them cut texts between the two halves of an emoji: escapes like `\\ud83d` without their
other half, bytes that are no UTF-8. Such a half is no character: no file, no socket and no strict JSON decoder takes
it. Each becomes U+FFFD, the replacement character, where the text comes in.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
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


# --- JSON within what a model wrote -----------------------------------------------------------------------

_FENCED = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*\n(.*?)(?:\n[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_STRING_OR_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]]', re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_MOST_PLACES = 50
"""Brackets at which a value is looked for; each costs a pass over the rest of the text."""


def values_in(text: str, *, among_words: bool = True) -> Iterator[Any]:
    """The JSON values that a model may have meant, the likeliest first: the text itself, fenced blocks, the first
    balanced object or list among other words. A byte order mark and a comma too many are passed over, and a text that
    encodes a list or an object follows behind that.

    Args:
        among_words: whether to look for a value that is neither the whole text nor in a fence.

    A fence that is not closed reaches to the end of the text.
    """
    bare = text.strip().removeprefix("\ufeff").strip()
    for candidate in (bare, *_FENCED.findall(bare), *(_balanced(bare) if among_words else ())):
        for attempt in (candidate, _STRING_OR_COMMA.sub(_without_comma, candidate)):
            try:
                value = decode_mended(decode, attempt.strip())
            except NotJson:
                continue
            if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
                with contextlib.suppress(NotJson):
                    yield decode_mended(decode, value)
            yield value
            break


def _without_comma(found: re.Match[str]) -> str:
    return "" if found[0] == "," else found[0]


def _balanced(text: str) -> Iterator[str]:
    """The parts of a text that begin with a bracket and end with its counterpart, brackets in strings not counted."""
    start = 0
    for _ in range(_MOST_PLACES):
        opened = _OPENING.search(text, start)
        if opened is None:
            return
        depth = 0
        for found in _STRING_OR_BRACKET.finditer(text, opened.start()):
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found[0], 0)
            if not depth:
                yield text[opened.start() : found.end()]
                break
        start = opened.end()
