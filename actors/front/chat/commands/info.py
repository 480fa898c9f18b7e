"""`.help` and `.info`: command overview, and state of the chat."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.errors import UsageError
from .....protocol.problems import did_you_mean
from ....io.directories import config_file
from .. import completion
from ..command_line import COMMANDS, ChatCommand, ChatLine, command
from ..options import KEYS

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat

LONGEST = 60
"""Maximum characters of a table cell."""

HELP: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Conversation": (
        (".clear", ".compact", ".undo", ".retry", ".resume"),
        (".regenerate", ".continue", ".copy", ".fork", ".from", ".steps", ".steer"),
    ),
    "Models, agents, roles": (
        (".model", ".agent", ".agents", ".init", ".review", ".exit", ".role"),
        (
            *(".exit agent", ".exit role", ".prompt", ".starter", ".reasoning", ".list", ".save role", ".edit role"),
            *(".info role", ".info agent", ".edit agent-config"),
        ),
    ),
    "What happens": (
        (".info", ".cost", ".context", ".diff", ".todo"),
        (".tools", ".prompt last", ".ps", ".attach", ".clear todo"),
    ),
    "Files and knowledge": (
        (".file", ".rag"),
        (".info rag", ".sources rag", ".rebuild rag", ".edit rag-docs", ".exit rag"),
    ),
    "Sessions": (
        (".session",),
        (".save session", ".info session", ".edit session", ".empty session", ".compress session", ".exit session"),
    ),
    "Permissions and secrets": ((".permissions", ".trust"), (".vault", ".authenticate")),
    "Settings and extensions": (
        (".set", ".mcp", ".macro"),
        (".edit config", ".edit mcp-config", ".install", ".delete", ".update"),
    ),
}
"""Commands by topic: those with a description in `.help`, and those only named. `.help all` describes all."""

_MORE = """
.help NAME  how a command is used        .help all  every command in a line
!COMMAND    a line for the shell         @PATH      sends a file along
Ctrl-O      write in an editor           Ctrl-C     interrupts; Ctrl-D leaves
`/name` is `.name`; exit, quit, clear and help work without the dot."""


_NO_BREAK = "\x00"


def _overview() -> str:
    """Return help that fits two screens of 80 columns and 24 rows."""
    width = max(len(name) for described, _ in HELP.values() for name in described)
    lines: list[str] = []
    for title, (described, named) in HELP.items():
        lines.append(title)
        lines += [f"  {name:<{width}}  {COMMANDS[name].about}" for name in described]
        # NUL replaces the spaces within a name, so that textwrap does not split `.exit agent`.
        names_alone = ", ".join(named).replace(" ", _NO_BREAK).replace(f",{_NO_BREAK}", ", ")
        lines += textwrap.wrap(names_alone, 78, initial_indent="  also  ", subsequent_indent="        ")
    return "\n".join(lines).replace(_NO_BREAK, " ")


def _in_groups() -> str:
    """Return all commands with their descriptions, by group."""
    width = max(map(len, COMMANDS))
    groups = ((title, (*described, *named)) for title, (described, named) in HELP.items())
    return "\n".join(
        "\n".join([title, *(f"  {name:<{width}}  {COMMANDS[name].about}" for name in names)]) for title, names in groups
    )


def _commands(_chat: Chat, _caller: Caller, words: Sequence[str]) -> completion.Names:
    known = [(each.name, each.about) for each in COMMANDS.values()]
    return known if len(words) < 2 else []


@command(".help", "Show this help, or how a command is used", usage="[command|all]", at_work=True, completes=_commands)
async def _help(line: ChatLine) -> None:
    if not line.rest:
        await line.say(f"{_overview()}\n{_MORE}")
        return
    if line.rest == "all":
        await line.say(_in_groups())
        return
    name = line.rest.lstrip("./").lower()
    found = [each for each in COMMANDS.values() if name in (each.name[1:], *each.name[1:].split())]
    if not found:
        near = did_you_mean(name[:60], [each[1:] for each in COMMANDS])
        raise UsageError(f"there is no command {line.rest[:60]!r}; {near or '`.help` lists them'}")
    await line.say("\n\n".join(map(_in_full, found)))


def _in_full(wanted: ChatCommand) -> str:
    told = [wanted.called, f"  {wanted.about}" + (f" ({wanted.when})" if wanted.when else "")]
    if wanted.name == ".set":
        told += ["", *(f"  {row}" for row in table((name, key.about) for name, key in KEYS.items()).splitlines())]
    return "\n".join(told)


@command(".info", "Show the model, agent, session and settings", usage="[role|session|agent|rag]", at_work=True)
async def _info(line: ChatLine) -> None:
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
        *chat.current_values().items(),
        ("config_file", config_file(line.root.config_dir) if line.caller.has("run:files") else None),
        ("config_dir", line.root.config_dir if line.caller.has("run:files") else None),
        ("working_directory", Path.cwd() if line.caller.has("run:files") else None),
    ]
    await line.say(table((name, value) for name, value in rows if value is not None))


def counted(number: int, word: str) -> str:
    """Return a number with its noun: `1 tool`, `2 tools`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def table(rows: Iterable[tuple[str, object]]) -> str:
    """Return names and values as aligned columns."""
    found = [(name, as_text(value)) for name, value in rows]
    width = max((len(name) for name, _ in found), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in found)


def in_columns(rows: Iterable[Sequence[str]], longest: int = LONGEST) -> list[str]:
    """Return rows as aligned columns; the first row is the head. A column without any value is omitted."""
    cut = [[" ".join(cell.split())[:longest] for cell in row] for row in rows]
    columns = [(max(map(len, column)), column) for column in zip(*cut, strict=True) if any(column[1:])]
    aligned = zip(*([f"{cell:<{width}}" for cell in column] for width, column in columns), strict=True)
    return ["  ".join(row).rstrip() for row in aligned]


def as_text(value: object) -> str:
    """Return a value in the notation of the configuration files."""
    return str(value).lower() if isinstance(value, bool) else str(value)
