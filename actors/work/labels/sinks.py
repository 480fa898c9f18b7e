"""Which calls send something away: to a network, to other people, to what others own."""

from __future__ import annotations

import re

from ..tools.shell_line import commands_of
from ..tools.tool import Arguments, Tool
from .setting import Setting
from .sources import WEB, talks_to_others

_INTERPRETERS = frozenset(("python", "python3", "node", "perl", "ruby", "php", "deno", "bun", "lua"))
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def sends(tool: Tool, arguments: Arguments, setting: Setting, prompt: str) -> bool:
    """Whether a call sends something away that the model has put into it.

    Args:
        prompt: what the user has said: an address that stands there as it is was not made by the model.
    """
    if tool.effect == "send" or "sends" in tool.labels:
        return True
    if WEB.fullmatch(tool.name):
        said = str(arguments.get(tool.subject, ""))
        return not (said and said in prompt)
    if not setting.has_network(tool.name):
        return False
    if tool.name == "execute_py_code":
        return True
    return tool.shell and _line_sends(str(arguments.get(tool.subject, "")), prompt)


def _line_sends(line: str, prompt: str) -> bool:
    if line.strip() and line.strip() in prompt:
        return False
    commands = commands_of(line)
    if commands is None:
        return True
    for command in (part for each in commands for part in each.all()):
        if talks_to_others(command) or command.opaque or not command.known:
            return True
        if command.program in _INTERPRETERS or any(_ADDRESS.search(word) for word in command.words):
            return True
        if any("/dev/tcp/" in word or "/dev/udp/" in word for word in command.words):
            return True
    return "/dev/tcp/" in line or "/dev/udp/" in line
