r"""Lines of the chat as words: quotes and backquotes hold blanks together, a backslash takes the next character.

    a 'b c' d\ e `git diff`    ->   a, b c, d e, `git diff`

A backquoted word keeps its backquotes: `-f` and `.file` know it as a command by them. A quote that does not end takes
the rest of the line, so a prompt with an apostrophe is no error.

`:::` before and behind a text says where it begins and ends, for those who type several lines one after another.
"""

from __future__ import annotations

from collections.abc import Iterator

FENCE = ":::"
"""Begins and ends a text of several lines."""


def unfenced(text: str) -> str:
    """A text without its fences, if it has both."""
    inner = text.strip()
    if not inner.startswith(FENCE) or is_open(text):
        return text
    return inner.removeprefix(FENCE).removesuffix(FENCE).strip("\n")


def is_open(text: str) -> bool:
    """Whether a text is begun with a fence and not ended: what is typed next belongs to it."""
    text = text.strip()
    return text.startswith(FENCE) and not text.removeprefix(FENCE).endswith(FENCE)


def split_words(line: str) -> list[str]:
    """The words of a line."""
    return [word for word, _, _ in _words(line)]


def split_files(line: str) -> tuple[tuple[str, ...], str]:
    """What `.file` is given: words for files, and behind ` -- ` the prompt."""
    words: list[str] = []
    for word, start, end in _words(line):
        if line[start:end] == "--":
            return tuple(words), line[end:].strip()
        words.append(word)
    return tuple(words), ""


def _words(line: str) -> Iterator[tuple[str, int, int]]:
    """Each word as it is meant, and where it stands. One pass, whatever the line holds."""
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
    """The part of a word that begins here, and where the next begins."""
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
