r"""Lines of the chat split into words: quotes and backquotes keep blanks in a word, a backslash escapes a character.

    a 'b c' d\ e `git diff`    ->   a, b c, d e, `git diff`

A backquoted word keeps its backquotes, so `-f` and `.file` recognize it as a command. A quote without an end takes
the rest of the line, so an apostrophe in a prompt is no error.

`:::` before and after a text marks its beginning and end. This allows a text of several lines in the chat.
"""

from __future__ import annotations

from collections.abc import Iterator

FENCE = ":::"
"""Mark at the beginning and the end of a text of several lines."""


def unfenced(text: str) -> str:
    """Return a text without its fences, if it has both."""
    inner = text.strip()
    if not inner.startswith(FENCE) or is_open(text):
        return text
    return inner.removeprefix(FENCE).removesuffix(FENCE).strip("\n")


def is_open(text: str) -> bool:
    """Return whether a text has an opening fence and no closing one, so that the next line belongs to it."""
    text = text.strip()
    return text.startswith(FENCE) and not text.removeprefix(FENCE).endswith(FENCE)


def split_words(line: str) -> list[str]:
    """Return the words of a line."""
    return [word for word, _, _ in _words(line)]


def split_files(line: str) -> tuple[tuple[str, ...], str]:
    """Split the arguments of `.file`: words for files, and after ` -- ` the prompt."""
    words: list[str] = []
    for word, start, end in _words(line):
        if line[start:end] == "--":
            return tuple(words), line[end:].strip()
        words.append(word)
    return tuple(words), ""


def _words(line: str) -> Iterator[tuple[str, int, int]]:
    """Yield each word without its quoting, and its position. The line is scanned only once."""
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        start, pieces = at, []
        while at < len(line) and not line[at].isspace():
            piece, at = _piece(line, at)
            pieces.append(piece)
        yield "".join(pieces), start, at


def _piece(line: str, at: int) -> tuple[str, int]:
    """Return the part of a word that begins here, and the position of the next part."""
    mark = line[at]
    if mark == "\\":
        return line[at + 1 : at + 2] or mark, at + 2
    if mark in "'`":
        end = line.find(mark, at + 1)
        end = len(line) if end < 0 else end
        inside = line[at + 1 : end]
        return (inside if mark == "'" else f"`{inside}`"), end + 1
    if mark != '"':
        return mark, at + 1
    taken: list[str] = []
    at += 1
    while at < len(line) and line[at] != '"':
        at += line[at] == "\\" and at + 1 < len(line)
        taken.append(line[at])
        at += 1
    return "".join(taken), at + 1
