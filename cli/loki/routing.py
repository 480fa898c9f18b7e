"""Decision whether a command line is one prompt, as in Loki, or the name of a command with its arguments.

    callboard -r shell list all files     a flag before anything else
    callboard give me a haiku             several words
    callboard "stop the world"            one argument with a blank, even if it begins like a command
    callboard -- stop the world           everything after `--` is text
    callboard                             nothing: the chat

A single word is a command, or a mistake. So are several words if the first differs from a command's name by at most two
edits (`callboard rnu coder`): a slip must neither cost money nor reveal file names to a provider. That refuses some
sentences, `what is a monad` for `chat`; quoted they are prompts. Before a command, `-C DIR` names its configuration
directory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_OURS = ("-h", "--help", "-V", "--version")
"""Flags of `callboard` itself."""

MOST_EDITS = 2
"""Edits by which a word may differ from the name of a command and still means it."""

_CONFIG_DIR = ("-C", "--config-dir")

CONFIG_DIR_NAMED = "callboard.config_dir_named"
"""Key of a context's `meta`: a flag before the command names the configuration directory."""


def is_prompt(arguments: Sequence[str], commands: Collection[str]) -> bool:
    """Return True if the command line is one prompt."""
    if not arguments:
        return True
    _, arguments = before_command(arguments, commands)
    first = arguments[0]
    if first.startswith("-"):
        return first not in _OURS
    if first in commands:
        return False
    if len(first.split()) > 1:
        return True
    return len(arguments) > 1 and nearest(first, commands) is None


def nearest(word: str, commands: Collection[str]) -> str | None:
    """Return the command that differs from a word by at most `MOST_EDITS`, the nearest one; None if there is none."""
    if not word or len(word) > max(map(len, commands)) + MOST_EDITS:
        return None
    near = [(edits, name) for name in commands if (edits := _edits(word.casefold(), name)) <= MOST_EDITS]
    return min(near, key=lambda each: each[0])[1] if near else None


def _edits(one: str, other: str) -> int:
    """Return the edit distance: a missing, extra or different letter and two swapped neighbours each count 1."""
    above: list[int] = []
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        two_above, above, row = above, row, [place]
        for at, wanted in enumerate(other, 1):
            edits = min(above[at] + 1, row[at - 1] + 1, above[at - 1] + (letter != wanted))
            if place > 1 and at > 1 and letter == other[at - 2] and one[place - 2] == wanted:
                edits = min(edits, two_above[at - 2] + 1)
            row.append(edits)
    return row[-1]


def before_command(arguments: Sequence[str], commands: Collection[str]) -> tuple[str | None, list[str]]:
    """Return the configuration directory named before a command (or a misspelt one), and the line without that flag.

    The last one counts, as with any flag.
    """
    directory, rest = None, list(arguments)
    while len(rest) > 1 and (named := _directory(rest)) is not None:
        directory, rest = named
    meant = bool(rest) and (rest[0] in commands or (_is_word(rest[0]) and nearest(rest[0], commands) is not None))
    return (directory, rest) if directory is not None and meant else (None, list(arguments))


def _directory(arguments: list[str]) -> tuple[str, list[str]] | None:
    """Return the value of a configuration directory flag at the beginning, and the rest of the line."""
    first = arguments[0]
    for flag in _CONFIG_DIR:
        if first == flag:
            return arguments[1], arguments[2:]
        joined = f"{flag}=" if flag.startswith("--") else flag
        if first.startswith(joined) and len(first) > len(joined):
            return first.removeprefix(joined), arguments[1:]
    return None


def _is_word(text: str) -> bool:
    return not text.startswith("-") and len(text.split()) == 1
