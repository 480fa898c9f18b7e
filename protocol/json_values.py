"""JSON of scripts and models: bounded before it becomes state, and read in spite of half characters.

Recursive code processes the state (compares, renders, encodes it), here and in programs that read it. Therefore a
value that is nested deeper than any sensible document is refused at the input, and every state can be processed.

Models and the programs around them cut texts between the two halves of an emoji. The results are escapes like
`\\ud83d` without their other half, and bytes that are not UTF-8. Files, sockets and strict JSON decoders reject such a
half. Each becomes U+FFFD, the replacement character, at the input. `NaN` and `Infinity`, which JSON does not have,
become null.
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
    """The text is not JSON, or cannot become state; the message has the reason."""


def decode(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        NotJson: the text is not JSON, or is nested too deep.
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
    """Return whether lists and objects are nested more than `DEEPEST` levels. Not recursive itself."""
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


_TOO_DEEP = f"lists and objects are nested more than {DEEPEST} levels deep"


T = TypeVar("T")

REPLACEMENT = "\ufffd"

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding JSON: a syntax error, a wrong type, invalid UTF-8, or too deep nesting."""

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
"""Escape of a JSON string: a complete pair, a lone half (group 1), or any other, so that `\\\\ud83d` is not mistaken.
"""


Document = str | bytes | bytearray | memoryview | msgspec.Raw


def replaced(text: Document) -> str:
    """Return the text of a JSON document with a replacement character for each unpaired surrogate or invalid byte."""
    if not isinstance(text, str):
        text = bytes(text).decode("utf-8", errors="replace")
    return _ESCAPE.sub(lambda escape: REPLACEMENT if escape[1] else escape[0], text)


_STRING_OR_NAN = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity\b|\bNaN\b)', re.DOTALL)


def mended(text: Document) -> str:
    """Return the text of a JSON document without half characters, and with `null` for `NaN` and `Infinity`.

    Python's json writes both by default; JSON has neither.
    """
    return _STRING_OR_NAN.sub(lambda found: "null" if found[1] else found[0], replaced(text))


def decode_mended(decode: Callable[[Any], T], text: Document) -> T:
    """Return `decode(text)`; if that fails, the same for the document as `mended` returns it.

    Raises: exceptions of `decode`, if mending changes nothing or does not help.
    """
    try:
        # Most documents are valid, and mending scans the whole text with two regular expressions.
        return decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        without = mended(text)
        if without == text or (not isinstance(text, str) and without.encode(errors="replace") == bytes(text)):
            raise
        return decode(without)


# --- JSON in the text of a model --------------------------------------------------------------------------

_FENCED = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*\n(.*?)(?:\n[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_STRING_OR_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]]', re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_MOST_PLACES = 50
"""Maximum of brackets at which a value is searched; each costs a pass over the rest of the text."""


def values_in(text: str, *, among_words: bool = True) -> Iterator[Any]:
    """Yield the JSON values that a model may have meant, the likeliest first.

    Candidates are the text itself, fenced blocks, and balanced objects and lists among other words, from left to right.
    A byte order mark and a trailing comma are ignored. If a value is a text that encodes a list or an object, the
    decoded one is yielded first. A fence that is not closed extends to the end of the text.

    Args:
        among_words: whether to search for values outside of fences in a longer text.
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
    """Yield the parts of a text from a bracket to its counterpart, without counting brackets in strings."""
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


JSON_TYPES = (
    "use JSON types, a dataclass, a TypedDict, a msgspec.Struct, a pydantic model, an enum, a date, a Path or a UUID"
)
"""Recommendation of error messages for a type that JSON cannot hold."""


def to_json(value: Any) -> Any:
    """Return an object of a Python program as JSON values, including pydantic models and paths.

    Raises:
        TypeError: JSON cannot hold it.
    """
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_json_of)


def _json_of(value: Any) -> Any:
    path = getattr(value, "__fspath__", None)
    if path is not None:
        return path()
    dump = getattr(value, "model_dump", None)
    # Recognised by attributes, because pydantic is not a dependency. `model_dump` alone may be a method of any class.
    if dump is not None and hasattr(value, "__pydantic_core_schema__"):
        return dump(mode="json")
    raise TypeError(f"an object of type {type(value).__name__} can't be converted to JSON: {JSON_TYPES}")


class UnfitValue(ValueError):
    """A JSON value does not fit a type; the message has the position and the reason."""
