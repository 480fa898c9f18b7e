"""Completion of the line being typed: command names, their arguments, and `@file`.

Names come from directories that are read again only after a change (`names`), so that completion is fast enough for
each key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.control.chat import Completion
from ....protocol.errors import CallboardError
from ...runs.finding import built_in_agents, description_of, own_agents
from ...runs.sessions.names import scope_of
from ...work.knowledge import registry
from ...work.macros import FILES as MACROS
from ...work.models.model_listing import facts_of, model_names
from ...work.roles import FILES as ROLES
from .command_line import ALIASES, COMMANDS, ChatCommand

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.macro import Macro
    from ....protocol.role import Role
    from ....protocol.settings import Settings
    from ...io.named_files import NamedFiles
    from ...runs.root import Root
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


Names = list[tuple[str, str]]
"""Names, each with a short description."""

MOST_FILES = 200
MOST_LISTS = 500
_kept: dict[tuple[str, str], tuple[tuple[float, ...], Names]] = {}


def _lately(kind: str, directories: list[Path], read: Callable[[], Names]) -> Names:
    key = (kind, str(directories[0]))
    now = tuple(_changed(each) for each in directories)
    kept = _kept.get(key)
    # The modification time of a directory changes when an entry is added or removed, but not when a file is edited.
    if kept is None or kept[0] != now:
        if len(_kept) >= MOST_LISTS:
            # Dropping everything is enough as a bound: the lists are cheap to read again.
            _kept.clear()
        kept = _kept[key] = now, read()
    return kept[1]


def _changed(directory: Path) -> float:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0.0


def roles(chat: Chat, caller: Caller) -> Names:
    """Return the user's roles and the built-in ones."""
    if not caller.has("read:roles"):
        return []
    base = chat.hub.root.config_dir
    return _lately("roles", [ROLES.directory(base)], lambda: _described(ROLES, base))


def _described(files: NamedFiles[Role] | NamedFiles[Macro], base: Path) -> Names:
    """Return file names with the files' descriptions; an unreadable file has its error as the description."""
    found: Names = []
    for place in files.places(base):
        try:
            about = " ".join(files.load(place).description.split())
        except CallboardError as error:
            about = f"can't be read: {error}".splitlines()[0]
        found.append((place.name, about))
    return found


def macros(chat: Chat, caller: Caller) -> Names:
    """Return the macros."""
    if not caller.has("read:agents"):
        return []
    base = chat.hub.root.config_dir
    return _lately("macros", [MACROS.directory(base)], lambda: _described(MACROS, base))


def agents(chat: Chat, caller: Caller) -> Names:
    """Return the user's agents and the built-in ones."""
    if not caller.has("read:agents"):
        return []
    base = chat.hub.root.config_dir

    def read() -> Names:
        known = dict.fromkeys((*own_agents(base), *built_in_agents()))
        return [(name, description_of(name, base)) for name in known]

    return _lately("agents", [base / "agents"], read)


def rags(chat: Chat, caller: Caller) -> Names:
    """Return the knowledge bases."""
    if not caller.has("read:agents"):
        return []
    base = chat.hub.root.config_dir
    return _lately("rags", [registry.folder(base)], lambda: [(name, "") for name in registry.names(base)])


def sessions(chat: Chat, caller: Caller) -> Names:
    """Return the named sessions of the chat's agent, or those without an agent."""
    if not caller.has("read:sessions"):
        return []
    store, agent = chat.hub.root.sessions.store, chat.memory.stored.agent

    def read() -> Names:
        try:
            found = store.list(agent, everywhere=False, caller=caller)
        except CallboardError:
            return []
        return [(meta.alias, meta.title or "") for meta in found if meta.alias]

    home = scope_of(store.config_dir, agent).home
    # Callers see different sessions, so each has a cache entry of its own.
    whose = f"{caller.subject} {caller.has('admin:sessions')}"
    return _lately(f"sessions of {whose}", [home / "by-name", home / "by-id"], read)


def models(root: Root, type: str = "chat") -> Names:
    """Return the models with window and price. Blocking: the first call reads the table of prices."""
    settings = root.settings
    kept = _models.get(type)
    # Compared by identity: settings are replaced as a whole when they change.
    if kept is None or kept[0] is not settings:
        names = model_names(settings, os.environ) if type == "chat" else _listed(root, type)
        kept = _models[type] = settings, [(name, _about(root, name)) for name in names]
    return kept[1]


_models: dict[str, tuple[Settings, Names]] = {}


def _listed(root: Root, type: str) -> Iterator[str]:
    for client in root.settings.clients:
        yield from (f"{client.name}:{model.name}" for model in client.models if model.type == type)


def _about(root: Root, name: str) -> str:
    """Return window, price and missing capabilities of a model."""
    catalog = root.gateway.catalog
    try:
        client, model = catalog.named(name)
    except CallboardError:
        return ""
    lacks = (("no images", model.supports_vision), ("no tools", model.supports_function_calling))
    known = [str(facts_of(catalog.prices.finder, client, model, os.environ))]
    return "; ".join(filter(None, [*known, *(mark for mark, has in lacks if not has)]))


def files(begun: str) -> Names:
    """Return files and directories whose path begins with this text."""
    head, slash, tail = begun.rpartition("/")
    directory = Path(head + slash or ".").expanduser()
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except (OSError, RuntimeError, ValueError):
        return []
    found: Names = []
    for entry in entries:
        # Hidden files only after a typed dot, as in a shell.
        if entry.name.startswith(tail) and (tail.startswith(".") or not entry.name.startswith(".")):
            is_directory = entry.is_dir()
            found.append(
                (f"{head}{slash}{entry.name}{'/' if is_directory else ''}", "directory" if is_directory else "")
            )
        if len(found) >= MOST_FILES:
            break
    return found
