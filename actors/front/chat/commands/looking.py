"""`.help`, `.info`: what there is, and how the chat stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.errors import UsageError
from .....protocol.problems import did_you_mean
from ....io.directories import config_file
from .. import names
from ..line import Line
from ..setting import KEYS, shown
from ..table import COMMANDS, Command, command

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat

LONGEST = 60
"""Characters of a cell of a list."""

_MORE = """
`.help NAME` tells how a command is used.
Type ::: to begin and end a prompt of several lines, Ctrl-O for an editor.
`exit`, `quit`, `clear` and `help` as a whole line are commands, too; `.quit` is `.exit`.
`!line` runs a line of the shell, `@path` in a prompt brings a file along, `/name` works like `.name`.
Ctrl-C interrupts the answer; Ctrl-D leaves."""


def _commands(_chat: Chat, _caller: Caller, words: Sequence[str]) -> names.Names:
    known = [(each.name, each.about) for each in COMMANDS.values()]
    return known if len(words) < 2 else []


@command(".help", "Show this help, or how a command is used", usage="[command]", at_work=True, completes=_commands)
async def _help(line: Line) -> None:
    if not line.rest:
        await line.say(table((each.name, each.about) for each in COMMANDS.values()) + "\n" + _MORE)
        return
    name = line.rest.lstrip("./").lower()
    found = [each for each in COMMANDS.values() if name in (each.name[1:], *each.name[1:].split())]
    if not found:
        near = did_you_mean(name[:60], [each[1:] for each in COMMANDS])
        raise UsageError(f"there is no command {line.rest[:60]!r}; {near or '`.help` lists them'}")
    await line.say("\n\n".join(map(_in_full, found)))


def _in_full(wanted: Command) -> str:
    told = [wanted.called, f"  {wanted.about}" + (f" ({wanted.when})" if wanted.when else "")]
    if wanted.name == ".set":
        told += ["", *(f"  {row}" for row in table((name, key.about) for name, key in KEYS.items()).splitlines())]
    return "\n".join(told)


@command(".info", "Show how the chat stands", usage="[role|session|agent|rag]", at_work=True)
async def _info(line: Line) -> None:
    if line.rest:
        raise line.misused()
    chat = line.chat
    info = chat.info()
    rows: list[tuple[str, object]] = [
        ("model", info.model),
        ("agent", info.agent),
        ("role", info.role or ("temp" if info.role_prompt else None)),
        ("session", info.session),
        ("rag", info.rag),
        *shown(chat).items(),
        ("config_file", config_file(line.root.config_dir) if line.caller.has("run:files") else None),
        ("config_dir", line.root.config_dir if line.caller.has("run:files") else None),
        ("working_directory", Path.cwd() if line.caller.has("run:files") else None),
    ]
    await line.say(table((name, value) for name, value in rows if value is not None))


def counted(number: int, word: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def table(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values, aligned."""
    found = [(name, as_text(value)) for name, value in rows]
    width = max((len(name) for name, _ in found), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in found)


def in_columns(rows: Iterable[Sequence[str]], longest: int = LONGEST) -> list[str]:
    """A line each, the first is the head; a column that has nothing but its head is left out."""
    cut = [[" ".join(cell.split())[:longest] for cell in row] for row in rows]
    columns = [(max(map(len, column)), column) for column in zip(*cut, strict=True) if any(column[1:])]
    aligned = zip(*([f"{cell:<{width}}" for cell in column] for width, column in columns), strict=True)
    return ["  ".join(row).rstrip() for row in aligned]


def as_text(value: object) -> str:
    """A value as the files write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
