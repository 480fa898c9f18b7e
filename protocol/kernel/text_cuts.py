"""Shortening of long texts between words, so that redaction still works.

A redactor finds a secret only as a whole. A cut through the middle of a key leaves half of it, which no redactor
recognises. So texts are redacted before they are cut wherever a redactor is available, and every cut drops the
incomplete word. That also protects keys that only a later redactor knows.
"""

from __future__ import annotations

BREAKS = frozenset(" \t\r\n\v\f\0\"'`<>(){}[],|")
"""Characters that end a word. Every character outside of ASCII does too."""

LONGEST_WORD = 4_096
"""Length in characters up to which a word is dropped whole; of a longer one (encoded data) a part may remain."""


def before_cut(text: str) -> str:
    """Return a text that was cut off at its end, without the rest of its last word.

    A last word of more than `LONGEST_WORD` characters stays.
    """
    least = max(0, len(text) - LONGEST_WORD)
    at = len(text)
    while at > least and not _is_break(text[at - 1]):
        at -= 1
    return text[:at] if at > least or not least else text


def after_cut(text: str) -> str:
    """Return a text that was cut off at its beginning, without the rest of its first word.

    A first word of more than `LONGEST_WORD` characters stays.
    """
    most = min(len(text), LONGEST_WORD)
    at = 0
    while at < most and not _is_break(text[at]):
        at += 1
    return text[at:] if at < most or most == len(text) else text


def head_of(text: str, most: int) -> str:
    """Return the beginning of a text, at most `most` characters; a longer text is cut with `before_cut`."""
    return text if len(text) <= most else before_cut(text[:most])


def tail_of(text: str, most: int) -> str:
    """Return the end of a text, at most `most` characters; a longer text is cut with `after_cut`."""
    return text if len(text) <= most else after_cut(text[len(text) - most :])


def _is_break(char: str) -> bool:
    # Keys and tokens are ASCII, so a cut beside any other character leaves no part of one.
    return char in BREAKS or char > "\x7f"
