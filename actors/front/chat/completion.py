"""Completion of the line being typed: command names, their arguments, and `@file`.

Names come from directories that are read again only after a change (`names`), so that completion is fast enough for
each key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.control.chat import Completion
from .names import files
from .table import ALIASES, COMMANDS, ChatCommand

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from .chat import Chat

MOST = 200


def completions(chat: Chat, caller: Caller, typed: str) -> list[Completion]:
    """Return completions, best first. Blocking: reads directories."""
    if not typed:
        return []
    if typed[0] in "./" and "\n" not in typed:
        found = _of_commands(chat, caller, typed)
        if found:
            return found[:MOST]
    word = typed[max(typed.rfind(" "), typed.rfind("\n")) + 1 :]
    if word.startswith("@") and caller.has("run:files"):
        start = len(typed) - len(word) + 1
        return [Completion(text=name, start=start, about=about) for name, about in files(word[1:])][:MOST]
    return []


def _of_commands(chat: Chat, caller: Caller, typed: str) -> list[Completion]:
    line = "." + typed[1:]
    known = [each for each in COMMANDS.values() if all(caller.has(scope) for scope in each.scopes)]
    called = [(each.name, each.about) for each in known]
    called += [(alias, each.about) for alias, name in ALIASES.items() for each in known if each.name == name]
    fitting = [(name, about) for name, about in called if name.startswith(line)]
    found = [Completion(text=typed[0] + name[1:], start=0, about=about) for name, about in fitting]
    command = _command(line, known)
    if command is None or command.completes is None:
        return found
    rest = line[len(command.name) :]
    behind = rest.lstrip(" ")
    if not rest:  # a complete name: offer its arguments, too
        return [*found, *_named(command, chat, caller, "", len(typed), space=" ")]
    return [*found, *_named(command, chat, caller, behind, len(typed) - len(behind))]


def _command(line: str, known: list[ChatCommand]) -> ChatCommand | None:
    fitting = [each for each in known if line == each.name or line.startswith(f"{each.name} ")]
    return max(fitting, key=lambda each: len(each.name), default=None)


def _named(
    command: ChatCommand, chat: Chat, caller: Caller, behind: str, start: int, space: str = ""
) -> list[Completion]:
    """Return completions of a command's last argument."""
    assert command.completes is not None
    words = behind.split(" ")
    word = words[-1]
    start += len(behind) - len(word)
    low = word.lower()
    offered = [pair for pair in command.completes(chat, caller, words) if low in pair[0].lower()]
    # Names that begin with the word precede names that only contain it; the sort is stable.
    offered.sort(key=lambda pair: not pair[0].lower().startswith(low))
    return [Completion(text=space + text, start=start, about=about) for text, about in offered]
