"""`.help`, `.info`: what there is, and how the chat stands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..line import Line
from ..setting import shown
from ..table import COMMANDS, command


@command(".help", "Show this help", at_work=True)
async def _help(line: Line) -> None:
    commands = COMMANDS
    width = max(map(len, commands))
    rows = [f"{each.name:<{width}}  {each.about}" for each in commands.values()]
    more = (
        "\nType ::: to begin and end a prompt of several lines, Ctrl-O for an editor."
        "\n`!line` runs a line of the shell, `@path` in a prompt brings a file along, `/name` works like `.name`."
        "\nCtrl-C interrupts the answer; Ctrl-D leaves."
    )
    await line.say("\n".join(rows) + "\n" + more)


@command(".info", "Show how the chat stands", at_work=True)
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
        ("config_file", line.root.settings.file if line.caller.has("run:files") else None),
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
    return "\n".join(f"{name:<{width}}  {value}" for name, value in found)


def as_text(value: object) -> str:
    """A value as the files write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
