"""Which command lines of `callboard` are one prompt, Loki's way, and not a command of ours.

    callboard -r shell list all files     a flag before anything else
    callboard what is a monad             several words
    callboard "stop the world"            one argument with a blank in it, also if it begins as a command is called
    callboard -- stop the world           behind `--` all is text
    callboard                             nothing: the chat

A single word is a command, or a mistake. So are several words of which the first is nearly a command's name: a slip
(`callboard validat flow.yaml`) should cost neither money nor tell a provider what files are called. In front of a
command `-C DIR` says where its configuration is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_OURS = ("-h", "--help", "-V", "--version")
"""Flags of `callboard` itself."""

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
    """The command that was meant, if one is nearly called so."""
    from difflib import get_close_matches  # only where something is wrong

    begin = word[:1].casefold()  # `what is ...` is a prompt, although `what` is nearly `chat`
    near = get_close_matches(word, [name for name in commands if name.startswith(begin)], n=1, cutoff=0.75)
    return near[0] if near else None


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
