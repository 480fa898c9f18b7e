"""Which command lines of `callboard` are one prompt, Loki's way, and not a command of ours.

    callboard -r shell list all files     a flag before anything else
    callboard give me a haiku             several words
    callboard "stop the world"            one argument with a blank in it, also if it begins as a command is called
    callboard -- stop the world           behind `--` all is text
    callboard                             nothing: the chat

A single word is a command, or a mistake. So are several words of which the first is a command's name but for two edits
(`callboard rnu coder`): a slip must neither cost money nor tell a provider what files are called. That refuses some
sentences, `what is a monad` for `chat`; quoted they are prompts. In front of a command `-C DIR` says where its
configuration is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_OURS = ("-h", "--help", "-V", "--version")
"""Flags of `callboard` itself."""

MOST_EDITS = 2
"""Edits by which a word may differ from the name of a command and is taken for it."""

_CONFIG_DIR = ("-C", "--config-dir")


def is_prompt(arguments: Sequence[str], commands: Collection[str]) -> bool:
    """Whether the command line is one prompt."""
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
    """The command whose name a word has but for `MOST_EDITS`, the nearest one first; None if there is none."""
    if not word or len(word) > max(map(len, commands)) + MOST_EDITS:
        return None
    near = [(edits, name) for name in commands if (edits := _edits(word.casefold(), name)) <= MOST_EDITS]
    return min(near, key=lambda each: each[0])[1] if near else None


def _edits(one: str, other: str) -> int:
    """Edit distance: letters that are missing, too many or others, and neighbours that are swapped, each count 1."""
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
    """The configuration directory that is named in front of a command or of a slip, and the line without that flag.

    The last one counts, as with any flag.
    """
    directory, rest = None, list(arguments)
    while len(rest) > 1 and (named := _directory(rest)) is not None:
        directory, rest = named
    meant = bool(rest) and (rest[0] in commands or (_is_word(rest[0]) and nearest(rest[0], commands) is not None))
    return (directory, rest) if directory is not None and meant else (None, list(arguments))


def _directory(arguments: list[str]) -> tuple[str, list[str]] | None:
    """What the flag at the beginning says, and what is behind it."""
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
